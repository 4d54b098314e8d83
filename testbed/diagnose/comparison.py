"""Runs against runs, ask by ask: across commits, stacks and stores, and across the fixes of one run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import NamedTuple

from testbed.core.errors import Incomparable, InvalidInput, unknown
from testbed.diagnose.asks import Asks
from testbed.diagnose.contrast import Contrast, Name, Pair, contrasts, over_scenarios
from testbed.diagnose.significance import Interval
from testbed.record import runs as listing
from testbed.record.compare import Change, Comparison, compare
from testbed.record.folder import PARTIAL, WHOLE, RunReader


class Side(NamedTuple):
    """Runs that stand for one side, and the arm of them that is meant ("" is every arm)."""

    readers: tuple[RunReader, ...]
    arm: str = ""


class Group(NamedTuple):
    """One scenario and variant on both sides: its runs in pairs (one a seed), and what came of each arm and metric.

    ``paired`` is False where the two sides were asked other questions (another seed): then only means are known.
    """

    name: str
    runs: tuple[tuple[RunReader, RunReader], ...]
    found: tuple[Comparison, ...]
    rows: tuple[Contrast, ...]
    paired: bool


class Compared(NamedTuple):
    """All groups, and the runs that only one side has."""

    groups: tuple[Group, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


def side(results: Path, word: str) -> Side:
    """What a word of the command line stands for.

    A run as ``record.runs.find`` takes it; several, with commas; a folder of runs (the newest of each scenario, variant
    and seed); each with ``@<arm>`` behind it for one arm only.
    """
    names, _, arm = word.partition("@")
    folders = [folder for name in names.split(",") for folder in _folders(results, name.strip())]
    return Side(tuple(map(RunReader, folders)), arm.strip())


def _folders(results: Path, name: str) -> list[Path]:
    folder = Path(name)
    if not name or (folder / "manifest.json").is_file() or not folder.is_dir():
        return [listing.find(results, name)]
    newest: dict[object, Path] = {}
    for row in listing.runs(folder):
        if row.status == WHOLE and not row.name.startswith(PARTIAL):
            newest[_key(RunReader(row.folder))] = row.folder
    if not newest:
        raise InvalidInput(f"no whole run in {folder}; make scenario NAME=... RESULTS_DIR={folder} makes one")
    return list(newest.values())


def _key(reader: RunReader) -> tuple[object, ...]:
    """What pairs a run with one of the other side, when there are several."""
    m = reader.manifest
    return m["scenario"], m["variant"], m["seed"]


def compare_sides(a: Side, b: Side, across: Collection[str] = ()) -> Compared:
    """b against a, group by group; Incomparable, with all that differs, where that would mean nothing."""
    pairs, only_a, only_b = _paired(a, b)
    by_group: dict[str, list[tuple[RunReader, RunReader]]] = {}
    for left, right in pairs:
        by_group.setdefault(f"{left.manifest['scenario']} / {left.manifest['variant']}", []).append((left, right))
    groups = [_group(name, members, a.arm, b.arm, across) for name, members in by_group.items()]
    adjusted = over_scenarios({g.name: g.rows for g in groups if g.paired})
    return Compared(
        tuple(g._replace(rows=tuple(adjusted.get(g.name, g.rows))) for g in groups), tuple(only_a), tuple(only_b)
    )


def _paired(a: Side, b: Side) -> tuple[list[tuple[RunReader, RunReader]], list[str], list[str]]:
    if len(a.readers) == len(b.readers) == 1:
        return [(a.readers[0], b.readers[0])], [], []
    left, right = ({_key(reader): reader for reader in s.readers} for s in (a, b))
    both = [key for key in left if key in right]
    only_a, only_b = (
        [str(reader.folder) for key, reader in mine.items() if key not in other]
        for mine, other in ((left, right), (right, left))
    )
    if not both:
        raise Incomparable("not comparable: no run of a has the scenario, variant and seed of one of b")
    return [(left[key], right[key]) for key in both], only_a, only_b


def _group(
    name: str, runs: Sequence[tuple[RunReader, RunReader]], arm_a: str, arm_b: str, across: Collection[str]
) -> Group:
    found = tuple(_changes(left, right, arm_a, arm_b, across) for left, right in runs)
    asks = [(Asks(left), Asks(right)) for left, right in runs]
    arms = list(dict.fromkeys(change.arm for change in found[0].changes))
    sides = {arm: _arms(arm) for arm in arms}
    paired = all(x.labels(sides[arm][0]) == y.labels(sides[arm][1]) for x, y in asks for arm in arms)
    rows = _rows(name, found, asks, sides) if paired else [_means_only(change) for change in found[0].changes]
    return Group(name, tuple(runs), found, tuple(rows), paired)


def _rows(
    name: str, found: Sequence[Comparison], asks: Sequence[tuple[Asks, Asks]], sides: Mapping[str, tuple[str, str]]
) -> list[Contrast]:
    """Every metric of every arm; by its means alone where it has no scores by ask."""
    pairs = [_series(x, y, sides) for x, y in asks]
    seed = int(asks[0][0].reader.manifest["seed"])
    questions = [x.questions() for x, _ in asks]
    by_name = {row.name: row for row in contrasts(pairs, seed=seed, name=f"compare/{name}", questions=questions)}
    means = {Name(c.arm, c.metric): _means_only(c) for c in found[0].changes}
    return [by_name.get(n, means.get(n)) or by_name[n] for n in dict.fromkeys([*means, *by_name])]


def _series(x: Asks, y: Asks, sides: Mapping[str, tuple[str, str]]) -> dict[Name, Pair]:
    out: dict[Name, Pair] = {}
    for arm, (left, right) in sides.items():
        if not x.labels(left):
            continue
        then, now = (s.scores(own) | s.valid_hits(own) for s, own in ((x, left), (y, right)))
        out |= {Name(arm, metric): Pair(then[metric], now[metric]) for metric in then if metric in now}
    return out


BETWEEN = " -> "


def _changes(left: RunReader, right: RunReader, arm_a: str, arm_b: str, across: Collection[str]) -> Comparison:
    """The means of the arms that are compared; of two different arms under the name ``a -> b``."""
    found = compare(left, right, across)
    if not arm_a and not arm_b:
        return found
    arm_a, arm_b = arm_a or arm_b, arm_b or arm_a
    means = []
    for reader, arm in ((left, arm_a), (right, arm_b)):
        row = reader.summary["arms"].get(arm)
        if row is None:
            raise unknown(f"arm of {reader.folder}", arm, reader.arms)
        if not row.get("means"):
            raise InvalidInput(f"arm {arm} did not run in {reader.folder}: {row.get('why', row['status'])}")
        means.append({metric: nan if value is None else value for metric, value in row["means"].items()})
    name = arm_a if arm_a == arm_b else f"{arm_a}{BETWEEN}{arm_b}"
    changes = [Change(name, m, v, (w := means[1].get(m, nan)), w - v) for m, v in means[0].items()]
    return Comparison(found.same_digest, tuple(changes), (), ())


def _arms(name: str) -> tuple[str, str]:
    left, between, right = name.partition(BETWEEN)
    return (left, right) if between else (name, name)


def _means_only(change: Change) -> Contrast:
    return Contrast(
        name=Name(change.arm, change.metric),
        a=change.a,
        b=change.b,
        interval=Interval(change.delta, nan, nan),
        effect=nan,
        wins=0,
        ties=0,
        losses=0,
        detectable=nan,
        scored=0,
        unscored=0,
    )
