"""Every fix against every fault: what it gives back, what it costs, and what it breaks that was whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import Any, Literal

from testbed.core.ports import Change
from testbed.core.scenario import Variant
from testbed.diagnose.expectations import CURED, fall
from testbed.diagnose.grid import value

Effect = Literal["cures", "helps", "nothing", "harms", "could not tell", "unsupported", "apart"]
HELPS = 0.05  # a share of the drop below this, given back or added, is nothing


@dataclass(frozen=True, slots=True)
class Meeting:
    """One fix on one variant's fault, beside the same stack without it.

    Parameters
    ----------
    own : the scenario itself offers the fix for this fault
    effect : "apart" was not run, because the fix touches no part of the stack that the fault touches
    why : why it is unsupported, or why nothing can be told
    residual : how far the users of the fixed faulty stack are below those of the clean one, in units of the metric
    recovered : share of the drop that is gone; NaN where there is no clear drop
    metric_lost, hits_lost, p95_ms_added : what the fix costs on a clean stack
    held_bytes_added : cache entries that a clean stack holds at the end because of the fix; below 0: it holds less
    hits_lost_faulty : hit rate below the clean stack's, with the fault and the fix
    still : violations that the fixed faulty stack has left, by invariant
    opens : invariants that hold on the faulty (or clean) stack and are violated once the fix is on it
    """

    scenario: str
    variant: str
    fix: str
    own: bool
    effect: Effect
    why: str = ""
    residual: float = nan
    recovered: float = nan
    metric_lost: float = nan
    hits_lost: float = nan
    hits_lost_faulty: float = nan
    p95_ms_added: float = nan
    held_bytes_added: float = nan
    still: Mapping[str, int] | None = None
    opens: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "still": dict(self.still or {}), "opens": list(self.opens)}


def arms(fixes: Iterable[str]) -> tuple[str, ...]:
    """What must be run of a variant: both stacks, bare and with each fix."""
    named = list(fixes)
    return ("clean", "faulty", *(f"faulty+{fix}" for fix in named), *(f"clean+{fix}" for fix in named))


def can_meet(fix: Change, variant: Variant) -> bool:
    """Whether the fix is the variant's own, or touches a part that the variant's fault touches or that is to blame.

    Parts are layers, the index, the context. What only reads (the record, the encoder) touches nothing; a change that
    names no part may touch any.
    """
    if any(own.name == fix.name for own in variant.fixes):
        return True
    sore = {part for fault in variant.faults for part in _parts(fault)}
    sore |= {layer for layer in variant.expect.blame.split("+") if layer}
    return not sore or not _parts(fix) or bool(sore & _parts(fix))


def _parts(change: Change) -> set[str]:
    named = {PART_OF.get(need, need).removeprefix("layers.").partition(".")[0] for need in change.needs}
    # What it wraps where it is there, without needing it.
    return named.union(getattr(change, "layers", ())) - READ_ONLY


READ_ONLY = {"source", "encoder", "redis", "reader"}
PART_OF = {"semantic": "answer", "tiers": "answer", "blank_index": "index"}


def meetings(outcome: Mapping[str, Any], variant: Variant, fixes: Sequence[str]) -> list[Meeting]:
    """What each fix does to one variant, from the outcome of a run with ``arms`` of those that can meet."""
    shares = {found["fix"]: found["recovered"] for found in outcome["fixes"]}
    own = {fix.name for fix in variant.fixes}
    return [
        _meeting(outcome, fix, fix in own, shares.get(fix))
        if f"faulty+{fix}" in outcome["arms"]
        else Meeting(outcome["scenario"], outcome["variant"], fix, fix in own, "apart")
        for fix in fixes
    ]


def _meeting(outcome: Mapping[str, Any], fix: str, own: bool, recovered: Mapping[str, Any] | None) -> Meeting:
    faulty, clean = outcome["arms"][f"faulty+{fix}"], outcome["arms"][f"clean+{fix}"]
    where = outcome["scenario"], outcome["variant"], fix, own
    refused = next((arm for arm in (faulty, clean) if arm["status"] != "ok"), None)
    if refused is not None:
        return Meeting(*where, "unsupported", refused["why"])
    metric, base = outcome["metric"], value(outcome, "clean")
    share = nan if recovered is None or recovered["share"] is None else float(recovered["share"])
    return Meeting(
        *where,
        effect=_effect(share),
        why="" if recovered is None else str(recovered["why"]),
        residual=fall(metric, base, value(outcome, f"faulty+{fix}")),
        recovered=share,
        metric_lost=fall(metric, base, value(outcome, f"clean+{fix}")),
        hits_lost=_less(outcome, f"clean+{fix}", "hits"),
        hits_lost_faulty=_less(outcome, f"faulty+{fix}", "hits"),
        p95_ms_added=-_less(outcome, f"clean+{fix}", "p95_ms"),
        held_bytes_added=-_less(outcome, f"clean+{fix}", "held_bytes"),
        still=faulty["violated"],
        opens=_opened(outcome, fix),
    )


def _effect(share: float) -> Effect:
    if isnan(share):
        return "could not tell"
    if share >= CURED:
        return "cures"
    return "helps" if share >= HELPS else "nothing" if share > -HELPS else "harms"


def _less(outcome: Mapping[str, Any], arm: str, what: str) -> float:
    """How much less of it than the clean arm has."""
    clean, found = outcome["arms"]["clean"][what], outcome["arms"][arm][what]
    return nan if clean is None or found is None else float(clean - found)


def _opened(outcome: Mapping[str, Any], fix: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for base in ("clean", "faulty"):
        before, after = (outcome["arms"][arm]["violated"] for arm in (base, f"{base}+{fix}"))
        found.update(dict.fromkeys(name for name in after if name not in before))
    return tuple(sorted(found))
