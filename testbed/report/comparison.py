"""Recorded runs side by side, as a table for people or in a form for papers and programs."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from rich.console import Console

from testbed.diagnose.comparison import Compared, Group, compare_sides, side
from testbed.diagnose.contrast import ALPHA, Contrast
from testbed.report.catalogue import print_json
from testbed.report.columns import Column, number, to_csv, to_latex, to_markdown, to_table

SHOWN = ("MRR@5", "nDCG@5", "faithful", "true", "answer-containment", "leak rate", "stale rate")
LABELS = ("scenario", "arm", "metric")
COUNTS = ("wins", "ties", "losses", "scored", "unscored")
LONG = (*LABELS, "a", "b", "delta", "low", "high", "effect", "detectable", "p", "p_holm", *COUNTS)
NOTES = (
    "b - a: mean over the asks that both have scored; low, high: its 95 % interval, from blocks of the stream",
    "effect: in standard deviations of single differences; sees: the smallest difference that would show (80 % power)",
    "p: of no difference, adjusted for all metrics and arms of a scenario (max-T) and for the scenarios (Holm)",
)
UNPAIRED = "not the same questions: means only, and nothing can be said of how sure their difference is"


def print_comparison(results: Path, a: str, b: str, *, across: Collection[str], form: str, console: Console) -> int:
    """Print ``b`` against ``a``; Incomparable where that would mean nothing.

    Parameters
    ----------
    a, b : runs, as ``diagnose.comparison.side`` takes them
    across : axes that may differ on purpose (see ``record.compare.AXES``)
    form : ``text``, ``markdown``, ``csv``, ``latex`` or ``json``
    """
    found = compare_sides(side(results, a), side(results, b), across)
    if form == "json":
        print_json(as_json(found))
    elif form == "csv":
        sys.stdout.write(to_csv(every(found)))
    elif form == "markdown":
        sys.stdout.write(as_markdown(found))
    elif form == "latex":
        sys.stdout.write(to_latex(detail(found, [r for g in found.groups for r in shown(g)])))
    else:
        _text(found, console)
    return 0


def as_json(found: Compared) -> dict[str, Any]:
    """NaN, a value that is unscored or unknown, becomes null."""
    groups = [
        {
            "name": group.name,
            "paired": group.paired,
            "same_digest": all(f.same_digest for f in group.found),
            "a": [str(left.folder) for left, _ in group.runs],
            "b": [str(right.folder) for _, right in group.runs],
            "only_a": list(group.found[0].only_a),
            "only_b": list(group.found[0].only_b),
            "changes": [_row_json(row) for row in group.rows],
        }
        for group in found.groups
    ]
    whole = {"groups": groups, "only_a": list(found.only_a), "only_b": list(found.only_b)}
    # One run against another is the usual case, and reads as it is.
    return whole | groups[0] if len(groups) == 1 and not found.only_a and not found.only_b else whole


def _row_json(row: Contrast) -> dict[str, Any]:
    plain = {
        "a": row.a,
        "b": row.b,
        "delta": row.interval.mean,
        "low": row.interval.low,
        "high": row.interval.high,
        "effect": row.effect,
        "detectable": row.detectable,
        "p": row.p,
        "p_holm": row.p_holm,
    }
    counts = {"wins": row.wins, "ties": row.ties, "losses": row.losses, "scored": row.scored, "unscored": row.unscored}
    return {**row.name._asdict(), **counts, **{k: None if isnan(v) else v for k, v in plain.items()}}


def every(found: Compared) -> list[Column]:
    """One row a scenario, arm and metric: every metric, full digits, empty where unknown."""
    rows = [
        {"scenario": group.name, **{k: "" if v is None else v for k, v in _row_json(row).items()}}
        for group in found.groups
        for row in group.rows
    ]
    cells = {n: tuple(repr(row[n]) if isinstance(row[n], float) else str(row[n]) for row in rows) for n in LONG}
    return [Column(n, cells[n], number=n not in LABELS) for n in LONG]


def shown(group: Group) -> list[Contrast]:
    """The main metrics, and whatever else differs."""
    return [row for row in group.rows if row.name.metric in SHOWN or differs(row)]


def differs(row: Contrast) -> bool:
    return bool(row.wins or row.losses) or (not isnan(row.interval.mean) and row.interval.mean != 0.0)


def detail(found: Compared, rows: Sequence[Contrast]) -> list[Column]:
    """One row an arm and metric: by how much it differs, and how sure that is."""
    names = [g.name for g in found.groups for row in g.rows if row in rows]
    columns = [
        Column("arm", tuple(r.name.arm for r in rows), number=False),
        Column("metric", tuple(r.name.metric for r in rows), number=False),
        Column("a", tuple(number(r.a) for r in rows), 2),
        Column("b", tuple(number(r.b) for r in rows), 1),
        Column("b - a", tuple(number(r.interval.mean, signed=True) for r in rows)),
        Column("low", tuple(number(r.interval.low, signed=True) for r in rows)),
        Column("high", tuple(number(r.interval.high, signed=True) for r in rows)),
        Column("effect", tuple(number(r.effect, 2, signed=True) for r in rows), 4),
        Column("win/tie/loss", tuple(f"{r.wins}/{r.ties}/{r.losses}" for r in rows), 3),
        Column("sees", tuple(number(r.detectable) for r in rows), 5),
        Column("p", tuple(number(r.p_holm, 4) + ("*" if r.p_holm < ALPHA else "") for r in rows)),
    ]
    if len(found.groups) > 1:
        columns.insert(0, Column("scenario", tuple(names), number=False))
    return columns


def wide(group: Group) -> list[Column]:
    """One row an arm: for each main metric the value of b and how far it is from a's; * where that is significant."""
    by_arm: dict[str, dict[str, Contrast]] = {}
    for row in group.rows:
        by_arm.setdefault(row.name.arm, {})[row.name.metric] = row
    columns = [Column("arm", tuple(by_arm), number=False)]
    for rank, metric in enumerate(SHOWN):
        if any(metric in of_arm for of_arm in by_arm.values()):
            columns.append(Column(metric, tuple(_value(row.get(metric)) for row in by_arm.values()), rank))
            columns.append(Column("b - a", tuple(_delta(row.get(metric)) for row in by_arm.values()), rank))
    return columns


def as_markdown(found: Compared) -> str:
    out = []
    for group in found.groups:
        out.append(f"### {group.name}\n\n{to_markdown(wide(group))}")
        alone = Compared((group,), (), ())
        rows = [row for row in group.rows if differs(row)]
        out.append(to_markdown(detail(alone, rows)) if rows else "nothing differs\n")
        out.append("\n".join(f"- {note}" for note in (NOTES if group.paired else (UNPAIRED,))) + "\n")
    return "\n".join(out)


def _text(found: Compared, console: Console) -> None:
    for group in found.groups:
        _group_text(group, console)
    for name, runs in (("a", found.only_a), ("b", found.only_b)):
        for run in runs:
            console.print(f"only in {name}: {run}", soft_wrap=True)


def _group_text(group: Group, console: Console) -> None:
    console.print(group.name, style="bold")
    for left, right in group.runs:
        for name, reader in zip("ab", (left, right), strict=True):
            console.print(f"{name}  {reader.folder}  {reader.digest[:16]}", soft_wrap=True)
    if all(f.same_digest for f in group.found):
        console.print("the digests are equal: the runs are the same, event for event")
    console.print()
    if len({row.name.arm for row in group.rows}) > 1 or not group.paired:
        console.print(to_table(wide(group), console.width))
    rows = [row for row in group.rows if differs(row)]
    if rows and group.paired:
        console.print(to_table(detail(Compared((group,), (), ()), rows), console.width))
    for note in NOTES if group.paired else (UNPAIRED,):
        console.print(note, style="dim")
    for name, arms in (("a", group.found[0].only_a), ("b", group.found[0].only_b)):
        if arms:
            console.print(f"only in {name}: {', '.join(arms)}")
    console.print()


def _value(row: Contrast | None) -> str:
    return "-" if row is None else number(row.b)


def _delta(row: Contrast | None) -> str:
    if row is None:
        return "-"
    return number(row.interval.mean, signed=True) + ("*" if row.p_holm < ALPHA else "")
