"""Write the ledger data set to a folder, in the BEIR layout. Offline; the same bytes every time.

$ python datasets/ledger/build.py --out DIR
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # a checkout that is not installed

from testbed.corpora import rebuild  # noqa: E402
from testbed.corpora.ledger import build_ledger  # noqa: E402

if __name__ == "__main__":
    sys.exit(rebuild.main(HERE, build_ledger))
