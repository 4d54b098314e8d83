"""Two recorded runs side by side."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from rich.console import Console

from testbed.record.compare import Change, Comparison, compare
from testbed.record.folder import RunReader
from testbed.report.catalogue import print_json
from testbed.report.columns import Column, number, to_csv, to_markdown, to_table

SHOWN = ("MRR@5", "nDCG@5", "faithful", "true", "answer-containment", "leak rate", "stale rate")


def print_comparison(a: Path, b: Path, *, across: Collection[str], form: str, console: Console) -> int:
    """Print ``b`` against ``a``; Incomparable where that would mean nothing.

    Parameters
    ----------
    across : axes that may differ on purpose (see ``record.compare.AXES``)
    form : ``text``, ``markdown``, ``csv`` or ``json``
    """
    readers = RunReader(a), RunReader(b)
    found = compare(*readers, across)
    if form == "json":
        print_json(as_json(readers, found))
    elif form == "csv":
        sys.stdout.write(to_csv(long(found)))
    elif form == "markdown":
        sys.stdout.write(to_markdown(wide(found)))
    else:
        _text(readers, found, console)
    return 0


def as_json(readers: tuple[RunReader, RunReader], found: Comparison) -> dict[str, object]:
    """NaN, a value that is unscored, becomes null."""
    return {
        "a": str(readers[0].folder),
        "b": str(readers[1].folder),
        "same_digest": found.same_digest,
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "changes": [
            {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in change._asdict().items()}
            for change in found.changes
        ],
    }


def long(found: Comparison) -> list[Column]:
    """One row an arm and metric: every metric, full digits."""
    rows = [[c.arm, c.metric, *map(repr, (c.a, c.b, c.delta))] for c in found.changes]
    names = ("arm", "metric", "a", "b", "delta")
    return [Column(name, tuple(row[i] for row in rows), number=i > 1) for i, name in enumerate(names)]


def wide(found: Comparison) -> list[Column]:
    """One row an arm: for each main metric the value of b and how far it is from a's."""
    by_arm: dict[str, dict[str, Change]] = {}
    for change in found.changes:
        by_arm.setdefault(change.arm, {})[change.metric] = change
    columns = [Column("arm", tuple(by_arm), number=False)]
    for rank, metric in enumerate(SHOWN):
        if any(metric in of_arm for of_arm in by_arm.values()):
            columns.append(Column(metric, tuple(_cell(row, metric, "b") for row in by_arm.values()), rank))
            columns.append(Column("b - a", tuple(_cell(row, metric, "delta") for row in by_arm.values()), rank))
    return columns


def _text(readers: tuple[RunReader, RunReader], found: Comparison, console: Console) -> None:
    for name, reader in zip("ab", readers, strict=True):
        console.print(f"{name}  {reader.folder}  {reader.digest[:16]}")
    console.print("the digests are equal: the runs are the same, event for event" if found.same_digest else "")
    console.print(to_table(wide(found), console.width))
    for name, arms in (("a", found.only_a), ("b", found.only_b)):
        if arms:
            console.print(f"only in {name}: {', '.join(arms)}")


def _cell(row: Mapping[str, Change], metric: str, field: str) -> str:
    change = row.get(metric)
    return "-" if change is None else number(getattr(change, field), signed=field == "delta")
