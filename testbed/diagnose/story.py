"""What a replay did, in a few lines of plain words, the last of which says what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.core.evidence import Evidence
from testbed.core.types import Doc, Event, Op, Query, Upgrade, Witness
from testbed.invariants.words import quote

MAX_STEPS = 4
ANSWER = 60  # characters of an answer or a text that are shown


def told(ops: Sequence[Op], evidence: Evidence, witness: Witness) -> list[str]:
    """At most four steps and the end: the last op of the witness and what is wrong with what came of it.

    The load comes first; where there are more steps than lines, those in the middle are counted.
    """
    answers = {event.op: event for event in evidence.answers()}
    last = witness.ops[-1]
    before = [op for op in ops if op.index != last]
    steps = [_done(op, _answer(evidence, answers.get(op.index))) for op in before]
    if len(steps) > MAX_STEPS:
        steps = [steps[0], _many(before[1 : 2 - MAX_STEPS]), *steps[2 - MAX_STEPS :]]
    return [*steps, _ending(evidence, witness, answers.get(last))]


def _ending(evidence: Evidence, witness: Witness, answer: Event | None) -> str:
    if answer is None:
        return witness.story
    said, gold = _answer(evidence, answer), evidence.gold.get(answer.op)
    right = ""
    if gold is not None and gold.accept and not any(form in said for form in gold.accept):
        right = f", where {quote(gold.accept[0])} is right"
    return f"{witness.story}: {quote(said, ANSWER)}{right}"


def _answer(evidence: Evidence, event: Event | None) -> str:
    return "" if event is None else evidence.texts.get(event.value, "")


def _done(op: Op, answer: str) -> str:
    match op.item:
        case Query() as query:
            who = f"tenant {query.tenant}" if query.tenant else "someone"
            return f"op {op.index}: {who} asked {quote(query.text)} and got {quote(answer, ANSWER)}"
        case Doc() as doc:
            if op.do == "delete":
                return f"op {op.index}: document {doc.id} was deleted"
            return f"op {op.index}: document {doc.id} became v{doc.version}: {quote(doc.text, ANSWER)}"
        case Upgrade() as upgrade:
            return f"op {op.index}: the encoder was replaced by {upgrade.encoder}, under the same name"
        case docs:
            return f"op {op.index}: {_named([doc.id for doc in docs])}"


def _many(ops: Sequence[Op]) -> str:
    kinds = {"ask": "questions", "upsert": "documents changed", "delete": "documents deleted", "upgrade": "upgrades"}
    counts = {words: sum(op.do == do for op in ops) for do, words in kinds.items()}
    return f"ops {ops[0].index} to {ops[-1].index}: " + ", ".join(f"{n} {words}" for words, n in counts.items() if n)


def _named(ids: Iterable[str], most: int = 4) -> str:
    every = list(ids)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{len(every)} document{'s' * (len(every) != 1)} loaded: {', '.join(every[:most])}{more}"
