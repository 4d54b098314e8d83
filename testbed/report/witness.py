"""A violation by the least that shows it, on a terminal: six lines and what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from testbed.diagnose.witness import Case, Shown
from testbed.record import shrunk
from testbed.record.folder import RunReader
from testbed.report.catalogue import print_json
from testbed.run.arms import Progress
from testbed.run.replay import Player

MAX_LINES = 6
INDENT = 2
MARGIN = 12  # as below the table of a run


def shown(folder: Path, number: int, progress: Progress = lambda what, done, of: None) -> Shown:
    """Violation ``number`` of a recorded run, found again by replay."""
    case = Case(folder)
    with Player(progress=progress) as player:
        return case.shown(number, player)


def keep(folder: Path, shown: Shown) -> Path:
    """Leave what was found in the run's folder, where its page looks for it."""
    return shrunk.keep(RunReader(folder), to_json(shown))


def print_shown(shown: Shown, console: Console, *, as_json: bool) -> int:
    """Print the story of a violation that was found again by replay."""
    if as_json:
        print_json(to_json(shown))
        return 0
    console.print(
        f"{shown.scenario} / {shown.variant}: {shown.invariant}, violation {shown.number} of {shown.of}", style="bold"
    )
    for line in lines(shown.story, console.width):
        console.print(Text(line), soft_wrap=True)
    found = to_json(shown)
    _aside("replayed", counted(found), console)
    if shown.notes:
        _aside("note", since(found), console)
    return 0


def counted(found: Mapping[str, Any]) -> str:
    """How little shows it, of how much; ``found`` as ``to_json`` gives it."""
    ops, docs = (f"{len(found[name])} of {found[f'of_{name}']}" for name in ("ops", "docs"))
    least = "none of the operations can be left out" if found["minimal"] else "perhaps not the fewest"
    return f"{ops} operations and {docs} documents show it; {least} ({found['replays']} replays)"


def since(found: Mapping[str, Any]) -> str:
    """What is no longer as it was; "" where all of it is."""
    return f"since the run was recorded: {'; '.join(found['notes'])}" if found["notes"] else ""


def _aside(name: str, text: str, console: Console) -> None:
    for place, line in enumerate(Text(text).wrap(console, max(20, console.width - MARGIN))):
        console.print(("" if place else name).ljust(MARGIN) + line.plain.rstrip(), style="dim")


def lines(story: tuple[str, ...], width: int) -> list[str]:
    """A line for each step, cut where it is too long; the end gets the lines that are left."""
    steps, ending = story[:-1], story[-1]
    out = [_cut(step, width) for step in steps]
    wrapped = [str(line) for line in Text(ending).wrap(Console(width=width), max(20, width - INDENT))]
    room = max(1, MAX_LINES - len(steps))
    if len(wrapped) > room:
        wrapped = [*wrapped[: room - 1], _cut(" ".join(w.strip() for w in wrapped[room - 1 :]), width - INDENT)]
    return out + [line.rstrip() if not place else " " * INDENT + line.rstrip() for place, line in enumerate(wrapped)]


def to_json(shown: Shown) -> dict[str, Any]:
    """Which operations, documents and story: what a page or a gate needs, as ``record/shrunk.py`` keeps it."""
    load = [doc.id for op in shown.script.ops if isinstance(op.item, tuple) for doc in op.item]
    return {
        "scenario": shown.scenario,
        "variant": shown.variant,
        "invariant": shown.invariant,
        "violation": shown.number,
        "violations": shown.of,
        "ops": [op.index for op in shown.script.ops],
        "of_ops": shown.of_ops,
        "docs": load,
        "of_docs": shown.of_docs,
        "minimal": shown.minimal,
        "replays": shown.replays,
        "notes": list(shown.notes),
        "story": list(shown.story),
        "witness": asdict(shown.witness),
    }


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
