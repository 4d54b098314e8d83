"""Key and text unchanged while the meaning changed: a unit, a currency, an enum, a policy that other pages refer to."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.keys import KeyPartDropped
from testbed.fixes.guard import RevisionCheck
from testbed.fixes.invalidate import EventInvalidation
from testbed.fixes.keys import SchemaHashKey
from testbed.workloads.stream import Stream

KINDS = ("unit", "currency", "enum", "composite", "policy-date", "definition")
WHAT = {
    "all": "units, currencies, enums, codes, policy dates and definitions change under unchanged records",
    "unit": "a duration's unit changes (milliseconds to seconds); the record's number stays",
    "currency": "amounts are billed in another currency; the record's amount stays",
    "enum": "a status number gets another meaning",
    "composite": "a field grows from a status to a composite code",
    "policy-date": "the date from which a policy applies moves",
    "definition": "a term that other documents use is defined anew",
}


def drifting(name: str, kinds: tuple[str, ...]) -> Variant:
    return Variant(
        name=name,
        summary=WHAT[name],
        faults=(KeyPartDropped("answer", "epoch"),),
        fixes=(SchemaHashKey(), RevisionCheck(), EventInvalidation()),
        workload=Stream(edits=kinds, about=kinds),
        expect=Expect(
            "true",
            0.10,
            "answer",
            ("schema-hash-key", "revision-check", "event-invalidation"),
            ("freshness", "dict-with-losses"),
        ),
        anomalies=("F15-01", "F15-05", "F6-02") if name == "all" else (),
    )


SCENARIO = Scenario(
    name="semantic-drift",
    summary="what a record means changes while its text and its cache key stay the same",
    dataset="ledger",
    variants=(drifting("all", KINDS), *(drifting(kind, (kind,)) for kind in KINDS)),
)
