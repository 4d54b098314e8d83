"""How often chance alone makes the metric rule fail, on a stack that is not deterministic.

    PYTHONPATH=scripts python scripts/false_alarms.py tenant-leak --seed 1003 --runs 20

The same seed is played again and again, so that every difference between two of the runs is chance. Each pair of runs
is held to one another as `testbed gate` holds a run to its baseline: once with blocks of neighbouring asks resampled
alone, and once with questions too, which is what the gate does (docs/gate.md). Pairs of the same runs are not
independent."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from testbed.diagnose.asks import Asks
from testbed.diagnose.contrast import ALPHA, Name, Pair, contrasts
from testbed.diagnose.remember import is_gated, usual_tolerance
from testbed.diagnose.significance import Floats, Questions
from testbed.diagnose.summary import Summarize
from testbed.record.folder import RunReader
from testbed.run import scenarios
from testbed.run.execute import run_scenario
from testbed.run.settings import Settings

Series = Mapping[tuple[str, str], Floats]


class Told(NamedTuple):
    """Pairs of runs in which a metric of an arm is worse by more than its tolerance, significantly."""

    alarms: int
    pairs: int


def main() -> int:
    args = _arguments()
    first = scenarios.load(args.scenario).variants[0]
    fixes = [fix.name for fix in first.fixes]
    arms = ("clean", *(f"{side}+{fix}" for side in ("clean", "faulty") for fix in fixes))
    settings = Settings(args.scenario, seed=args.seed, queries=args.queries, stack=args.stack, arms=arms)
    with ProcessPoolExecutor(args.workers) as pool:
        played = list(pool.map(partial(play, settings), range(args.runs)))
    runs, questions = [series for series, _ in played], played[0][1]
    for way, asked in (("blocks", None), ("blocks and questions", questions)):
        found = told(runs, asked)
        row = {"scenario": args.scenario, "seed": args.seed, "resampled": way, **found._asdict()}
        print(json.dumps(row), flush=True)
    return 0


def play(settings: Settings, _: int) -> tuple[Series, Questions]:
    """One run: its gated series, and which asks are of the same question."""
    with tempfile.TemporaryDirectory() as folder:
        asks = Asks(RunReader(run_scenario(replace(settings, results_dir=Path(folder)), Summarize())))
        arms = [arm for arm in asks.reader.arms if is_gated(arm)]
        return {(arm, metric): row for arm in arms for metric, row in asks.gated(arm).items()}, asks.questions()


def told(runs: Sequence[Series], questions: Questions | None) -> Told:
    alarms, pairs = 0, list(itertools.combinations(runs, 2))
    for then, now in pairs:
        both = {Name(*key): Pair(then[key], now[key]) for key in then if key in now}
        rows = contrasts([both], seed=1, name="noise", questions=None if questions is None else [questions])
        alarms += any(
            row.p < ALPHA and row.loss > usual_tolerance(row.name.metric, deterministic=False) for row in rows
        )
    return Told(alarms, len(pairs))


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("scenario")
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--runs", type=int, default=20)
    p.add_argument("--queries", type=int, default=400)
    p.add_argument("--stack", default="noisy_stack:build")
    p.add_argument("--workers", type=int, default=2)
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
