"""The indexing process is killed between writing a vector and writing its text."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.crash import KilledWriter
from testbed.fixes.outbox import DualWrite
from testbed.workloads.bulk import Waves
from testbed.workloads.stream import Stream

FIXES = (DualWrite("recoverable"), DualWrite("commit-hook"), DualWrite("one-script"))
WAVES = Waves(Stream(edits=("*",), max_edits=60), n_waves=3)  # a wave is a process that starts and dies
CURED_BY = ("recoverable-dual-write",)

SCENARIO = Scenario(
    name="crash-midwrite",
    summary="the indexer dies between the vector and the text: new vectors that lead to old texts",
    dataset="ledger",
    shows_versions=True,
    slow=True,
    variants=(
        Variant(
            name="between-stores",
            summary="killed when the first store holds the batch and the second does not",
            faults=(KilledWriter("between"),),
            fixes=FIXES,
            workload=WAVES,
            expect=Expect("true", 0.05, "text", CURED_BY, ("freshness", "lineage")),
            anomalies=("F7-02", "F7-11", "F7-12", "F7-14"),
        ),
    ),
)
