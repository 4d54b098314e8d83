"""A slow fill is overtaken: documents change, the cache is cleared, and then the old answer arrives."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.reordering import SlowFill
from testbed.fixes.expiry import AbsoluteTtl
from testbed.fixes.given import FreshByEvents
from testbed.fixes.guard import RevisionCheck
from testbed.fixes.keys import EpochKey
from testbed.fixes.lease import LeaseToken
from testbed.workloads.stream import Stream


def overtaken(name: str, summary: str, delay_s: float, drop: float) -> Variant:
    return Variant(
        name=name,
        summary=summary,
        faults=(SlowFill(delay_s),),
        fixes=(LeaseToken(), RevisionCheck(), EpochKey(), AbsoluteTtl(ttl_s=30)),
        workload=Stream(edits=("value",), about=("value",)),
        expect=Expect(
            "stale rate",
            drop,
            "answer",
            ("lease-token", "revision-check", "epoch-key"),
            ("freshness", "dict-with-losses"),
        ),
        anomalies=("F13-05",),
        given=(FreshByEvents(),),
    )


SCENARIO = Scenario(
    name="stampede",
    summary="fills and invalidations in another order: an old value is put in after it was deleted",
    dataset="ledger",
    variants=(
        overtaken("slow-fill", "an answer reaches the cache a minute after it was made", 60, 0.03),
        overtaken("very-slow-fill", "an answer reaches the cache two minutes after it was made", 120, 0.03),
    ),
)
