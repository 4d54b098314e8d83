"""Two faults at once, of which the outer hides the inner: the fix of one brings the other to light."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.identity import PathAsIdentity
from testbed.faults.keys import KeyPartDropped
from testbed.fixes.guard import RevisionCheck, VerifyOnRead
from testbed.fixes.keys import TypedTenantKey
from testbed.fixes.partition import HardPartition
from testbed.fixes.repair import ReadRepair
from testbed.fixes.together import Together
from testbed.workloads.stream import Stream

SCENARIO = Scenario(
    name="compound",
    summary="a layer's fault behind another's: bypassing or mending one alone shows the other",
    dataset="ledger",
    variants=(
        Variant(
            name="two-keys",
            summary="neither the answer cache's key nor the retrieval cache's holds the tenant",
            faults=(KeyPartDropped("answer", "tenant"), KeyPartDropped("retrieval", "tenant")),
            fixes=(
                TypedTenantKey(layers=("answer",), name="answer-tenant-key"),
                TypedTenantKey(),
                HardPartition(),
                VerifyOnRead(),
            ),
            workload=Stream(),
            expect=Expect(
                "true",
                0.10,
                "answer+retrieval",
                ("typed-tenant-key", "hard-partition", "verify-on-read"),
                ("no-cross-tenant", "dict-with-losses"),
            ),
            anomalies=("F9-11",),
        ),
        Variant(
            name="answer-and-text",
            summary="the answer cache keeps old answers, and the text layer old texts to answer from",
            faults=(KeyPartDropped("answer", "epoch"), PathAsIdentity()),
            fixes=(RevisionCheck(), ReadRepair(), Together((RevisionCheck(), ReadRepair()))),
            workload=Stream(edits=("value",), about=("value",)),
            expect=Expect(
                "true",
                0.10,
                "answer+text",
                ("revision-check-with-read-repair",),
                ("freshness", "dict-with-losses", "lineage"),
            ),
        ),
    ),
)
