"""Two levels of one cache that part: one is merged late, one is not invalidated with the other."""

from testbed.core.ports import Change
from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.tiers import FirstLevelKept, LateMerge
from testbed.fixes.expiry import AbsoluteTtl
from testbed.fixes.given import FreshByEvents
from testbed.fixes.guard import RevisionCheck
from testbed.fixes.keys import EpochKey
from testbed.fixes.lease import LeaseToken, WriteThrough
from testbed.workloads.stream import Stream


def parted(name: str, summary: str, fault: Change, drop: float, cured_by: tuple[str, ...], *rows: str) -> Variant:
    """Answers are fresh because changes delete them; the fault lets an old one live on in one level."""
    return Variant(
        name=name,
        summary=summary,
        faults=(fault,),
        fixes=(LeaseToken(), RevisionCheck(), EpochKey(), WriteThrough(), AbsoluteTtl(ttl_s=30)),
        workload=Stream(edits=("value",), about=("value",)),
        expect=Expect("stale rate", drop, "answer", cured_by, ("freshness", "dict-with-losses")),
        anomalies=rows,
        given=(FreshByEvents(),),
    )


CURES = ("lease-token", "revision-check", "epoch-key")

SCENARIO = Scenario(
    name="two-level",
    summary="the exact and the semantic level of the answer cache hold different things",
    dataset="ledger",
    variants=(
        parted("first-kept", "a change clears the second level only", FirstLevelKept(), 0.10, CURES, "F11-05"),
        parted(
            "late-merge",
            "the second level is filled a minute late, and gets what was deleted meanwhile",
            LateMerge(),
            0.02,
            (*CURES, "write-through"),
        ),
    ),
)
