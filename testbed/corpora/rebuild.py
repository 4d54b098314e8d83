"""Write a generated data set to a folder, in the BEIR layout, held against its checksums: `datasets/*/build.py`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from testbed.core.errors import HarnessError
from testbed.corpora import sums
from testbed.corpora.beir import write_beir
from testbed.corpora.facts import FactCorpus


def main(home: Path, build: Callable[[], FactCorpus]) -> int:
    """The command line of the set whose card and SHA256SUMS are in ``home``; 3 when a file is not as it should be."""
    parser = argparse.ArgumentParser(description=f"write the {home.name} data set")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; made when missing")
    parser.add_argument("--accept", action="store_true", help="write SHA256SUMS here anew (after an intended change)")
    arguments = parser.parse_args()
    try:
        files = write_beir(build(), arguments.out)
        if arguments.accept:
            (home / sums.FILE).write_text(sums.sums_of(files), encoding="utf-8")
        wrong = sums.differing(sums.read_sums(home / sums.FILE), files)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for phrase in wrong:
        print(f"error: {phrase}", file=sys.stderr)
    verdict = "differ" if wrong else "as expected"
    print(f"{arguments.out}: {len(files)} files, {sum(map(len, files.values()))} bytes, {verdict}")
    return 3 if wrong else 0
