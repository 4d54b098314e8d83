"""Vector and text are written one after the other: late, lost, refused or never made again, and nobody notices."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.late import LateText
from testbed.faults.lost import DeletedAfterAdd, FailedUpserts, RebuildFails, RecordsBelieved, VectorKept
from testbed.fixes.outbox import DualWrite
from testbed.fixes.reconcile import BuildBeside, ReadRepair, ReconcileSweep, WriteCheck
from testbed.workloads.stream import Stream
from testbed.workloads.stubs import Stubs

SCENARIO = Scenario(
    name="stale-dual-write",
    summary="a vector and its text that do not belong together, because two stores are written one after the other",
    dataset="ledger",
    shows_versions=True,
    variants=(
        Variant(
            name="late-text",
            summary="the text comes 3.2 s after its vector; until then the new vector leads to the old text",
            faults=(LateText(),),
            fixes=(DualWrite("recoverable"), DualWrite("one-script"), DualWrite("commit-hook"), ReadRepair()),
            workload=Stream(edits=("*",), max_edits=80, about=("value", "unit", "currency"), gap_s=0.1),
            expect=Expect(
                "true",
                0.02,
                "text",
                ("recoverable-dual-write", "one-script-dual-write", "read-repair"),
                ("freshness", "lineage"),
            ),
            anomalies=("F15-01",),
        ),
        Variant(
            name="lost-vectors",
            summary="the store lost a third of its vectors, the records have them all, and every run says: skipped",
            faults=(RecordsBelieved(),),
            fixes=(ReconcileSweep(), WriteCheck()),
            workload=Stream(upgrade="minilm", upgrade_at=0.2),
            expect=Expect("MRR@5", 0.05, "index", ("reconcile-sweep",), ("lineage",)),
            anomalies=("F7-01",),
        ),
        Variant(
            name="failed-upserts",
            summary="a third of the rows of a write are refused, and nobody reads the response",
            faults=(FailedUpserts(),),
            fixes=(WriteCheck(), ReconcileSweep()),
            workload=Stream(edits=("*",), max_edits=40),
            expect=Expect("MRR@5", 0.10, "index", ("write-check", "reconcile-sweep"), ("lineage",)),
            anomalies=("F7-02", "F7-11", "F7-16"),
        ),
        Variant(
            name="vector-kept",
            summary="pages are made empty and filled later; they have a vector, so they count as embedded",
            faults=(VectorKept(),),
            fixes=(ReconcileSweep(), WriteCheck()),
            workload=Stubs(Stream()),
            expect=Expect("MRR@5", 0.10, "index", ("reconcile-sweep",), ("lineage",)),
            anomalies=("F15-01", "F15-02"),
        ),
        Variant(
            name="rebuild-fails",
            summary="indexing again deletes first, then fails for most documents, and the request is a success",
            faults=(RebuildFails(),),
            fixes=(BuildBeside(), ReconcileSweep(), WriteCheck()),
            workload=Stream(upgrade="minilm", upgrade_at=0.3),
            expect=Expect("MRR@5", 0.15, "index", ("build-beside", "reconcile-sweep", "write-check"), ("lineage",)),
            anomalies=("F7-10",),
        ),
        Variant(
            name="delete-add-batch",
            summary="an update deletes and adds in one batch, and the adds come first: no vector is left",
            faults=(DeletedAfterAdd(),),
            fixes=(ReconcileSweep(), WriteCheck()),
            workload=Stream(edits=("value",), about=("value",)),
            expect=Expect("MRR@5", 0.20, "index", ("reconcile-sweep", "write-check"), ("lineage",)),
            anomalies=("F8-07",),
        ),
    ),
)
