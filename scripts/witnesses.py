"""Whether every violation has a witness of a few operations that replays: measured over the scenarios.

    python scripts/witnesses.py                          # the first variant of each scenario, 60 questions
    python scripts/witnesses.py --variants all --queries 120
    python scripts/witnesses.py tenant-leak version-skew/tokenizer --every all

Plays the clean and the faulty arm, takes the first violation of every invariant that the faulty arm breaks (--every
ends: the first and the last, all: each one), shrinks it, plays the witness once more on a server of its own, and runs
the stand-alone file of the first in an empty folder with nothing but the package. Exit code 1 where a witness has more
than MAX_OPS operations, is not minimal, does not replay, or its file does not exit 1 with the violated invariant.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.core.errors import HarnessError, InvalidInput
from testbed.core.history import History
from testbed.diagnose.summary import Summarize
from testbed.diagnose.witness import MAX_OPS, Case, Shown, invariant_named
from testbed.report.repro import source
from testbed.run import replay, scenarios
from testbed.run.execute import run_scenario
from testbed.run.replay import Player
from testbed.run.settings import Settings

PACKAGE = Path(replay.__file__).parents[1]
ALONE_S = 300
HEAD = (
    "scenario", "invariant", "variants", "violations", "ops to the read", "ops of the witness", "documents", "replays",
    "file exits 1", "s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one violation.

    Parameters
    ----------
    number, of : which violation of the run
    ops_before : operations of the run up to the read, the load among them
    ops, docs : operations and documents of the witness; 0 where none was found
    again : the witness, played once more, shows it
    exits : exit code of the stand-alone file, or why there is none; "" where it was not asked for
    why : what is not as it should be; "" nothing
    """

    scenario: str
    variant: str
    invariant: str
    number: int = 0
    of: int = 0
    ops_before: int = 0
    ops: int = 0
    docs: int = 0
    again: bool = False
    exits: str = ""
    seconds: float = 0.0
    why: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="SCENARIO[/VARIANT]", help="only these; all scenarios by default")
    parser.add_argument("--variants", choices=("first", "all"), default="first")
    parser.add_argument("--every", choices=("first", "ends", "all"), default="first", help="of each invariant")
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=Path, help="a Markdown table, written anew after every variant")
    asked = parser.parse_args(argv)
    rows: list[Row] = []
    for scenario, variant in chosen(asked.names, every_variant=asked.variants == "all"):
        settings = Settings(scenario, variant, queries=asked.queries, seed=asked.seed, arms=("clean", "faulty"))
        for row in rows_of(settings, asked.every):
            rows.append(row)
            print(line(row), flush=True)
        if asked.out is not None:
            asked.out.write_text(f"{table(rows)}\n{closing(rows)}\n", encoding="utf-8")
    print(closing(rows))
    return 1 if any(row.why for row in rows) else 0


def chosen(names: Sequence[str], *, every_variant: bool) -> list[tuple[str, str]]:
    """Scenario and variant; a name without a variant is its first, or each of them."""
    out = []
    for name in names or scenarios.names():
        scenario, _, variant = name.partition("/")
        variants = [v.name for v in scenarios.load(scenario).variants]
        if variant and variant not in variants:
            raise SystemExit(f"variant={variant!r} of {scenario}: expected one of {', '.join(variants)}")
        out += [(scenario, v) for v in ([variant] if variant else variants if every_variant else variants[:1])]
    return out


def rows_of(settings: Settings, every: str = "first") -> Iterator[Row]:
    """A row a violation: of each invariant the first, the first and the last, or all; files are run of the first."""
    with tempfile.TemporaryDirectory() as results, Player() as player:
        case = Case(run_scenario(replace(settings, results_dir=Path(results)), Summarize()))
        names = [v.invariant for v in case.violations]
        first = [names.index(name) + 1 for name in dict.fromkeys(names)]
        last = [number + names.count(names[number - 1]) - 1 for number in first]  # those of one stand together
        wanted = {"first": first, "ends": [*first, *last], "all": range(1, len(names) + 1)}[every]
        if not names:
            yield Row(settings.scenario, settings.variant, "violates nothing")
        for number in sorted(set(wanted)):
            yield row_of(settings, case, number, player, alone=number in first)


def row_of(settings: Settings, case: Case, number: int, player: Player, *, alone: bool) -> Row:
    """Shrink one violation, play what is left of it once more, and run its file."""
    found = case.violations[number - 1]
    row = Row(
        settings.scenario,
        settings.variant,
        found.invariant,
        number,
        len(case.violations),
        found.witness.ops[-1] + 1,  # ops are numbered from the load on, which is 0
    )
    started = time.perf_counter()
    try:
        shown = case.shown(number, player)
    except HarnessError as error:
        why, exits = " ".join(str(error).split()), "no file" if alone else ""
        return replace(row, seconds=time.perf_counter() - started, exits=exits, why=why)
    row = replace(
        row,
        seconds=time.perf_counter() - started,  # of finding it alone: what `testbed shrink` takes
        ops=len(shown.script.ops),
        docs=sum(len(op.item) for op in shown.script.ops if isinstance(op.item, tuple)),
        again=replays(shown),
    )
    if alone:
        row = replace(row, exits=file_exits(shown))
    return replace(row, why=wrong_with(row, shown))


def replays(shown: Shown) -> bool:
    """Whether the witness shows the same violation once more, on a server that has seen nothing else."""
    with Player() as player:
        found = invariant_named(shown.invariant).witnesses(History(player.play(shown.script)))
    return any((w.ops[-1], w.layer) == (shown.witness.ops[-1], shown.witness.layer) for w in found)


def file_exits(shown: Shown) -> str:
    """Exit code of the stand-alone file, with what it printed where that is not the violation; or why there is none."""
    try:
        text = source(shown)
    except InvalidInput as error:
        return str(error)
    with tempfile.TemporaryDirectory() as folder:
        done = run_alone(Path(folder), text)
    if done.returncode == 1 and done.stdout.startswith(f"{shown.invariant} is VIOLATED: "):
        return "1"
    return f"{done.returncode}: {' '.join((done.stdout or done.stderr).split())[-200:]}"


def run_alone(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a file in an empty folder, the package found as an installed one is and nothing else of the checkout."""
    installed, work = folder / "installed", folder / "work"
    for made in (installed, work):
        made.mkdir(parents=True)
    (installed / "testbed").symlink_to(PACKAGE)
    (work / "repro.py").write_text(text, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k not in ("SCENARIOS_DIR", "PYTHONPATH")}
    start = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-I", "-c", start, str(installed), "repro.py"],
        cwd=work, env=environment, capture_output=True, text=True, timeout=ALONE_S, check=False,
    )  # fmt: skip


def wrong_with(row: Row, shown: Shown) -> str:
    if row.ops > MAX_OPS:
        return f"more than {MAX_OPS} operations"
    if not shown.minimal:
        return "perhaps not the fewest"
    if not row.again:
        return "does not replay"
    return "" if row.exits in ("", "1") else f"file: {row.exits}"


def line(row: Row) -> str:
    """What the terminal shows of one violation."""
    name = f"{row.scenario} / {row.variant}"
    if not row.number:
        return f"{name}  {row.invariant}"
    found = f"{row.ops} ops, {row.docs} documents" if row.ops else "no witness"
    replayed = f"replays: {'yes' if row.again else 'no'}" + f", file exits: {row.exits[:7]}" * bool(row.exits)
    of = f"violation {row.number} of {row.of}, {row.ops_before} ops"
    return f"{name}  {row.invariant}  {of} -> {found}, {replayed}, {row.seconds:.1f} s" + f": {row.why}" * bool(row.why)


def table(rows: Sequence[Row]) -> str:
    """Markdown, a row for each invariant of a scenario; the most of what its variants needed."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.scenario, row.invariant), []).append(row)
    lines = [HEAD, tuple("---" for _ in HEAD)]
    for (scenario, invariant), found in sorted(groups.items()):
        lines.append((scenario, invariant, str(len({row.variant for row in found})), *_most(found)))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _most(found: Sequence[Row]) -> tuple[str, ...]:
    if not found[0].number:
        return tuple("" for _ in HEAD[3:])
    least, most = min(row.ops_before for row in found), max(row.ops_before for row in found)
    files = [row for row in found if row.exits]
    return (
        str(len(found)),
        str(most) if least == most else f"{least} to {most}",
        str(max(row.ops for row in found)) if all(row.ops for row in found) else "none",
        str(max(row.docs for row in found)),
        _share([row.again for row in found]),
        _share([row.exits == "1" for row in files]),
        f"{max(row.seconds for row in found):.1f}",
    )


def _share(is_so: Sequence[bool]) -> str:
    if not is_so:
        return ""
    return "yes" if all(is_so) else f"{sum(is_so)} of {len(is_so)}"


def closing(rows: Sequence[Row]) -> str:
    """How many are as they should be, what is not, and which variants break less than they promise at this length."""
    found = [row for row in rows if row.number]
    wrong = [row for row in found if row.why]
    said = [f"{len(found) - len(wrong)} of {len(found)} violations have a witness of at most {MAX_OPS} operations"]
    said += [f"- {line(row)}" for row in wrong]
    for scenario, variant in dict.fromkeys((row.scenario, row.variant) for row in rows):
        seen = {row.invariant for row in found if (row.scenario, row.variant) == (scenario, variant)}
        if unseen := [name for name in promised(scenario, variant) if name not in seen]:
            said.append(f"- {scenario} / {variant} takes more questions to break {' and '.join(unseen)}")
    return "\n".join(said)


def promised(scenario: str, variant: str) -> tuple[str, ...]:
    """Invariants that the fault breaks in a full run."""
    found = scenarios.load(scenario).variant(variant)
    return () if found is None else found.expect.violates


if __name__ == "__main__":
    raise SystemExit(main())
