"""Texts are embedded in batches, and a vector ends up beside another text, or is not what it would be alone."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.batch import BatchShift
from testbed.fixes.batch import BatchOfOne, SelfSearch
from testbed.workloads.stream import Stream

FIXES = (SelfSearch(), SelfSearch(every=10), BatchOfOne())
CURED_BY = ("self-search", "batch-of-one")
STREAM = Stream()

SCENARIO = Scenario(
    name="batch-shift",
    summary="vectors of a batch that are stored with the wrong texts, for good",
    dataset="ledger",
    variants=(
        Variant(
            name="skipped-vector",
            summary="a vector that cannot be used is left out of the batch, and the rest move up by one",
            faults=(BatchShift("skipped", 0.03),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect("MRR@5", 0.10, "index", CURED_BY, ("lineage",)),
            anomalies=("F3-01",),
        ),
        Variant(
            name="partial-hits",
            summary="indexed again with half of the vectors cached: those that were computed come back first",
            faults=(BatchShift("merged", 0.5),),
            fixes=FIXES,
            workload=Stream(upgrade="minilm", upgrade_at=0.2),
            expect=Expect("MRR@5", 0.20, "index", CURED_BY, ("lineage",)),
            anomalies=("F3-02",),
        ),
        Variant(
            name="zeroed-tail",
            summary="a buffer is reused while it is read: three quarters of some vectors are zero",
            faults=(BatchShift("zeroed-tail", 0.5),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect("MRR@5", 0.10, "index", CURED_BY, ("lineage",)),
            anomalies=("F3-14",),
        ),
        Variant(
            name="batch-dependent",
            summary="a vector has some of its neighbour in the batch in it",
            faults=(BatchShift("mixed", 0.5),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect("MRR@5", 0.05, "index", CURED_BY, ("lineage",)),
            anomalies=("F3-15", "F3-16"),
        ),
    ),
)
