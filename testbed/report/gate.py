"""What a gate found: for people on a terminal, for CI as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import isnan
from typing import Any

from rich.console import Console
from rich.text import Text

from testbed.diagnose.findings import Decision, Finding, Judged
from testbed.diagnose.rerun import Recorded
from testbed.report.catalogue import print_json
from testbed.report.columns import Column, number, to_table

MARGIN = 12
WORDS = {"passed": "passed", "failed": "FAILED", "unknown": "could not tell"}
SAYS = {
    0: "passed",
    1: "FAILED: something is worse than the baseline",
    3: "FAILED: a service or this machine, not the stack",
    4: "could not tell; this is not a pass",
}


def print_decision(found: Decision, console: Console, *, as_json: bool = False) -> int:
    """Print the whole of a gate; its exit code."""
    if as_json:
        print_json(as_value(found))
        return found.code
    if found.cells:
        console.print(to_table(columns(found), console.width, loud=WORDS["failed"]))
    for judged, finding in told(found):
        console.print()
        for name, text in lines(judged, finding):
            paragraph(name, text, console)
    console.print()
    if found.without:
        paragraph("not gated", f"{', '.join(found.without)} (no baseline)", console)
    paragraph("gate", SAYS[found.code], console)
    return found.code


def columns(found: Decision) -> list[Column]:
    """One row a cell."""
    cells = found.cells
    return [
        Column("scenario", tuple(c.scenario for c in cells), number=False),
        Column("variant", tuple(c.cell.variant for c in cells), number=False),
        Column("seed", tuple(str(c.cell.seed) for c in cells)),
        Column("questions", tuple(str(c.cell.queries) for c in cells), 2),
        Column("sees a drop of", tuple(number(c.sees) for c in cells), 1),
        Column("trace", tuple(map(trace, cells)), 3, number=False),
        Column("digest", tuple(c.digest[:8] or "-" for c in cells), 4, number=False),
        Column("", tuple(WORDS[c.outcome()] for c in cells), number=False),
    ]


def trace(judged: Judged) -> str:
    if not judged.pairs:
        return "-"
    return "the baseline's" if judged.same_trace else "another"


def told(found: Decision) -> Iterator[tuple[Judged | None, Finding]]:
    """Findings in the order in which they matter."""
    yield from found.findings("failed")
    yield from found.findings("unknown")
    yield from found.findings("noted")


def lines(judged: Judged | None, finding: Finding) -> Iterator[tuple[str, str]]:
    """A finding as named paragraphs: where, what, the first case."""
    word = {"failed": "FAILED", "unknown": "unknown", "noted": "note"}[finding.outcome]
    yield word, f"{where(judged, finding)}: {finding.rule}" if judged or finding.arm else finding.rule
    yield "", finding.text
    if finding.layer:
        yield "layer", finding.layer
    if finding.witness:
        yield "witness", finding.witness


def where(judged: Judged | None, finding: Finding) -> str:
    """Scenario, variant, seed and arm, as far as they are known."""
    cell = f"{judged.scenario} / {judged.cell.variant}, seed {judged.cell.seed}" if judged else ""
    return ", ".join(word for word in (cell, finding.arm) if word)


def paragraph(name: str, text: str, console: Console) -> None:
    """A named paragraph with a hanging indent; what is to be copied is never cut in the middle of a word."""
    style = "bold red" if name == "FAILED" else "bold"
    wrapped = Text(text).wrap(console, max(20, console.width - MARGIN))
    for place, line in enumerate(wrapped):
        console.print(Text.assemble((("" if place else name).ljust(MARGIN), style), line.plain.rstrip()))


def as_value(found: Decision) -> dict[str, Any]:
    """All of it as a JSON value; NaN is null."""
    return {
        "exit_code": found.code,
        "without_baseline": list(found.without),
        "cells": [
            {
                "scenario": c.scenario,
                "variant": c.cell.variant,
                "seed": c.cell.seed,
                "outcome": c.outcome(),
                "digest": c.digest,
                "baseline_digest": c.cell.digest,
                "same_trace": c.same_trace,
                "sees": known(c.sees),
                "folder": "" if c.folder is None else str(c.folder),
                "findings": [finding_value(f) for f in c.findings],
            }
            for c in found.cells
        ],
        "others": [finding_value(f) for f in found.others],
    }


def finding_value(finding: Finding) -> dict[str, Any]:
    value = {name: getattr(finding, name) for name in ("rule", "outcome", "arm", "text", "layer", "metric", "witness")}
    row = finding.contrast
    if row is not None:
        value |= {
            "delta": row.interval.mean,
            "low": row.interval.low,
            "high": row.interval.high,
            "p": known(row.p_holm),
        }
    return value


def known(value: float) -> float | None:
    return None if isnan(value) else value


def print_recorded(found: Recorded, console: Console, *, as_json: bool = False) -> int:
    """What became of a baseline; exit code 1 when it was not written because something is worse, 4 when it is small."""
    code = 0 if found.path else 4 if found.too_small else 1
    if as_json:
        value = {"path": str(found.path or ""), "worse": list(found.worse), "cell": asdict(found.cell)}
        print_json({**value, "exit_code": code, "changed": moved(found)})
        return code
    for arm, metric, then, now in moved(found):
        paragraph("moved", f"{arm}: {metric} {number(then)} -> {number(now)}", console)
    for text in found.worse:
        paragraph("accepted" if found.path else "REFUSED", text, console)
    if found.path is None:
        way = "to record it all the same, say why: ACCEPT='...' (--accept); the reason is kept in the file"
        paragraph("", f"the baseline is as it was; {way}", console)
        return code
    same = found.before is not None and found.before.digest == found.cell.digest
    told = "as it was, event for event" if same else "commit it, by itself, and say which change moved it"
    console.print(Text.assemble(("baseline".ljust(MARGIN), "bold"), f"{found.path}"), soft_wrap=True)
    paragraph("", told, console)
    return code


def moved(found: Recorded) -> list[tuple[str, str, float | None, float | None]]:
    """Every mean that is another than in the older baseline."""
    if found.before is None:
        return []
    out = []
    for arm, record in found.cell.arms.items():
        then: Mapping[str, float | None] = found.before.arms[arm].means if arm in found.before.arms else {}
        out += [(arm, m, then.get(m), now) for m, now in record.means.items() if then.get(m) != now]
    return out
