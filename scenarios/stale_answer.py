"""Answers and texts that survive a change of the corpus: a key without its state, a TTL alone, a path as identity."""

from testbed.core.ports import Change
from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.expiry import TtlOnly, WeakFallback
from testbed.faults.identity import PathAsIdentity
from testbed.faults.keys import KeyPartDropped
from testbed.fixes.expiry import AbsoluteTtl
from testbed.fixes.guard import RevisionCheck
from testbed.fixes.invalidate import EventInvalidation
from testbed.fixes.keys import EpochKey
from testbed.fixes.repair import ReadRepair, TextInvalidation
from testbed.workloads.stream import Stream

STREAM = Stream(edits=("value",), about=("value",))
WITHOUT_EPOCH = KeyPartDropped("answer", "epoch")
FIXES = (EpochKey(), RevisionCheck(), EventInvalidation(), AbsoluteTtl(ttl_s=30))
CURES = ("epoch-key", "revision-check", "event-invalidation")


def stale(
    name: str, summary: str, faults: tuple[Change, ...], drop: float, anomalies: tuple[str, ...], *cures: str
) -> Variant:
    return Variant(
        name=name,
        summary=summary,
        faults=faults,
        fixes=FIXES,
        workload=STREAM,
        expect=Expect("true", drop, "answer", cures or CURES, ("freshness", "dict-with-losses")),
        anomalies=anomalies,
    )


SCENARIO = Scenario(
    name="stale-answer",
    summary="cached answers, rankings and texts outlive the documents that they came from",
    dataset="ledger",
    variants=(
        stale(
            "answer-key",
            "the answer cache's key holds nothing that changes with the corpus, and no event reaches it",
            (WITHOUT_EPOCH,),
            0.10,
            ("F6-02", "F6-07"),
        ),
        stale(
            "ttl-only",
            "answers expire after two minutes and for no other reason",
            (TtlOnly(120), WITHOUT_EPOCH),
            0.05,
            ("F6-03",),
        ),
        stale(
            "fallback",
            "while the cache server is away, a dict without expiry and epoch takes over",
            (WeakFallback(),),
            0.05,
            ("F11-04",),
        ),
        Variant(
            name="path",
            summary="a document's text is cached by its path: new content under a known path is not read",
            faults=(PathAsIdentity(),),
            fixes=(ReadRepair(), TextInvalidation()),
            workload=STREAM,
            expect=Expect("true", 0.10, "text", ("read-repair", "text-invalidation"), ("freshness", "lineage")),
            anomalies=("F6-05", "F6-06"),
        ),
    ),
)
