"""Write the lifecycle data set to a folder, in the BEIR layout. Offline; the same bytes every time.

$ python datasets/lifecycle/build.py --out DIR
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # a checkout that is not installed

from testbed.corpora import rebuild  # noqa: E402
from testbed.corpora.lifecycle import build_lifecycle  # noqa: E402

if __name__ == "__main__":
    sys.exit(rebuild.main(HERE, build_lifecycle))
