"""A full cache that lets go of what is asked: bugs in LRU under a long tail, and a policy that keeps stale answers."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.eviction import Bug, PolicyBug
from testbed.faults.keys import KeyPartDropped
from testbed.fixes.eviction import RightPolicy
from testbed.fixes.given import BoundedAnswers
from testbed.fixes.guard import RevisionCheck
from testbed.workloads.stream import Stream

POLICIES = tuple(RightPolicy(policy) for policy in ("lru", "sieve", "s3-fifo", "w-tinylfu"))


TAIL = Stream(zipf_s=1.2)
EDITED = Stream(zipf_s=1.2, edits=("*",))  # keys move with the corpus, and old entries are dead


def bug(kind: Bug, summary: str, drop: float, *anomalies: str, workload: Stream = TAIL) -> Variant:
    return Variant(
        name=kind,
        summary=summary,
        faults=(PolicyBug(kind),),
        fixes=POLICIES,
        workload=workload,
        expect=Expect("valid hits[answer]", drop, "", ("right-lru",)),
        anomalies=anomalies,
        given=(BoundedAnswers(64),),
    )


SCENARIO = Scenario(
    name="long-tail-eviction",
    summary="64 answers are kept of the many that are asked for, and the policy keeps the wrong ones",
    dataset="ledger",
    variants=(
        bug("fifo", "called LRU, but neither a read nor a write moves an entry", 0.02, "F12-03", "F12-06"),
        bug("new-first", "a new entry counts as never used: the next to go", 0.05, "F12-02", workload=EDITED),
        bug("over-evict", "half of the cache goes where one entry had to", 0.02, "F12-04"),
        Variant(
            name="stale-residents",
            summary="LFU never lets go of what is asked most, so of stale answers it keeps those longest",
            faults=(KeyPartDropped("answer", "epoch"),),
            fixes=(RevisionCheck(), *POLICIES),
            workload=Stream(zipf_s=1.2, edits=("value",), about=("value",)),
            expect=Expect("true", 0.10, "answer", ("revision-check",), ("freshness", "dict-with-losses")),
            given=(BoundedAnswers(24, "lfu"),),
        ),
    ),
)
