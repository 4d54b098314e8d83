"""Expiry that does not expire: put off by every read, missing in one tier, fixed at start; the hottest is oldest."""

from testbed.core.ports import Change
from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.expiry import TtlOnly, UnevenTiers
from testbed.faults.keys import KeyPartDropped
from testbed.fixes.expiry import AbsoluteTtl, TtlOnChange
from testbed.fixes.guard import RevisionCheck
from testbed.fixes.invalidate import EventInvalidation
from testbed.workloads.stream import Stream

MAX_AGE_S = 60
STREAM = Stream(edits=("value",), about=("value",))
FIXES = (AbsoluteTtl(MAX_AGE_S), TtlOnChange(MAX_AGE_S), RevisionCheck(), EventInvalidation())


def ageing(name: str, summary: str, fault: Change, anomaly: str) -> Variant:
    """Nothing but expiry keeps answers fresh. They may be 60 s old; the metric counts those that are read from more."""
    return Variant(
        name=name,
        summary=summary,
        faults=(fault, KeyPartDropped("answer", "epoch")),
        fixes=FIXES,
        workload=STREAM,
        expect=Expect(
            f"behind > {MAX_AGE_S} s",
            0.05,
            "answer",
            ("absolute-ttl", "ttl-on-change", "revision-check", "event-invalidation"),
            ("freshness", "dict-with-losses"),
        ),
        anomalies=(anomaly,),
    )


SCENARIO = Scenario(
    name="ttl-refresh",
    summary="an entry's lifetime starts again, is missing or cannot be changed, and the hottest answers are the oldest",
    dataset="ledger",
    variants=(
        ageing("sliding", "every hit starts the lifetime again", TtlOnly(MAX_AGE_S, sliding=True), "F11-01"),
        ageing(
            "two-tiers", "the first tier outlives the second, which alone expires", UnevenTiers(MAX_AGE_S), "F11-05"
        ),
        ageing("frozen", "a lifetime of five minutes, read at start, cannot be shortened", TtlOnly(300), "F11-07"),
    ),
)
