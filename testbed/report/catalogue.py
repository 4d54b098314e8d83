"""Plain listings: scenarios, results folders, and what ``doctor`` found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.record.runs import runs
from testbed.run import scenarios
from testbed.run.doctor import Check


def print_scenarios(console: Console, *, as_json: bool) -> int:
    """Each scenario with its variants; the first variant is what runs when none is asked for."""
    loaded = [scenarios.load(name) for name in scenarios.names()]
    if as_json:
        print_json(
            [
                {
                    "name": s.name,
                    "summary": s.summary,
                    "dataset": s.dataset,
                    "variants": [{"name": v.name, "summary": v.summary} for v in s.variants],
                }
                for s in loaded
            ]
        )
        return 0
    for scenario in loaded:
        console.print(f"{scenario.name}: {scenario.summary}", style="bold")
        table = plain_table("", "")
        for variant in scenario.variants:
            table.add_row(f"  {variant.name}", variant.summary)
        console.print(table)
    if loaded:
        console.print(f"\nmake scenario NAME={loaded[-1].name} VARIANT={loaded[-1].variants[-1].name} SEED=42")
    return 0


def print_runs(results: Path, console: Console, *, as_json: bool) -> int:
    """Every results folder, half ones too."""
    found = runs(results)
    if as_json:
        print_json([{**row._asdict(), "folder": str(row.folder)} for row in found])
        return 0
    if not found:
        console.print(f"no runs in {results}; make scenario NAME=... makes one")
        return 0
    table = plain_table("scenario", "run", "status")
    for row in found:
        table.add_row(row.scenario, row.name, row.status)
    console.print(table)
    return 0


def print_checks(checks: Sequence[Check], console: Console, *, as_json: bool) -> int:
    """Exit code 3 when the default run cannot work here."""
    missing = [check for check in checks if check.state == "missing"]
    if as_json:
        print_json([check._asdict() for check in checks])
        return 3 if missing else 0
    table = plain_table("", "", "", "")
    group = ""
    for check in checks:
        style = {"ok": "green", "missing": "bold red", "optional": "yellow"}[check.state]
        found = f"{check.found}; {check.advice}" if check.advice else check.found
        table.add_row(check.group if check.group != group else "", check.name, Text(check.state, style), found)
        group = check.group
    console.print(table)
    end = "the default run works here" if not missing else f"{len(missing)} missing: the default run does not work here"
    console.print(f"\n{end}")
    return 3 if missing else 0


def plain_table(*headings: str) -> Table:
    """Columns, no lines."""
    table = Table(box=None, pad_edge=False, show_header=any(headings), header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def print_json(value: Any) -> None:
    """JSON as every ``--json`` prints it: keys sorted, no colours, nothing else on standard output."""
    print(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False))
