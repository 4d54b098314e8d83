"""The published signature as a key (norm, digest, second): the second ends every entry; without it, everyone shares."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.unstable import PublishedSignature
from testbed.fixes.keys import RobustKey
from testbed.workloads.stream import Stream

LEAKS = ("no-cross-tenant", "dict-with-losses")


def salted(name: str, summary: str, gap_s: float, violates: tuple[str, ...]) -> Variant:
    return Variant(
        name=name,
        summary=summary,
        faults=(PublishedSignature(),),
        fixes=(RobustKey(),),
        workload=Stream(gap_s=gap_s),
        expect=Expect("valid hits[answer]", 0.20, "", ("robust-key",), violates),
    )


SCENARIO = Scenario(
    name="signature-salt",
    summary="the answer cache goes by the published signature of norm, digest and time",
    dataset="ledger",
    variants=(
        salted(
            "ten-a-second", "ten requests a second: an entry lives for the rest of its second, for anyone", 0.1, LEAKS
        ),
        salted("one-a-second", "one request a second: no entry is ever found", 1.0, ()),
        Variant(
            name="without-salt",
            summary="the same without the second: what is left says nothing of who asks and of the corpus",
            faults=(PublishedSignature(salted=False),),
            fixes=(RobustKey(),),
            workload=Stream(),
            expect=Expect("true", 0.10, "answer", ("robust-key",), LEAKS),
        ),
    ),
)
