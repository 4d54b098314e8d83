"""Two keys, one hash: a digest that is too short for the number of entries gives one text the value of another."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.keys import ShortHash
from testbed.fixes.guard import KeyCheck
from testbed.workloads.stream import Stream

SCENARIO = Scenario(
    name="key-collision",
    summary="cache keys are hashes cut so short that different keys meet",
    dataset="ledger",
    variants=(
        Variant(
            name="embedding",
            summary="the embedding cache keeps 7 bits of a hash: a question is searched for with another one's vector",
            faults=(ShortHash("embedding", 7, role="query"),),
            fixes=(KeyCheck(),),
            workload=Stream(),
            expect=Expect("MRR@5", 0.10, "embedding", ("key-check",), ("dict-with-losses",)),
            anomalies=("F3-10", "F3-11"),
        ),
        Variant(
            name="retrieval",
            summary="the retrieval cache keeps 7 bits of a hash: a question gets another one's ranking",
            faults=(ShortHash("retrieval", 7),),
            fixes=(KeyCheck(),),
            workload=Stream(),
            expect=Expect("MRR@5", 0.10, "retrieval", ("key-check",), ("dict-with-losses",)),
            anomalies=("F3-11",),
        ),
    ),
)
