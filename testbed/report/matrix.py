"""The fix matrix on a terminal, as CSV, JSON and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from rich.console import Console

from testbed.core import digest
from testbed.core.scenario import Variant
from testbed.diagnose.judge import plain
from testbed.diagnose.matrix import Meeting, arms, can_meet, meetings
from testbed.record import durable
from testbed.report.catalogue import print_json
from testbed.report.columns import Column, number, percent, to_csv, to_table
from testbed.report.sweep import outcomes
from testbed.run import scenarios
from testbed.run.arms import Progress
from testbed.run.settings import Settings

UNREMARKABLE = ("nothing", "unsupported", "could not tell", "apart")
NOTE = (
    "residual: metric below clean, with the fault and the fix; recovered: share of the drop that is gone; on a clean "
    "stack: metric, hit rate, p95 in ms, and KiB more of cache entries in the end. * the scenario's own fix."
)


def play(
    variants: Sequence[tuple[str, Variant]],
    seed: int,
    queries: int,
    folder: Path,
    progress: Progress,
    *,
    every: bool = False,
    stack: str = "reference",
    store: str = "faiss",
) -> list[Meeting]:
    """Run every fix that any scenario knows against each of the variants, and judge what each does.

    A variant's own fix of a name stands for every other of that name. Unless ``every`` is set, a fix that touches no
    part of the stack that the fault touches is not run.
    """
    known = scenarios.fixes()
    cells = []
    for name, variant in variants:
        mine = {**known, **{fix.name: fix for fix in variant.fixes}}
        met = [fix.name for fix in mine.values() if every or can_meet(fix, variant)]
        one = Settings(name, variant=variant.name, seed=seed, queries=queries, arms=arms(met))
        cells.append(replace(one, stack=stack, store=store))
    found = outcomes(cells, folder, progress)
    return [
        m for (_, variant), outcome in zip(variants, found, strict=True) for m in meetings(outcome, variant, [*known])
    ]


def print_matrix(
    found: Sequence[Meeting],
    seed: int,
    folder: Path,
    console: Console,
    *,
    as_json: bool = False,
    left_out: Sequence[str] = (),
    played_on: str = "",
) -> int:
    """Print what is worth a line, and write all of it below ``folder``.

    ``left_out`` are scenarios not played; ``played_on`` goes into the names of the files (``run.cells.played_on``).
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = plain([m.to_json() for m in found])
    stem = folder / f"matrix-s{seed}{played_on}"
    durable.write_bytes(stem.with_suffix(".csv"), to_csv(columns(found, full=True)).encode())
    durable.write_bytes(stem.with_suffix(".json"), digest.canonical(told) + b"\n")
    durable.write_bytes(stem.with_suffix(".svg"), picture(found).encode())
    if as_json:
        print_json(told)
        return 0
    shown = [m for m in found if m.own or m.opens or m.effect not in UNREMARKABLE]
    console.print(to_table(columns(shown), console.width, loud="OPENS"))
    console.print(NOTE, style="dim")
    others = len(found) - len(shown)
    console.print(
        f"\n{others} of {len(found)} pairs are not shown: the fix does nothing there, is unsupported, or was not run"
    )
    if left_out:
        named, one = ", ".join(left_out), left_out[0]
        console.print(
            f"left out    {named}: minutes each; `testbed matrix {one}` plays one of them, `testbed matrix --full` all",
            soft_wrap=True,
        )
    console.print(f"table       {stem}.csv, .json; picture {stem}.svg", soft_wrap=True)
    return 0


def columns(found: Sequence[Meeting], *, full: bool = False) -> list[Column]:
    def numbers(name: str, rank: int = 0) -> Column:
        values = [getattr(m, name) for m in found]
        cells = tuple("" if math.isnan(v) else repr(v) for v in values) if full else tuple(map(number, values))
        return Column(name if full else SHORT.get(name, name), cells, rank)

    mark = [m.fix + ("*" if m.own and not full else "") for m in found]
    table = [
        Column("variant", tuple(f"{m.scenario}/{m.variant}" for m in found), number=False),
        Column("fix", tuple(mark), number=False),
        Column("effect", tuple(m.effect for m in found), rank=3, number=False),
        numbers("recovered") if full else Column("recovered", tuple(percent(m.recovered) for m in found)),
        numbers("residual"),
        numbers("metric_lost", rank=1),
        numbers("hits_lost"),
        numbers("hits_lost_faulty", rank=4),
        numbers("p95_ms_added", rank=5),
        numbers("held_bytes_added") if full else Column("KiB", tuple(kibibytes(m) for m in found), rank=5),
        Column("still", tuple(", ".join(f"{n} {k}" for n, k in (m.still or {}).items()) for m in found), 2, False),
    ]
    if full:
        return [
            *table,
            Column("opens", tuple(", ".join(m.opens) for m in found), number=False),
            Column("own", tuple("yes" if m.own else "no" for m in found), number=False),
            Column("why", tuple(m.why for m in found), number=False),
        ]
    return [*table, Column("opens", tuple(f"OPENS {', '.join(m.opens)}" if m.opens else "" for m in found), 0, False)]


def kibibytes(met: Meeting) -> str:
    return "" if math.isnan(met.held_bytes_added) else f"{met.held_bytes_added / 1024:+.1f}"


SHORT = {"metric_lost": "metric lost", "hits_lost": "hits lost", "hits_lost_faulty": "faulty", "p95_ms_added": "ms"}

# -- the picture -------------------------------------------------------------------------------------------------------

CELL, LEFT, TOP = 18, 250, 190  # pixels
COLOURS = {
    "apart": "#f4f4f4",
    "unsupported": "#d8d8d8",
    "could not tell": "#ffffff",
    "harms": "#c05746",
    "nothing": "#f7f3e8",
}


def picture(found: Sequence[Meeting]) -> str:
    """A square for each pair: green as far as the fix cures, red where it harms, grey where it cannot run.

    A cross is a violation that the fix opens, a frame the scenario's own fix.
    """
    rows = list(dict.fromkeys(f"{m.scenario}/{m.variant}" for m in found))
    fixes = list(dict.fromkeys(m.fix for m in found))
    width, height = LEFT + CELL * len(fixes) + 20, TOP + CELL * len(rows) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, fix in enumerate(fixes):
        x, y = LEFT + CELL * i + 12, TOP - 6
        out.append(f'<text x="{x}" y="{y}" transform="rotate(-60 {x} {y})">{escape(fix)}</text>')
    for i, row in enumerate(rows):
        out.append(f'<text x="{LEFT - 6}" y="{TOP + CELL * i + 13}" text-anchor="end">{escape(row)}</text>')
    for m in found:
        out += _square(m, LEFT + CELL * fixes.index(m.fix), TOP + CELL * rows.index(f"{m.scenario}/{m.variant}"))
    return "\n".join([*out, "</svg>\n"])


def _square(m: Meeting, x: int, y: int) -> list[str]:
    told = f"{m.scenario}/{m.variant} + {m.fix}: {m.effect}"
    if not math.isnan(m.recovered):
        told += f", recovers {percent(m.recovered)}"
    if m.opens:
        told += f", opens {', '.join(m.opens)}"
    side = CELL - 2
    frame = ' stroke="black" stroke-width="1.5"' if m.own else ' stroke="#cccccc" stroke-width="0.5"'
    box = f'<rect x="{x}" y="{y}" width="{side}" height="{side}" fill="{_fill(m)}"{frame}/>'
    out = [f"<g><title>{escape(told)}</title>{box}"]
    if m.opens:
        out.append(f'<path d="M{x + 4} {y + 4}l8 8m0 -8l-8 8" stroke="#8b0000" stroke-width="2"/>')
    return [*out, "</g>"]


def _fill(m: Meeting) -> str:
    if m.effect in COLOURS:
        return COLOURS[m.effect]
    share = min(1.0, max(0.0, m.recovered))
    light, dark = (223, 240, 216), (46, 125, 50)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(light, dark, strict=True))
