"""A small sweep in a process of its own, to be killed: ``python -m tests.e2e.sweeping FOLDER``.

Every run that is measured leaves a line in ``$SWEEP_LOG``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from testbed.core.errors import HarnessError
from testbed.diagnose.summary import Summarize
from testbed.run import sweep
from testbed.run.settings import Settings
from testbed.run.sweep import Measure, Sweep

CELLS = tuple(Settings("tenant-leak", seed=seed, queries=10, arms=("clean", "faulty")) for seed in range(1, 7))


def logged(folder: Path) -> Any:
    summary = json.loads((folder / "summary.json").read_text())
    with open(os.environ["SWEEP_LOG"], "a") as log:
        log.write(f"{folder.parents[1].name}\n")  # the cell's name
    return {"digest": summary["digest"], "means": summary["arms"]["faulty"]["means"]}


MEASURE = Measure("logged@1", logged)


def names() -> list[str]:
    return [sweep.fingerprint(cell, MEASURE.name) for cell in CELLS]


def main(folder: str) -> int:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # as the command line does
    try:
        found = Sweep(Path(folder), Summarize(), MEASURE, n_workers=2).run(CELLS)
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    print(json.dumps([cell.value for cell in found], sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
