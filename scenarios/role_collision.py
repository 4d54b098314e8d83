"""The vector of a question served for a document of the same text: the embedding key does not hold the role."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.keys import KeyPartDropped
from testbed.fixes.keys import RoleInKey
from testbed.workloads.drafts import Drafts
from testbed.workloads.stream import Stream

SCENARIO = Scenario(
    name="role-collision",
    summary="question and document vectors of one text share a cache entry, though they were made for other roles",
    dataset="ledger",
    variants=(
        Variant(
            name="query-for-document",
            summary="a text is asked before it is indexed, and its question vector goes into the index: near to all",
            faults=(KeyPartDropped("embedding", "role"),),
            fixes=(RoleInKey(),),
            workload=Drafts(Stream()),
            encoder="minilm-instructed",
            expect=Expect(
                "MRR@5",
                0.01,
                "embedding",
                ("role-in-key",),
                ("dict-with-losses", "lineage"),
                copied_to=("index",),
            ),
            anomalies=("F3-03", "F3-04"),
        ),
    ),
)
