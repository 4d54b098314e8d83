"""Another question's answer: similar is not the same, by a negation, a number, a name, a unit, an order, a date."""

from testbed.core.ports import Change
from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.matching import LastMessageOnly, LooseEmbedding, ThresholdAlone
from testbed.faults.tiers import PublishedLevel
from testbed.fixes.matching import ExactOnly, GateOnRead, HistoryScopedKey, SecondGate, ValidatedThreshold
from testbed.workloads.stream import Stream

FIXES = (SecondGate(), ExactOnly(), ValidatedThreshold())
KINDS = {
    "negation": ("what includes a thing and what goes without it are one question to a threshold", ("F1-01",)),
    "number": ("release 14 and release 15 are one question to a threshold", ()),
    "entity": ("two places or attributes are one question to a threshold", ()),
    "unit": ("a price by the kilogram and one by the pound are one question to a threshold", ()),
    "role-swap": ("from A to B and from B to A are one question to a threshold", ()),
    "date": ("March and May are one question to a threshold", ()),
    "quantifier": ("first and last, all and some are one question to a threshold", ()),
}


def false_hit(
    name: str,
    summary: str,
    faults: tuple[Change, ...],
    about: tuple[str, ...],
    anomalies: tuple[str, ...],
    *,
    metric: str = "true",
    drop: float = 0.10,
    fixes: tuple[Change, ...] = FIXES,
    cured_by: tuple[str, ...] = ("second-gate", "exact-only"),
) -> Variant:
    return Variant(
        name=name,
        summary=summary,
        faults=faults,
        fixes=fixes,
        workload=Stream(about=about),
        expect=Expect(metric, drop, "answer", cured_by, ("dict-with-losses",)),
        anomalies=anomalies,
    )


SCENARIO = Scenario(
    name="false-hit",
    summary="the semantic cache serves the answer to a question that only looks like the one asked",
    dataset="twins",
    variants=(
        *(false_hit(kind, what, (ThresholdAlone(),), (kind,), rows) for kind, (what, rows) in KINDS.items()),
        false_hit(
            "multi-turn",
            "the key is the last message: 'what is its fee?' has one answer in all conversations",
            (LastMessageOnly(),),
            ("multi-turn",),
            ("F1-08", "F1-09"),
            fixes=(HistoryScopedKey(), *FIXES),
            cured_by=("history-scoped-key",),
        ),
        false_hit(
            "distance",
            "a similarity is given where a distance is expected: nearly everything is near enough",
            (ThresholdAlone(scale="distance"),),
            (),
            ("F1-05", "F1-11"),
        ),
        false_hit(
            "unset",
            "a limit of 0, for the same text only, reads as none given and becomes the default",
            (ThresholdAlone(scale="unset"),),
            (),
            ("F1-06", "F1-13"),
        ),
        false_hit(
            "inverted",
            "the measure's sign is turned: the least similar entry is served",
            (ThresholdAlone(scale="inverted"),),
            (),
            ("F1-07",),
        ),
        false_hit(
            "constant",
            "a failing embedder gives every question the same vector",
            (ThresholdAlone(), LooseEmbedding("constant")),
            (),
            ("F1-03",),
            cured_by=("second-gate", "exact-only", "validated-threshold"),
        ),
        false_hit(
            "stems",
            "the published second level: stems and synonyms lose the order, and the words that count",
            (PublishedLevel(),),
            ("role-swap", "quantifier"),
            (),
            metric="bad hits[answer]",
            drop=0.02,
            fixes=(GateOnRead(),),
            cured_by=("gate-on-read",),
        ),
        false_hit(
            "boilerplate",
            "the whole prompt is embedded, and its template outweighs the question",
            (ThresholdAlone(), LooseEmbedding("boilerplate")),
            (),
            ("F1-12",),
        ),
    ),
)
