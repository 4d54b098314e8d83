"""How often a method names the layer that was really broken: over many runs, against the injector's own record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from typing import Any, NamedTuple

from testbed.diagnose.blame import Blame
from testbed.diagnose.heatmap import Match

# A layer is named when it gives back at least this share of the drop, with the interval above 0.
NAMED_SHARE = 0.25
# Where no share is clear: when it mends more of the asks that are worse than it leaves.
MENDED_SHARE = 0.5


class Suspect(NamedTuple):
    """A layer that a method names, and how sure the method says it is, in [0, 1]."""

    layer: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Case:
    """One run, one method. ``injected`` are the layers that were broken, () for a clean run."""

    method: str
    injected: tuple[str, ...]
    suspects: tuple[Suspect, ...]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A method over many runs. Shares with Wilson intervals; NaN where no run could show it.

    Parameters
    ----------
    named : runs with a fault whose first suspects are exactly the injected layers (as many as were injected)
    misnamed : runs with a fault in which something is named, but not that; in the others nothing is
    false_blame : clean runs in which anything was named
    brier : mean squared distance between the confidence in the first suspect and whether it was right; 0 is best
    """

    method: str
    faulty_runs: int
    clean_runs: int
    named: Share
    misnamed: Share
    false_blame: Share
    brier: float
    calibration: tuple[Bin, ...]


class Share(NamedTuple):
    share: float
    low: float
    high: float


class Bin(NamedTuple):
    """Runs whose confidence lies in [low, high): what was said on average, how often it was right."""

    low: float
    high: float
    runs: int
    said: float
    right: float


def suspects_of_blame(blames: Iterable[Blame], *, exact: bool = False) -> tuple[Suspect, ...]:
    """Layers whose bypass clearly gives back a part of the drop, most guilty first.

    The confidence is the lower end of the interval of the share, in [0, 1]. ``exact``: the stack is deterministic, so
    that an ask is worse because of the fault and of nothing else; where no share is clear, the harm is then told by
    the asks that are worse, whatever else got better, with the lower end of the interval of how many the bypass mends.
    """
    found = list(blames)
    clear = [b for b in found if b.share is not None and b.share >= NAMED_SHARE and b.low > 0.0]
    if clear or not exact:
        ranked = sorted(clear, key=lambda b: -(b.share or 0.0))
        return tuple(Suspect(b.layer, min(1.0, max(0.0, b.low))) for b in ranked)
    mending = sorted((b for b in found if b.mended > MENDED_SHARE * b.worse), key=lambda b: -b.mended)
    return tuple(Suspect(b.layer, wilson(b.mended, b.worse).low) for b in mending)


def suspects_of_shares(shares: Iterable[tuple[str, float]], *, least: float = NAMED_SHARE) -> tuple[Suspect, ...]:
    """Layers by their Shapley share of the whole change: the confidence. Shares below ``least`` are left out."""
    found = list(shares)
    total = sum(share for _, share in found)
    if total <= 0:
        return ()
    ranked = sorted(((layer, share / total) for layer, share in found), key=lambda s: -s[1])
    return tuple(Suspect(layer, min(1.0, part)) for layer, part in ranked if part >= least)


def suspects_of_repair(repair: Mapping[str, Any] | None, *, exact: bool) -> tuple[Suspect, ...]:
    """The layers of the smallest repair, of a deterministic stack; as sure as it is that they mend what is worse."""
    if repair is None or not exact or not repair["worse"]:
        return ()
    sure = wilson(repair["worse"] - repair["left"], repair["worse"]).low
    return tuple(Suspect(layer, sure) for layer in repair["layers"])


def suspects_of_matches(matches: Iterable[Match]) -> tuple[Suspect, ...]:
    """Layers by their most confident match, as the published method reads its table."""
    best: dict[str, float] = {}
    for match in matches:
        best[match.layer] = max(best.get(match.layer, 0.0), match.confidence)
    return tuple(Suspect(layer, sure) for layer, sure in sorted(best.items(), key=lambda s: -s[1]))


def accuracy(cases: Sequence[Case], n_bins: int = 5) -> list[Accuracy]:
    """One row for each method, in order of first appearance."""
    return [_accuracy(method, [c for c in cases if c.method == method], n_bins) for method in methods(cases)]


def methods(cases: Iterable[Case]) -> list[str]:
    return list(dict.fromkeys(case.method for case in cases))


def wilson(right: int, n: int) -> Share:
    """A share with its 95 % interval, which stays inside [0, 1] and is honest for none and all.

    References
    ----------
    Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    if not n:
        return Share(nan, nan, nan)
    z, p = 1.959964, right / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Share(p, max(0.0, middle - half), min(1.0, middle + half))


def _accuracy(method: str, cases: Sequence[Case], n_bins: int) -> Accuracy:
    faulty, clean = [c for c in cases if c.injected], [c for c in cases if not c.injected]
    first = [(c.suspects[0].confidence, c.suspects[0].layer in c.injected) for c in cases if c.suspects]
    return Accuracy(
        method,
        len(faulty),
        len(clean),
        wilson(sum(_is_named(c) for c in faulty), len(faulty)),
        wilson(sum(bool(c.suspects) and not _is_named(c) for c in faulty), len(faulty)),
        wilson(sum(bool(c.suspects) for c in clean), len(clean)),
        sum((said - right) ** 2 for said, right in first) / len(first) if first else nan,
        tuple(_bins(first, n_bins)),
    )


def _is_named(case: Case) -> bool:
    first = {suspect.layer for suspect in case.suspects[: len(case.injected)]}
    return first == set(case.injected)


def _bins(first: Sequence[tuple[float, bool]], n_bins: int) -> Iterable[Bin]:
    for i in range(n_bins):
        low, high = i / n_bins, (i + 1) / n_bins
        found = [(said, right) for said, right in first if low <= said < high or (said == 1.0 and i == n_bins - 1)]
        if found:
            n = len(found)
            yield Bin(low, high, n, sum(said for said, _ in found) / n, sum(right for _, right in found) / n)
