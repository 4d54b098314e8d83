"""Two faults at once, a variant for each two of the five layers: mending one alone leaves the other's harm."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.batch import BatchShift
from testbed.faults.identity import PathAsIdentity
from testbed.faults.keys import KeyPartDropped, ShortHash
from testbed.faults.skew import UnchangedSkipped
from testbed.fixes.batch import SelfSearch
from testbed.fixes.guard import KeyCheck, RevisionCheck, VerifyOnRead
from testbed.fixes.keys import TypedTenantKey, VersionedKey
from testbed.fixes.partition import HardPartition
from testbed.fixes.repair import ReadRepair
from testbed.fixes.together import Together
from testbed.fixes.versions import ReEmbed
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
        Variant(
            name="answer-and-embedding",
            summary="the answer cache's key leaves the tenant out, and the embedding cache keeps 7 bits of a hash",
            faults=(
                KeyPartDropped("answer", "tenant"),
                ShortHash("embedding", 7, role="query"),
            ),
            fixes=(TypedTenantKey(), KeyCheck(), Together((TypedTenantKey(), KeyCheck()))),
            workload=Stream(),
            expect=Expect(
                "true",
                0.1,
                "answer+embedding",
                ("typed-tenant-key-with-key-check",),
                ("no-cross-tenant", "dict-with-losses"),
            ),
        ),
        Variant(
            name="answer-and-index",
            summary="the answer cache's key leaves the tenant out, and vectors of a batch got the wrong texts",
            faults=(
                KeyPartDropped("answer", "tenant"),
                BatchShift("skipped", 0.03),
            ),
            fixes=(TypedTenantKey(), SelfSearch(), Together((TypedTenantKey(), SelfSearch()))),
            workload=Stream(),
            expect=Expect(
                "true",
                0.1,
                "answer+index",
                ("typed-tenant-key-with-self-search",),
                ("no-cross-tenant", "dict-with-losses", "lineage"),
            ),
        ),
        Variant(
            name="retrieval-and-embedding",
            summary="the retrieval and the embedding cache keep 7 bits of a hash",
            faults=(
                ShortHash("retrieval", 7),
                ShortHash("embedding", 7, role="query"),
            ),
            fixes=(TypedTenantKey(), KeyCheck()),
            workload=Stream(),
            expect=Expect("MRR@5", 0.1, "retrieval+embedding", ("key-check",), ("no-cross-tenant", "dict-with-losses")),
        ),
        Variant(
            name="retrieval-and-index",
            summary="the retrieval cache's key leaves the tenant out, and three quarters of some vectors are zero",
            faults=(
                KeyPartDropped("retrieval", "tenant"),
                BatchShift("zeroed-tail", 0.5),
            ),
            fixes=(TypedTenantKey(), SelfSearch(), Together((TypedTenantKey(), SelfSearch()))),
            workload=Stream(),
            expect=Expect(
                "MRR@5",
                0.1,
                "retrieval+index",
                ("typed-tenant-key-with-self-search",),
                ("no-cross-tenant", "dict-with-losses", "lineage"),
            ),
        ),
        Variant(
            name="retrieval-and-text",
            summary="the retrieval cache's key leaves the tenant out, and the text layer keeps old texts",
            faults=(
                KeyPartDropped("retrieval", "tenant"),
                PathAsIdentity(),
            ),
            fixes=(TypedTenantKey(), ReadRepair(), Together((TypedTenantKey(), ReadRepair()))),
            workload=Stream(edits=("value",), about=("value",)),
            expect=Expect(
                "true",
                0.1,
                "retrieval+text",
                ("typed-tenant-key-with-read-repair",),
                ("no-cross-tenant", "freshness", "dict-with-losses", "lineage"),
            ),
        ),
        Variant(
            name="embedding-and-index",
            summary="an upgrade of the encoder that leaves old query vectors in the cache and old vectors in the index",
            faults=(
                KeyPartDropped("embedding", "model", role="query"),
                UnchangedSkipped(share=0.5),
            ),
            fixes=(VersionedKey(), ReEmbed(), Together((VersionedKey(), ReEmbed()))),
            workload=Stream(upgrade="minilm", upgrade_at=0.3),
            encoder="lsa-384",
            expect=Expect(
                "MRR@5", 0.1, "embedding+index", ("versioned-key-with-re-embed",), ("dict-with-losses", "lineage")
            ),
        ),
        Variant(
            name="embedding-and-text",
            summary="the embedding cache keeps 7 bits of a hash, and the text layer old texts",
            faults=(
                ShortHash("embedding", 7, role="query"),
                PathAsIdentity(),
            ),
            fixes=(KeyCheck(), ReadRepair(), Together((KeyCheck(), ReadRepair()))),
            workload=Stream(edits=("value",), about=("value",)),
            expect=Expect(
                "true",
                0.1,
                "embedding+text",
                ("key-check-with-read-repair",),
                ("freshness", "dict-with-losses", "lineage"),
            ),
        ),
        Variant(
            name="index-and-text",
            summary="three quarters of some vectors are zero, and the text layer keeps old texts",
            faults=(
                BatchShift("zeroed-tail", 0.5),
                PathAsIdentity(),
            ),
            fixes=(SelfSearch(), ReadRepair(), Together((SelfSearch(), ReadRepair()))),
            workload=Stream(edits=("value",), max_edits=12, about=("value",)),
            expect=Expect(
                "true",
                0.1,
                "index+text",
                ("self-search-with-read-repair",),
                ("freshness", "dict-with-losses", "lineage"),
            ),
        ),
    ),
)
