"""How often each attribution method is right, as a table, as CSV and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from testbed.diagnose import trials
from testbed.diagnose.attribution import Accuracy, Share, accuracy
from testbed.diagnose.judge import plain
from testbed.diagnose.summary import Summarize
from testbed.record import durable, manifest
from testbed.report.columns import Column, number, to_csv, to_table
from testbed.run import sweep
from testbed.run.arms import Progress
from testbed.run.sweep import Sweep

KINDS = (("one layer", 1), ("two layers", 2))


def print_attribution(
    folder: Path, tier: trials.Tier, console: Console, progress: Progress, *, only: Sequence[str] = ()
) -> int:
    """Run what is missing of a tier, print the table, write it beside."""
    cells = trials.cells(tier, only)
    workers = sweep.n_workers(len(cells))
    done = Sweep(folder, Summarize(), trials.MEASURE, n_workers=workers).run(cells, progress)
    values = [d.value for d in done]
    rows = measured(values)
    console.print(
        f"attribution: {len(values)} runs of {tier.queries} questions "
        f"({tier.name} tier{', ' + ', '.join(only) if only else ''})",
        style="bold",
    )
    console.print(to_table(columns(rows), console.width))
    for name, text in calibration(rows):
        console.print(f"{name:<18} {text}")
    told = {
        "tier": tier._asdict(),
        "only": list(only),
        "rows": [{"faults": kind, **asdict(row)} for kind, row in rows],
        "runs": values,
        "packages": manifest.packages(),
        "host": manifest.host(),
    }
    durable.write_bytes(folder / f"{tier.name}.json", trials.as_json(plain(told)).encode())
    durable.write_bytes(folder / f"{tier.name}.csv", to_csv(columns(rows)).encode())
    console.print(
        f"written to {folder / tier.name}.json and .csv; finished runs are kept in {folder / 'cells'}", style="dim"
    )
    return 0


def measured(values: list[dict[str, Any]]) -> list[tuple[str, Accuracy]]:
    """A row for each kind of fault, its level and method; the clean runs belong to every kind."""
    clean, out = [v for v in values if not v["injected"]], []
    for kind, n_layers in KINDS:
        faulty = [v for v in values if len(v["injected"]) == n_layers]
        for level in sorted({v["level"] for v in faulty}, reverse=True):
            some = [v for v in faulty if v["level"] == level]
            methods = {m for v in some for m in v["said"]}
            cases = [case for case in trials.cases([*some, *clean]) if case.method in methods]
            out += [(f"{kind}, level {level:g}", row) for row in accuracy(cases)]
    return out


def columns(rows: list[tuple[str, Accuracy]]) -> list[Column]:
    return [
        Column("faults in", tuple(kind for kind, _ in rows), number=False),
        Column("method", tuple(row.method for _, row in rows), number=False),
        Column("runs", tuple(str(row.faulty_runs) for _, row in rows)),
        Column("named rightly", tuple(_share(row.named) for _, row in rows)),
        Column("wrongly", tuple(_share(row.misnamed) for _, row in rows)),
        Column("clean runs", tuple(str(row.clean_runs) for _, row in rows)),
        Column("blamed falsely", tuple(_share(row.false_blame) for _, row in rows)),
        Column("Brier", tuple(number(row.brier) for _, row in rows)),
    ]


def calibration(rows: list[tuple[str, Accuracy]]) -> list[tuple[str, str]]:
    """Of each method: what it said of its confidence, beside how often it was then right."""
    out = []
    for kind, row in rows:
        bins = [f"{b.said:.2f} said, {b.right:.2f} right ({b.runs})" for b in row.calibration]
        if bins and kind == rows[0][0]:
            out.append((row.method, "confidence " + "; ".join(bins)))
    return out


def _share(share: Share) -> str:
    if math.isnan(share.share):
        return "-"
    return f"{share.share:.3f} [{share.low:.3f}, {share.high:.3f}]"
