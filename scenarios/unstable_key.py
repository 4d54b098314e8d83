"""A cache key that is not the same twice, or the same for two: process hash, time stamp, prompt, dtype, few bits."""

from testbed.core.ports import Change
from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.unstable import KeyTurns, RawTextKey, WeakHash
from testbed.fixes.guard import VerifyOnRead
from testbed.fixes.keys import RobustKey
from testbed.workloads.stream import Stream


def misses(
    name: str, summary: str, fault: Change, layer: str, drop: float, anomalies: tuple[str, ...], stream: Stream
) -> Variant:
    """Costs hits and no truth: no layer is to blame for a wrong answer, and none that is bypassed brings hits back."""
    return Variant(
        name=name,
        summary=summary,
        faults=(fault,),
        fixes=(RobustKey(),),
        workload=stream,
        expect=Expect(f"valid hits[{layer}]", drop, "", ("robust-key",)),
        anomalies=anomalies,
    )


STREAM = Stream()
EDITED = Stream(edits=("*",))  # each edit moves the state of a corpus: answers go, vectors of questions are found again

SCENARIO = Scenario(
    name="unstable-key",
    summary="the key of one value changes without a reason, or two values share one",
    dataset="ledger",
    variants=(
        misses(
            "process-hash",
            "a hash that is salted per process: each of eight workers has a cache of its own",
            KeyTurns("process"),
            "answer",
            0.10,
            ("F4-05",),
            STREAM,
        ),
        misses(
            "volatile-metadata",
            "a time stamp in the key of a vector: everything is embedded again",
            KeyTurns("modified", "embedding"),
            "embedding",
            0.10,
            ("F4-07",),
            EDITED,
        ),
        misses(
            "prompt-wording",
            "the wording of the prompt in the key, touched up every 40 seconds",
            KeyTurns("release", n=40),
            "answer",
            0.10,
            ("F4-08",),
            STREAM,
        ),
        misses(
            "vector-bytes",
            "the bytes of the question's vector in the key, in single or half precision by worker",
            KeyTurns("dtype"),
            "answer",
            0.10,
            ("F4-01", "F4-09", "F4-10"),
            STREAM,
        ),
        misses(
            "request-hash",
            "a hash of the whole request in the key of the semantic level: no other wording is ever found",
            KeyTurns("request"),
            "answer",
            0.03,
            ("F1-04",),
            STREAM,
        ),
        misses(
            "raw-text",
            "the text as the store's key: the store refuses what is longer than 48 bytes",
            RawTextKey(),
            "answer",
            0.10,
            ("F4-11",),
            STREAM,
        ),
        Variant(
            name="few-bits",
            summary="a hash of 8 bits as the key: two questions of anyone share an entry",
            faults=(WeakHash(),),
            fixes=(RobustKey(), VerifyOnRead()),
            workload=STREAM,
            expect=Expect("true", 0.10, "answer", ("robust-key",), ("dict-with-losses", "no-cross-tenant")),
            anomalies=("F3-10", "F3-11", "F4-12"),
        ),
    ),
)
