"""The index of scenarios as Markdown: what each is about, and which public reports it reproduces.

``scenarios/README.md`` is its output. ``scenarios/anomalies.csv`` lists the reports; where one is reproduced is read
off the scenarios themselves.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from testbed.core.errors import InvalidInput
from testbed.core.scenario import Scenario
from testbed.report.columns import Column, to_markdown
from testbed.run import scenarios

HEAD = """# Scenarios

One file each; its name is the scenario's name, and it builds one frozen `SCENARIO`. Made by
`python -m testbed list --format markdown > scenarios/README.md` from those files and `anomalies.csv`; do not edit it.
"""
REPORTS = """## Public reports

What went wrong in public, and where it is played here. `kv`: at home in the model runner's caches (`docs/kv.md`);
`library`: a property of one library, to be tested there.
"""
PLACES = ("library", "kv", "not expressible")


class Anomaly(NamedTuple):
    """A public report: ``kind`` is its class, ``title`` in our words, ``reason`` why no scenario plays it (or "")."""

    id: str
    kind: str
    title: str
    report: str
    reason: str


def anomalies(folder: Path) -> list[Anomaly]:
    """The rows of ``anomalies.csv``, in order.

    Raises
    ------
    InvalidInput : the file is not there, or a row does not read as one.
    """
    path = folder / "anomalies.csv"
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(Anomaly._fields) or not re.fullmatch(r"F\d+-\d\d", line[0]):
            raise InvalidInput(f"{path}:{number}: {line} must be id (F1-01), class, title, report, reason")
    return [Anomaly(*line) for line in lines[1:]]


def played(loaded: Iterable[Scenario]) -> dict[str, list[str]]:
    """``scenario/variant`` by the id of the report that it reproduces."""
    found: dict[str, list[str]] = {}
    for scenario in loaded:
        for variant in scenario.variants:
            for anomaly in variant.anomalies:
                found.setdefault(anomaly, []).append(f"{scenario.name}/{variant.name}")
    return found


def markdown() -> str:
    """The whole file."""
    loaded = [scenarios.load(name) for name in scenarios.names()]
    parts = [HEAD, to_markdown(_index(loaded)), *(_scenario(scenario) for scenario in loaded)]
    known = anomalies(scenarios.folder())
    return "\n".join([*parts, REPORTS, *_reports(known, played(loaded))])


def _index(loaded: list[Scenario]) -> list[Column]:
    """One line a scenario."""
    return [
        Column("scenario", tuple(f"[{s.name}]({s.name.replace('-', '_')}.py)" for s in loaded), number=False),
        Column("what goes wrong", tuple(_first_line(s) for s in loaded), number=False),
        Column(
            "layers to blame",
            tuple(_list(b for v in s.variants for b in v.expect.blame.split("+")) for s in loaded),
            number=False,
        ),
        Column("variants", tuple(str(len(s.variants)) for s in loaded)),
        Column("fixes", tuple(_list(f.name for v in s.variants for f in v.fixes) for s in loaded), number=False),
    ]


def _first_line(scenario: Scenario) -> str:
    """The first line of the file's docstring."""
    return next(iter((_docstring(scenario) or scenario.summary).splitlines())).strip()


def _docstring(scenario: Scenario) -> str:
    return ast.get_docstring(ast.parse(scenarios.source(scenario.name).read_text(encoding="utf-8"))) or ""


def _scenario(scenario: Scenario) -> str:
    table = [
        Column("variant", tuple(v.name for v in scenario.variants), number=False),
        Column("what happens", tuple(v.summary for v in scenario.variants), number=False),
        Column(
            "costs",
            tuple(f"{v.expect.metric}, at least {v.expect.drop_at_least:g}" for v in scenario.variants),
            number=False,
        ),
        Column("to blame", tuple(v.expect.blame or "no layer" for v in scenario.variants), number=False),
        Column("violates", tuple(_list(v.expect.violates) for v in scenario.variants), number=False),
        Column("cured by", tuple(_list(v.expect.cured_by) for v in scenario.variants), number=False),
    ]
    return f"## {scenario.name}\n\n{scenario.summary}\n\n{to_markdown(table)}"


def _reports(known: list[Anomaly], found: Mapping[str, list[str]]) -> Iterator[str]:
    yield to_markdown(
        [
            Column("id", tuple(a.id for a in known), number=False),
            Column("class", tuple(a.kind for a in known), number=False),
            Column("what went wrong", tuple(a.title for a in known), number=False),
            Column("report", tuple(f"[{_short(a.report)}]({a.report})" for a in known), number=False),
            Column("here", tuple(", ".join(found.get(a.id, [])) or a.reason for a in known), number=False),
        ]
    )


def _short(url: str) -> str:
    """``owner/name #12`` of an issue or pull request."""
    return re.sub(r"https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/", r"\1 #", url)


def _list(names: Iterable[str]) -> str:
    return ", ".join(name for name in dict.fromkeys(names) if name) or "-"
