"""Redis cannot be reached while documents are re-indexed, then it can again."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.network import Partitioned
from testbed.fixes.outbox import DualWrite
from testbed.workloads.bulk import Waves
from testbed.workloads.stream import Stream

SCENARIO = Scenario(
    name="partition",
    summary="Redis is cut off from the indexer and comes back: the vectors went on, the texts did not",
    dataset="ledger",
    shows_versions=True,
    slow=True,
    variants=(
        Variant(
            name="cut-wire",
            summary="every connection of the writer is reset during a wave of edits, and mended after it",
            faults=(Partitioned(),),
            fixes=(DualWrite("recoverable"), DualWrite("commit-hook"), DualWrite("one-script")),
            workload=Waves(Stream(edits=("*",), max_edits=60)),
            expect=Expect("true", 0.05, "text", ("recoverable-dual-write",), ("freshness", "lineage")),
            anomalies=("F7-02", "F7-16"),
        ),
    ),
)
