"""The pages: one run, two runs side by side, all runs. Each is one file that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from testbed.core.errors import HarnessError
from testbed.metrics.scores import is_lower_better
from testbed.record import durable, shrunk
from testbed.record.compare import Change, Comparison, compare
from testbed.record.folder import WHOLE, RunReader
from testbed.record.runs import runs
from testbed.report import arms, comparison, drawing, figures, pages, questions, verdict, witness
from testbed.report.columns import Column

NAME = "report.html"
INDEX = "index.html"
# What of a manifest says when and where a run was made, not what it was: it stands in one place of the page.
OF_THE_MOMENT = ("started", "finished", "argv", "host")
LEFT_OUT = (*OF_THE_MOMENT, "files")  # the files' digests hold those of the timings
TOLD = 1  # the violation that the run itself tells is the first (``diagnose.witness.violations``)
GROUPS = (
    ("clean+", "what a fix costs when nothing is wrong"),
    ("faulty+", "the same fault with a fix"),
    ("faulty-without:", "without one layer: is the drop gone?"),
    ("", "without and with the fault"),
)


class ArmRow(NamedTuple):
    """A row of the arms table: a cell a column, and whether it is bad news."""

    name: str
    cells: tuple[tuple[str, bool], ...]


class ArmGroup(NamedTuple):
    title: str
    rows: tuple[ArmRow, ...]


class Short(NamedTuple):
    """A violation by the least that shows it, found by replay. ``steps``: (op, what was done), before ``ending``."""

    number: int
    of: int
    invariant: str
    steps: tuple[tuple[str, str], ...]
    ending: str
    counted: str
    since: str


class Entry(NamedTuple):
    """One run of the index; ``summary`` is None for a run that cannot be read, ``why`` then says why."""

    scenario: str
    name: str
    href: str
    summary: Mapping[str, Any] | None
    verdict: verdict.Verdict | None
    why: str


def write_report(folder: Path, out: Path | None = None, *, most: int = questions.MOST) -> Path:
    """Make the page of a recorded run, in its folder unless ``out`` says otherwise; its path."""
    path = out or folder / NAME
    durable.write_bytes(path, report(RunReader(folder), most=most))
    return path


def report(reader: RunReader, *, most: int = questions.MOST) -> bytes:
    """The page of a run. The same trace gives the same bytes, the section ``clock`` apart."""
    summary = reader.summary
    story = summary["witness"]
    sample = questions.questions(reader, always=story["ops"] if story else (), most=most)
    heat, spread = figures.heat(summary), figures.spread(summary)
    shares, ticks = drawing.whiskers(figures.blame(summary))
    parts, part_ticks = drawing.whiskers(figures.shapley(summary), (summary.get("shapley") or {}).get("drop") or 1.0)
    points = figures.plane(summary)
    shorts = {found["violation"]: _short(found) for found in shrunk.kept(reader)}
    return pages.render(
        "report.html",
        summary=summary,
        verdict=verdict.verdict(summary),
        tiles=verdict.tiles(summary),
        headings=[c for c in _columns(summary) if c.name != "arm"],
        groups=arm_groups(summary),
        quadrants={arm: summary["arms"].get(arm, {}).get("quadrants") for arm in ("clean", "faulty")},
        violations=verdict.violations(summary),
        heat=heat,
        heat_rows=drawing.rows(heat) if heat else (),
        lost=drawing.steps(heat.lost) if heat else None,
        less_is_better=is_lower_better(summary["metric"]),
        spread=spread,
        columns=drawing.columns(spread) if spread else (),
        poisoned=drawing.steps(spread.poisoned) if spread else None,
        outcomes=figures.OUTCOMES,
        shares=shares,
        share_ticks=ticks,
        parts=parts,
        few=verdict.few(summary) if all(b["share"] is None for b in summary["blame"]) else "",
        repair=verdict.repair(summary),
        part_ticks=part_ticks,
        published=figures.published(summary),
        points=points,
        plane=drawing.plane(points),
        hits_lost={f["fix"]: verdict.hits_lost(summary, f"faulty+{f['fix']}") for f in summary["fixes"]},
        story=_story(summary, sample),
        short=shorts.get(TOLD),
        other_shorts=[found for number, found in shorts.items() if number != TOLD],
        sample=sample,
        layer_name=verdict.layer_name,
        manifest={k: v for k, v in reader.manifest.items() if k not in LEFT_OUT},
        moment={name: reader.manifest.get(name) for name in OF_THE_MOMENT},
        p95={name: summary["arms"][name].get("p95_ms") for name in summary["order"]},
        folder=reader.folder.resolve().name,
    )


def write_comparison(a: Path, b: Path, *, across: Collection[str], out: Path | None, results: Path) -> Path:
    """Make the page of two runs side by side; Incomparable where that would mean nothing."""
    readers = RunReader(a), RunReader(b)
    found = compare(*readers, across)
    path = out or results / f"compare-{readers[0].digest[:8]}-{readers[1].digest[:8]}.html"
    durable.write_bytes(path, comparison_page(readers, found))
    return path


def comparison_page(readers: tuple[RunReader, RunReader], found: Comparison) -> bytes:
    by_arm: dict[str, dict[str, Change]] = {}
    for change in found.changes:
        by_arm.setdefault(change.arm, {})[change.metric] = change
    shown = [m for m in comparison.SHOWN if any(m in row for row in by_arm.values())]
    return pages.render(
        "comparison.html",
        sides=[
            {"label": label, "reader": r, "summary": r.summary, "verdict": verdict.verdict(r.summary)}
            for label, r in zip("ab", readers, strict=True)
        ],
        found=found,
        shown=shown,
        by_arm=by_arm,
        most=_most([row[m] for row in by_arm.values() for m in shown if m in row]),
        metric=(metric := readers[0].summary["metric"]),
        pairs={name: _pair(row.get(metric)) for name, row in by_arm.items()},
        is_lower_better=is_lower_better,
    )


def write_index(results: Path, out: Path | None = None) -> Path:
    """Make the page that lists every run in ``results``, half ones and broken ones too."""
    path = out or results / INDEX
    entries = [_entry(row.scenario, row.name, row.status, row.folder, path.parent) for row in runs(results)]
    by_scenario: dict[str, list[Entry]] = {}
    for entry in reversed(entries):
        by_scenario.setdefault(entry.scenario, []).append(entry)
    durable.write_bytes(path, pages.render("index.html", scenarios=dict(sorted(by_scenario.items())), n=len(entries)))
    return path


def arm_groups(summary: Mapping[str, Any]) -> list[ArmGroup]:
    """The rows of the arms table by what they answer, in the order in which they were run."""
    columns = _columns(summary)
    found: dict[str, list[ArmRow]] = {}
    names = next(c.cells for c in arms.columns(summary) if c.name == "arm")
    for place, name in enumerate(names):
        title = next(title for prefix, title in GROUPS if name.startswith(prefix))
        cells = tuple(((c.short or c.cells)[place], "VIOLATED" in c.cells[place]) for c in columns if c.name != "arm")
        found.setdefault(title, []).append(ArmRow(name, cells))
    return [ArmGroup(title, tuple(rows)) for title, rows in found.items()]


def _columns(summary: Mapping[str, Any]) -> list[Column]:
    """Without the latencies: they are of one machine at one time, and stand apart."""
    return [c for c in arms.columns(summary) if c.name != "p95 ms"]


def _story(summary: Mapping[str, Any], sample: questions.Sample) -> Mapping[str, Any] | None:
    """The witness, with what is known of each of its operations."""
    if not summary["witness"]:
        return None
    by_op = {row.op: row for row in sample.rows}
    return {**summary["witness"], "steps": [(op, by_op.get(op)) for op in summary["witness"]["ops"]]}


def _short(found: Mapping[str, Any]) -> Short:
    steps = tuple(_step(line) for line in found["story"][:-1])
    ending = found["story"][-1]
    of = (found["violation"], found["violations"], found["invariant"])
    return Short(*of, steps, ending, witness.counted(found), witness.since(found))


def _step(line: str) -> tuple[str, str]:
    """``op 4: tenant a asked ...`` in its two parts; ``ops 4 to 9`` likewise."""
    at, colon, done = line.partition(": ")
    return (at, done) if colon and at.startswith("op") else ("", line)


def _most(changes: Sequence[Change]) -> Change | None:
    """The first of the changes that are largest; None where nothing moved."""
    moved = [change for change in changes if abs(change.delta) > 0.0005]  # NaN is not
    return max(moved, key=lambda change: abs(change.delta), default=None)


def _pair(change: Change | None) -> Mapping[str, Any] | None:
    """Both values of a metric in [0, 1] and where they stand on its axis."""
    if change is None or not (0.0 <= change.a <= 1.0 and 0.0 <= change.b <= 1.0):
        return None
    return {"a": change.a, "b": change.b, "x_a": f"{2 + 96 * change.a:.2f}%", "x_b": f"{2 + 96 * change.b:.2f}%"}


def _entry(scenario: str, name: str, status: str, folder: Path, home: Path) -> Entry:
    if status != WHOLE:
        return Entry(scenario, name, "", None, None, status)
    page = folder / NAME
    href = quote(os.path.relpath(page, home).replace(os.sep, "/")) if page.is_file() else ""
    try:
        summary = RunReader(folder).summary
        return Entry(scenario, name, href, summary, verdict.verdict(summary), "")
    except HarnessError as error:
        return Entry(scenario, name, href, None, None, str(error))
    except (KeyError, TypeError) as error:  # a summary of another version
        return Entry(scenario, name, href, None, None, f"its summary lacks {error}")
