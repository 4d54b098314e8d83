"""Each violation of a recorded arm, and the least that still shows it: few ops over few documents, really replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from testbed.core.errors import BrokenContract, InvalidInput
from testbed.core.evidence import Evidence
from testbed.core.history import History
from testbed.core.scenario import Arm
from testbed.core.types import Doc, Verdict, Witness
from testbed.diagnose.judge import INVARIANTS
from testbed.diagnose.shrink import Shrunk, fewest, guesses, shrink
from testbed.diagnose.story import told
from testbed.record.folder import RunReader
from testbed.run import plan as planning
from testbed.run import recall, replay
from testbed.run.plan import Plan
from testbed.run.replay import Player, Script

FAULTY = "faulty"
MAX_OPS, MAX_REPLAYS = 10, 300


class Violation(NamedTuple):
    """One violation: of which invariant, where."""

    invariant: str
    witness: Witness


class Telling(Protocol):
    """An invariant that can name all of its violations."""

    @property
    def name(self) -> str: ...
    def judge(self, history: History) -> Verdict: ...
    def witnesses(self, history: History) -> list[Witness]: ...


@dataclass(frozen=True, slots=True)
class Shown:
    """A violation by the least that shows it.

    Parameters
    ----------
    script : what to play; ``witness`` is what is then seen
    of_ops, of_docs : how much the run had
    minimal : no op but the load can be left out
    replays : what finding it took
    notes : what is not as it was when the run was recorded
    story : at most six lines
    """

    scenario: str
    variant: str
    about: str
    invariant: str
    number: int
    of: int
    script: Script
    witness: Witness
    of_ops: int
    of_docs: int
    minimal: bool
    replays: int
    notes: tuple[str, ...]
    story: tuple[str, ...]


class Case:
    """A recorded run, opened again to be replayed.

    Parameters
    ----------
    folder : a whole results folder
    """

    def __init__(self, folder: Path, *, scenarios_dir: Path | None = None) -> None:
        reader = RunReader(folder)
        if FAULTY not in reader.arms:
            raise InvalidInput(f"{folder}: has no arm {FAULTY!r}, whose violations could be shown")
        self._plan, self._arm = replay.reopened(reader.manifest, FAULTY, scenarios_dir)
        history = History(reader.evidence(FAULTY))
        self.notes = tuple(_notes(reader.manifest, self._plan, history.evidence))
        self.violations = violations(history, self._plan.variant.expect.violates)

    def shown(self, number: int, player: Player, *, max_replays: int = MAX_REPLAYS) -> Shown:
        """Violation ``number``, counted from 1, by the least that shows it.

        Raises
        ------
        InvalidInput : there is no such violation
        BrokenContract : replayed, the run does not show it
        """
        if not 1 <= number <= len(self.violations):
            raise InvalidInput(f"violation={number}: {self.numbers() or 'the faulty arm violates nothing'}")
        found = self.violations[number - 1]
        invariant = invariant_named(found.invariant)
        least = _Least(self._plan, self._arm, invariant, found.witness, player)
        try:
            script, minimal = least.find(max_replays)
        except BrokenContract as error:
            why = "; ".join(self.notes) or least.refused or "the stack under test is not deterministic"
            raise BrokenContract(f"violation {number}: {error}; {why}") from error
        witness, evidence = least.seen(script)
        assert witness is not None
        return Shown(
            scenario=self._plan.scenario.name,
            variant=self._plan.variant.name,
            about=self._plan.variant.summary,
            invariant=found.invariant,
            number=number,
            of=len(self.violations),
            script=script,
            witness=witness,
            of_ops=len(self._plan.ops),
            of_docs=len(self._plan.corpus.docs),
            minimal=minimal,
            replays=least.replays,
            notes=self.notes,
            story=tuple(told(script.ops, evidence, witness)),
        )

    def numbers(self) -> str:
        """Which numbers stand for violations of which invariant: ``no-cross-tenant 1-226, freshness 227-230``."""
        names = [v.invariant for v in self.violations]
        first = {name: names.index(name) + 1 for name in dict.fromkeys(names)}
        return ", ".join(f"{n} {at}-{at + names.count(n) - 1}" for n, at in first.items())


def violations(history: History, expected: Sequence[str] = ()) -> list[Violation]:
    """Every violation, those of one invariant together; the one that a run's summary tells is the first.

    ``expected``: invariants whose violations come first, of those that are told by a write and a read.
    """
    broken: list[tuple[Verdict, list[Witness]]] = []
    for invariant in INVARIANTS:
        verdict = invariant.judge(history)
        if verdict.holds is False and verdict.witness is not None:
            others = [w for w in invariant.witnesses(history) if w != verdict.witness]
            broken.append((verdict, [verdict.witness, *others]))

    def rank(found: tuple[Verdict, list[Witness]]) -> tuple[bool, int]:
        name = found[0].invariant
        return len(found[1][0].ops) != 2, expected.index(name) if name in expected else len(expected)

    return [Violation(v.invariant, witness) for v, found in sorted(broken, key=rank) for witness in found]


def _notes(described: Mapping[str, Any], plan: Plan, evidence: Evidence) -> Iterator[str]:
    yield from recall.differences(described, plan)
    if planning.op_rows(plan.ops) != list(evidence.ops):
        yield "the same seed now gives other operations"


def invariant_named(name: str) -> Telling:
    return next(invariant for invariant in INVARIANTS if invariant.name == name)


class _Least:
    """Looks for the least that shows one violation: the same invariant, broken at the same op by the same layer."""

    def __init__(self, plan: Plan, arm: Arm, invariant: Telling, witness: Witness, player: Player) -> None:
        self._plan, self._arm = plan, arm
        self._invariant, self._witness = invariant, witness
        self._player = player
        self._before = player.played
        self.refused = ""  # why the stack could not play the last of the scripts that it could not play

    @property
    def replays(self) -> int:
        return self._player.played - self._before

    def find(self, max_replays: int) -> tuple[Script, bool]:
        """A few documents for the ops that are likely to be enough, then the fewest ops over these documents.

        Loading few documents is what makes a replay cheap.
        """
        rows = planning.op_rows(self._plan.ops)
        load = [op.index for op in rows if op.do == "load"]
        likely = ((*load, *guess) for guess in guesses(rows, self._witness))
        start = next((kept for kept in likely if self._shows(None)(kept)), None)
        if start is None:
            start = shrink(rows, self._witness, self._shows(None), max_replays=max_replays).ops
        some = self._documents(start, None, max_replays)
        least = self._operations(len(load), start, some, max_replays)
        fewer = self._documents(least.ops, some, max_replays)
        while (both := self._without_a_change(least.ops, fewer)) is not None:
            kept, fewer = both
            least = self._operations(len(load), kept, fewer, max_replays)
        return replay.script_of(self._plan, self._arm, set(least.ops), fewer), least.minimal

    def seen(self, script: Script) -> tuple[Witness | None, Evidence]:
        """The violation as a replay shows it, None when it does not."""
        evidence = self._player.play(script)
        found = self._invariant.witnesses(History(evidence))
        same = [w for w in found if (w.ops[-1], w.layer) == (self._witness.ops[-1], self._witness.layer)]
        return (same[0] if same else None), evidence

    def _shows(self, docs: frozenset[str] | None) -> Callable[[tuple[int, ...]], bool]:
        def shows(kept: tuple[int, ...]) -> bool:
            try:
                return self.seen(replay.script_of(self._plan, self._arm, set(kept), docs))[0] is not None
            except InvalidInput as error:  # too little for the stack to run at all, such as a model without its adapter
                self.refused = f"the stack cannot play it: {error}"
                return False

        return shows

    def _operations(self, n_load: int, kept: tuple[int, ...], docs: frozenset[str] | None, max_replays: int) -> Shrunk:
        """The fewest of these ops that show it over these documents; the load is kept."""
        load, shows = kept[:n_load], self._shows(docs)
        least = fewest(kept[n_load:], lambda some: shows((*load, *some)), max_replays=max_replays)
        return replace(least, ops=(*load, *least.ops))

    def _without_a_change(
        self, kept: tuple[int, ...], docs: frozenset[str] | None
    ) -> tuple[tuple[int, ...], frozenset[str]] | None:
        """Without a change and the document that it changes, both at once; None where neither can go.

        A document that is loaded and not deleted takes the place of the one that shows it: then its deletion cannot be
        left out alone.
        """
        for op in self._plan.ops:
            if docs and op.index in kept and isinstance(op.item, Doc) and op.item.id in docs:
                rest, fewer = tuple(i for i in kept if i != op.index), docs - {op.item.id}
                if self._shows(fewer)(rest):
                    return rest, fewer
        return None

    def _documents(
        self, kept: tuple[int, ...], known: frozenset[str] | None, max_replays: int
    ) -> frozenset[str] | None:
        """Ids of a few documents to load; None for all of them, when none can be left out.

        Those that the asks are about, so that the answers are what they were; else the fewest of those touched; else
        the fewest of those ``known`` to show it: where positions count, documents matter that nobody asked for, and
        few ops that show it over few documents need not show it over all.
        """
        evidence = self._player.play(replay.script_of(self._plan, self._arm, set(kept), known))
        about = frozenset(replay.with_references(self._plan, _about(evidence)))
        if about and self._shows(about)(kept):
            return about
        near = sorted(about | _touched(evidence))
        if not self._shows(frozenset(near))(kept):
            near = [doc.id for doc in self._plan.corpus.docs if known is None or doc.id in known]
        found = fewest(
            range(len(near)), lambda some: self._shows(frozenset(near[i] for i in some))(kept), max_replays=max_replays
        )
        return None if len(found.ops) == len(self._plan.corpus.docs) else frozenset(near[i] for i in found.ops)


def _about(evidence: Evidence) -> set[str]:
    """Documents that the asks of a replay should have found, and those that its edits name."""
    out = {doc_id for gold in evidence.gold.values() for doc_id in gold.relevant}
    return out | {op.id for op in evidence.ops if op.do in ("upsert", "delete")}


def _touched(evidence: Evidence) -> set[str]:
    """Documents that the asks of a replay ranked, read or searched among."""
    out: set[str] = set()
    for ask in History(evidence).asks.values():
        out |= {*ask.ranking, *(doc_id for doc_id, _, _ in ask.sources)}
        out |= {doc_id for search in ask.searches for doc_id, _ in search.rows}
        out |= {stray.key.get("doc", "") for search in ask.searches for stray in search.strays}
    return out & {doc_id for doc_id, _ in evidence.docs}
