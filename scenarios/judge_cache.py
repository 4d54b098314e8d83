"""A judge that is never wrong about freshness, and a cache of its verdicts that is: keyed without what it was shown."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.verdicts import VerdictKey
from testbed.fixes.given import FreshByJudge
from testbed.fixes.guard import RevisionCheck
from testbed.fixes.invalidate import EventInvalidation
from testbed.fixes.verdicts import VerdictByInput
from testbed.workloads.stream import Stream

SCENARIO = Scenario(
    name="judge-cache",
    summary="the evaluator's own cache is polluted: verdicts outlive what they were about",
    dataset="ledger",
    variants=(
        Variant(
            name="verdict-key",
            summary="verdicts on cached answers are kept by answer, without the state of its documents",
            faults=(VerdictKey(),),
            fixes=(VerdictByInput(), RevisionCheck(), EventInvalidation()),
            workload=Stream(edits=("value",), about=("value",)),
            expect=Expect(
                "stale rate",
                0.03,
                "answer",
                ("verdict-by-input", "revision-check", "event-invalidation"),
                ("freshness", "dict-with-losses"),
            ),
            given=(FreshByJudge(),),
        ),
    ),
)
