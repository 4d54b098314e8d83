"""Documents known by their position in the index: one delete, and every later position names another document."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.positions import PositionalIds
from testbed.fixes.positions import FullRemap, StableIds
from testbed.workloads.stream import Stream
from testbed.workloads.withdrawals import Withdrawals

FIXES = (StableIds(), FullRemap())
CURED_BY = ("stable-ids", "full-remap")

SCENARIO = Scenario(
    name="positional-ids",
    summary="a map from position to document that is not kept in step with the index",
    dataset="ledger",
    variants=(
        Variant(
            name="delete",
            summary="pages are deleted, the index closes the gaps, the map does not",
            faults=(PositionalIds("delete"),),
            fixes=FIXES,
            workload=Withdrawals(Stream(), n_deletes=24),
            expect=Expect("MRR@5", 0.20, "index", CURED_BY, ("lineage",)),
            anomalies=("F8-01", "F8-02", "F8-03", "F8-05"),
        ),
        Variant(
            name="update",
            summary="pages are edited: each update is a delete, and moves the documents behind it",
            faults=(PositionalIds("delete"),),
            fixes=FIXES,
            workload=Stream(edits=("*",), max_edits=24),
            expect=Expect("MRR@5", 0.20, "index", CURED_BY, ("lineage",)),
            anomalies=("F8-02", "F8-03"),
        ),
        Variant(
            name="duplicate-id",
            summary="an update adds its vector before the id is refused: one vector too many, all later ones are off",
            faults=(PositionalIds("add"),),
            fixes=FIXES,
            workload=Stream(edits=("*",), max_edits=60),
            expect=Expect("MRR@5", 0.01, "index", CURED_BY, ("lineage",)),
            anomalies=("F7-09",),
        ),
    ),
)
