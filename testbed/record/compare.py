"""Whether two runs may be compared, and what differs between them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from testbed.core.errors import Incomparable, InvalidInput
from testbed.record.folder import RunReader

# What may differ on purpose, by the word that allows it on the command line.
AXES = {
    "stack": ("settings.stack", "settings.store"),
    "store": ("settings.store",),
    "seed": ("seed",),
    "level": ("level",),
}
# The settings that can move a number; the others say where a run ran and where it was kept.
SETTINGS = ("stack", "store", "queries")


class Difference(NamedTuple):
    """One thing that must be the same in both runs and is not."""

    what: str
    a: object
    b: object

    def __str__(self) -> str:
        return f"{self.what}: {self.a!r} against {self.b!r}"


class Change(NamedTuple):
    """One metric of one arm in both runs; ``delta`` is b - a, NaN when either is unscored."""

    arm: str
    metric: str
    a: float
    b: float
    delta: float


class Comparison(NamedTuple):
    """Two comparable runs: the metrics of the arms that both have, and the arms that only one has."""

    same_digest: bool
    changes: tuple[Change, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


def differences(a: Mapping[str, Any], b: Mapping[str, Any], across: Collection[str] = ()) -> list[Difference]:
    """What keeps the runs with these manifests from being compared, the axes in ``across`` apart."""
    wrong = sorted(set(across) - set(AXES))
    if wrong:
        raise InvalidInput(f"across={wrong[0]!r} must be one of: {', '.join(AXES)}")
    allowed = {name for axis in across for name in AXES[axis]}
    left, right = dict(_sides(a)), dict(_sides(b))
    names = sorted((left.keys() | right.keys()) - allowed)
    return [Difference(n, left.get(n), right.get(n)) for n in names if left.get(n) != right.get(n)]


def compare(a: RunReader, b: RunReader, across: Collection[str] = ()) -> Comparison:
    """Metric by metric; Incomparable, with all that differs, where that would compare apples with pears."""
    found = differences(a.manifest, b.manifest, across)
    if found:
        axes = [axis for axis, names in AXES.items() if all(d.what in names for d in found)]
        hint = f"; to compare on purpose: --across {axes[0]}" if axes else ""
        raise Incomparable(f"not comparable: {'; '.join(map(str, found))}{hint}")
    means_a, means_b = _means(a.summary), _means(b.summary)
    both = [arm for arm in means_a if arm in means_b]
    changes = [
        Change(arm, metric, x, (y := means_b[arm].get(metric, math.nan)), y - x)
        for arm in both
        for metric, x in means_a[arm].items()
    ]
    return Comparison(
        a.digest == b.digest,
        tuple(changes),
        tuple(arm for arm in means_a if arm not in means_b),
        tuple(arm for arm in means_b if arm not in means_a),
    )


def _sides(described: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name in ("format", "scenario", "scenario_digest", "variant", "seed", "level"):
        yield name, described.get(name)
    for group in ("data", "metrics"):
        for name, value in described.get(group, {}).items():
            yield f"{group}.{name}", value
    for name in SETTINGS:
        yield f"settings.{name}", described.get("settings", {}).get(name)


def _means(summary: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    rows = {arm: summary["arms"][arm] for arm in summary["order"]}
    return {
        arm: {metric: math.nan if value is None else value for metric, value in row["means"].items()}
        for arm, row in rows.items()
        if row.get("means")
    }
