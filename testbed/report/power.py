"""What the gate notices, as a table: a share of runs for each variant, level and rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from testbed.core import digest
from testbed.core.scenario import Variant
from testbed.diagnose import power
from testbed.diagnose.judge import plain
from testbed.diagnose.over_seeds import Share
from testbed.diagnose.power import COLUMNS, DETECTED, GATE, LEVELS, TOGETHER, Detection, overall, smallest
from testbed.diagnose.summary import Summarize
from testbed.record import durable
from testbed.report.catalogue import print_json
from testbed.report.columns import Column, percent, to_csv, to_table
from testbed.run import sweep
from testbed.run.arms import Progress
from testbed.run.cells import cells
from testbed.run.settings import Settings
from testbed.run.sweep import Sweep

CLEAN_QUERIES = 200
ARMS = ("clean", "faulty")


def play(
    variants: Sequence[tuple[str, Variant]],
    seeds: Sequence[int],
    queries: int,
    n_clean: int,
    folder: Path,
    progress: Progress,
    stack: str = "reference",
    store: str = "faiss",
    *,
    whole: bool = False,
) -> tuple[list[Detection], Share, list[str]]:
    """Faults of every level over the seeds; and clean runs, ``n_clean`` at least, spread over the variants' streams.

    ``whole``: these have all of their arms and ``queries`` questions, as `testbed gate` plays them.
    """
    graded = cells(variants, seeds, LEVELS, queries, ARMS, stack, store)
    made = Sweep(folder, Summarize(), power.SEEN, sweep.n_workers(len(graded)))
    found = power.detections(done.value for done in made.run(graded, progress))
    clean = clean_cells(variants, n_clean, stack, store)
    if whole:
        clean = [replace(cell, arms=(), queries=queries) for cell in clean]
    return found, *clean_gates(clean, folder, progress)


def clean_gates(clean: Sequence[Settings], folder: Path, progress: Progress) -> tuple[Share, list[str]]:
    """Each clean run twice, in processes of their own: recorded as a baseline, then held to it."""
    first = Sweep(folder, Summarize(), power.REMEMBERED, sweep.n_workers(len(clean)), apart=True)
    baselines = [done.value for done in first.run(clean, progress)]
    second = replace(first, measure=power.held_to(baselines, [cell.scenario for cell in clean]))
    return power.alarms(done.value for done in second.run(clean, progress))


def clean_cells(
    variants: Sequence[tuple[str, Variant]], n_clean: int, stack: str = "reference", store: str = "faiss"
) -> list[Settings]:
    """Small runs of the clean arm at seeds of their own."""
    drawn = range(1001, 1001 - (-n_clean // len(variants)))
    return cells(variants, drawn, queries=CLEAN_QUERIES, arms=("clean",), stack=stack, store=store)


def print_power(
    found: Sequence[Detection],
    alarm: Share,
    lines: Sequence[str],
    folder: Path,
    console: Console,
    *,
    as_json: bool = False,
    played_on: str = "",
) -> int:
    """Print it, and write it below ``folder``; exit code 1 when a clean run does not pass.

    ``played_on`` goes into the names of the files (``run.cells.played_on``).
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = plain(
        {
            "detections": [asdict(d) | {"shares": _named(d.shares)} for d in found],
            "overall": [{"level": level, "shares": _named(shares)} for level, shares in overall(found).items()],
            "smallest": [
                {"scenario": s, "variant": v, "level": level, "level_all_seeds": smallest(found, TOGETHER)[s, v]}
                for (s, v), level in smallest(found).items()
            ],
            "false_alarms": {**alarm._asdict(), "lines": list(lines)},
        }
    )
    stem = folder / f"power{played_on}"
    durable.write_bytes(stem.with_suffix(".json"), digest.canonical(told) + b"\n")
    durable.write_bytes(stem.with_suffix(".csv"), to_csv(table(found)).encode())
    if as_json:
        print_json(told)
        return 1 if lines else 0
    console.print(to_table(table(found), console.width))
    console.print()
    console.print(to_table(totals(found), console.width))
    console.print()
    any_seed = smallest(found, TOGETHER)
    for (scenario, variant), level in smallest(found).items():
        seen, one = (_from(known) for known in (level, any_seed[scenario, variant]))
        console.print(
            f"{scenario}/{variant}: the gate notices at least {DETECTED:.0%} of the runs {seen}, one seed or more {one}"
        )
    console.print(f"\nfalse alarms: {alarm.hits} in {alarm.n} clean gate runs, 95 % interval up to {alarm.high:.2%}")
    for line in lines:
        console.print(line)
    console.print(f"table       {stem}.csv, .json", soft_wrap=True)
    return 1 if lines else 0


def _from(level: float | None) -> str:
    return "never" if level is None else f"from level {level:g} on"


def _named(shares: Mapping[str, Share]) -> dict[str, dict[str, float]]:
    return {rule: share._asdict() for rule, share in shares.items()}


def table(found: Sequence[Detection]) -> list[Column]:
    """One row a variant and level."""
    return [
        Column("variant", tuple(f"{d.scenario}/{d.variant}" for d in found), number=False),
        Column("level", tuple(f"{d.level:g}" for d in found)),
        *(Column(rule, tuple(f"{d.shares[rule].hits}/{d.shares[rule].n}" for d in found)) for rule in COLUMNS),
    ]


def totals(found: Sequence[Detection]) -> list[Column]:
    """One row a level, with the interval of the share that the gate notices."""
    rows = overall(found)
    return [
        Column("all variants, level", tuple(f"{level:g}" for level in rows)),
        *(Column(rule, tuple(percent(shares[rule].share) for shares in rows.values())) for rule in COLUMNS),
        Column("gate, 95 %", tuple(f"[{s[GATE].low:.0%}, {s[GATE].high:.0%}]" for s in rows.values())),
        Column(TOGETHER, tuple(f"{s[TOGETHER].hits}/{s[TOGETHER].n}" for s in rows.values())),
    ]
