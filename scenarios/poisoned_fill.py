"""A bad value is admitted: an error page, the first half of an answer, a stream that somebody has already drained."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.poison import DrainedStream, FailedCallCached
from testbed.fixes.admit import AdmissionCheck
from testbed.workloads.stream import Stream

FIXES = (AdmissionCheck(),)
CURED_BY = ("admission-check",)
STREAM = Stream()

SCENARIO = Scenario(
    name="poisoned-fill",
    summary="a failed or broken answer is kept, and outlives the failure",
    dataset="ledger",
    variants=(
        Variant(
            name="error-page",
            summary="a call fails, its body is cached without its status, and served as an answer from then on",
            faults=(FailedCallCached("error"),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect("true", 0.15, "answer", CURED_BY, ("only-complete-values",)),
            anomalies=("F14-01",),
        ),
        Variant(
            name="truncated",
            summary="a connection breaks in the middle of an answer; the half that came is cached",
            faults=(FailedCallCached("truncated"),),
            fixes=FIXES,
            workload=STREAM,
            # A half that ends where a sentence does is let in.
            expect=Expect("true", 0.10, "answer", CURED_BY, ("only-complete-values",), recovers=0.90),
            anomalies=("F14-01",),
        ),
        Variant(
            name="drained-stream",
            summary="the stream of an answer is cached instead of its text: the second asker gets nothing",
            faults=(DrainedStream(),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect("true", 0.20, "answer", CURED_BY, ("only-complete-values", "dict-with-losses")),
            anomalies=("F14-05",),
        ),
    ),
)
