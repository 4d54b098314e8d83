"""What was deleted or replaced is still found: a delete that matches nothing, an update that only adds."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.deletes import AppendedVersion, EmptyMeansAll, SharedHashSlot, WrongSelector
from testbed.fixes.reconcile import ReconcileSweep, TombstonesOnRead
from testbed.workloads.stream import Stream
from testbed.workloads.withdrawals import Withdrawals

FIXES = (ReconcileSweep(), TombstonesOnRead())
BOTH = ("reconcile-sweep", "tombstones-on-read")

SCENARIO = Scenario(
    name="deleted-comes-back",
    summary="documents that were deleted or replaced go on being retrieved and read",
    dataset="ledger",
    variants=(
        Variant(
            name="wrong-selector",
            summary="outdated pages are withdrawn by a selector that matches nothing; their vectors stay and are found",
            faults=(WrongSelector("index"), WrongSelector("text")),
            fixes=FIXES,
            workload=Withdrawals(Stream(), n_deletes=120),
            expect=Expect("MRR@5", 0.01, "index", BOTH, ("lineage", "freshness")),
            anomalies=("F8-11", "F7-04"),
        ),
        Variant(
            name="text-stays",
            summary="conventions are withdrawn, their texts are not: records that refer to them are read with them",
            faults=(WrongSelector("text"),),
            fixes=(TombstonesOnRead(),),
            workload=Withdrawals(Stream(), n_deletes=40, kinds=("convention",)),
            expect=Expect("true", 0.05, "text", ("tombstones-on-read",), ("freshness",)),
            anomalies=("F8-08",),
        ),
        Variant(
            name="same-text",
            summary="two pages of one text share a slot: when both are withdrawn, one stays",
            faults=(SharedHashSlot(), WrongSelector("text")),
            fixes=FIXES,
            workload=Withdrawals(Stream(), n_deletes=120, copies=True),
            expect=Expect("MRR@5", 0.01, "index", BOTH, ("lineage",)),
            anomalies=("F2-10",),
        ),
        Variant(
            name="both-versions",
            summary="a new version is added and the old one is not removed: both are found and read",
            faults=(AppendedVersion(),),
            fixes=FIXES,
            workload=Stream(edits=("value",), about=("value",)),
            expect=Expect("MRR@5", 0.03, "index", ("reconcile-sweep",), ("lineage", "freshness")),
            anomalies=("F6-09", "F7-04", "F7-07"),
        ),
        Variant(
            name="other-process",
            summary="another process deletes: the texts are gone, the index in this one's memory was not told",
            faults=(WrongSelector("index"),),
            fixes=FIXES,
            workload=Withdrawals(Stream(), n_deletes=120),
            expect=Expect("MRR@5", 0.01, "index", BOTH, ("lineage",)),
            anomalies=("F7-17",),
        ),
        Variant(
            name="empty-list",
            summary="a look-up of what to delete finds nothing, and an empty list stands for everything",
            faults=(EmptyMeansAll(),),
            fixes=(ReconcileSweep(),),
            workload=Withdrawals(Stream(), n_deletes=40),
            expect=Expect("MRR@5", 0.20, "index", ("reconcile-sweep",), ("lineage",)),
            anomalies=("F8-13",),
        ),
    ),
)
