"""Write the twins data set to a folder, in the BEIR layout. Offline; the same bytes every time.

$ python datasets/twins/build.py --out DIR
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # a checkout that is not installed

from testbed.core.errors import HarnessError  # noqa: E402
from testbed.corpora import sums  # noqa: E402
from testbed.corpora.beir import write_beir  # noqa: E402
from testbed.corpora.twins import build_twins  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="write the twins data set")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; made when missing")
    parser.add_argument("--accept", action="store_true", help="write SHA256SUMS here anew (after an intended change)")
    arguments = parser.parse_args()
    try:
        files = write_beir(build_twins(), arguments.out)
        if arguments.accept:
            (HERE / sums.FILE).write_text(sums.sums_of(files), encoding="utf-8")
        wrong = sums.differing(sums.read_sums(HERE / sums.FILE), files)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for phrase in wrong:
        print(f"error: {phrase}", file=sys.stderr)
    verdict = "differ" if wrong else "as expected"
    print(f"{arguments.out}: {len(files)} files, {sum(map(len, files.values()))} bytes, {verdict}")
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
