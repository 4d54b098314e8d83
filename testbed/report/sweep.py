"""A sweep as a table: each variant at each level, over its seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from testbed.core import digest
from testbed.core.errors import Undecided
from testbed.diagnose.attribution import NAMED_SHARE
from testbed.diagnose.grid import Row, rows
from testbed.diagnose.judge import plain
from testbed.diagnose.outcome import OUTCOME
from testbed.diagnose.over_seeds import Mean, Share
from testbed.diagnose.summary import Summarize
from testbed.record import durable
from testbed.report.catalogue import print_json
from testbed.report.columns import Column, number, to_csv, to_table
from testbed.run import sweep
from testbed.run.arms import Progress
from testbed.run.settings import Settings
from testbed.run.sweep import Sweep

_NAMED = ("scenario", "variant", "level", "seed", "queries", "stack", "store")


def outcomes(cells: Sequence[Settings], folder: Path, progress: Progress) -> list[Mapping[str, Any]]:
    """What is kept of each run, from earlier sweeps in the folder where they are still true, else run now."""
    made = Sweep(folder, Summarize(), OUTCOME, sweep.n_workers(len(cells))).run(cells, progress)
    return [done.value for done in made]


def print_sweep(
    found: Sequence[Mapping[str, Any]], folder: Path, console: Console, *, as_json: bool = False, check: bool = False
) -> int:
    """Print the table and write it as CSV and JSON below ``folder``.

    Returns
    -------
    1 when a clean arm violates something; with ``check`` also when a promise is not kept.

    Raises
    ------
    Undecided : ``check``, but no run is held to what it promises.
    """
    table = rows(found)
    name = digest.of_json([[o[part] for part in _NAMED] for o in found])[:8]
    told = plain({"rows": [row.to_json() for row in table], "runs": list(found)})
    durable.write_bytes(folder / f"{name}.csv", to_csv(columns(table, full=True)).encode())
    durable.write_bytes(folder / f"{name}.json", digest.canonical(told) + b"\n")
    if as_json:
        print_json(told)
    else:
        console.print(to_table(columns(table), console.width, loud="BROKEN"))
        console.print(f"table       {folder / name}.csv, .json", soft_wrap=True)
        for line in broken(table) if check else clean_broken(table):
            console.print(line, soft_wrap=True)
    if check and not any(row.held for row in table):
        raise Undecided(f"no run is held to a promise: {found[0]['expect']['why_not']}")
    return 1 if clean_broken(table) or (check and broken(table)) else 0


def broken(table: Sequence[Row]) -> list[str]:
    """A line for each promise that is not kept."""
    return [
        f"{row.scenario} / {row.variant}, seed {seed}: {failure}"
        for row in table
        for seed, failures in row.failures.items()
        for failure in failures
    ]


def clean_broken(table: Sequence[Row]) -> list[str]:
    """A line for each invariant that a clean arm violates."""
    return [
        f"{row.scenario} / {row.variant} at level {row.level:g}: the clean arm violates {name} at {share.hits} seeds"
        for row in table
        for name, share in row.clean_violates.items()
    ]


def columns(table: Sequence[Row], *, full: bool = False) -> list[Column]:
    """``full``: bounds in columns of their own and all digits, for CSV."""
    named = [
        Column("scenario", tuple(row.scenario for row in table), number=False),
        Column("variant", tuple(row.variant for row in table), number=False),
        Column("level", tuple(f"{row.level:g}" for row in table)),
        Column("seeds", tuple(str(len(row.seeds)) for row in table), rank=2),
        Column("metric", tuple(row.metric for row in table), rank=1, number=False),
    ]
    if full:
        means = [
            Column(f"{name}_{part}", tuple(_exact(getattr(getattr(row, name), part)) for row in table))
            for name in ("clean", "faulty", "drop")
            for part in ("mean", "low", "high")
        ]
    else:
        means = [
            Column("clean", tuple(number(row.clean.mean) for row in table), rank=3),
            Column("faulty", tuple(number(row.faulty.mean) for row in table), rank=3),
            Column("drop [95 %]", tuple(_bounded(row.drop) for row in table)),
        ]
    return [
        *named,
        *means,
        Column("blame [95 %]", tuple(_blame(row, full) for row in table), rank=1, number=False),
        Column("violated", tuple(_shares(row.violates) for row in table), number=False),
        Column("promise", tuple(_promise(row) for row in table), number=False),
    ]


def _bounded(mean: Mean) -> str:
    bounds = "" if math.isnan(mean.low) else f" [{number(mean.low)}, {number(mean.high)}]"
    return number(mean.mean) + bounds


def _blame(row: Row, full: bool) -> str:
    """The most guilty layer over the seeds, if one is; in a file all of them, with all digits."""
    if full:
        return "; ".join(" ".join([layer, *map(_exact, share[:3])]) for layer, share in row.blame.items())
    first = next(iter(row.blame.items()), None)
    return f"{first[0]} {_bounded(first[1])}" if first and first[1].mean >= NAMED_SHARE else ""


def _exact(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


def _shares(shares: Mapping[str, Share]) -> str:
    return ", ".join(f"{name} {share.hits}/{share.n}" for name, share in shares.items()) or "none"


def _promise(row: Row) -> str:
    if row.failures:
        return f"BROKEN at {len(row.failures)} of {len(row.seeds)}"
    return "kept" if row.held == len(row.seeds) else "not held to it"
