"""The fewest operations that still show a violation: delta debugging over the ops of a run, replayed each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.core.errors import BrokenContract
from testbed.core.evidence import OpRow
from testbed.core.types import Witness


@dataclass(frozen=True, slots=True)
class Shrunk:
    """``ops`` still show the violation, in order. ``minimal``: leaving out any one of them (but the load) hides it.

    ``replays`` is what finding them took.
    """

    ops: tuple[int, ...]
    minimal: bool
    replays: int


class _OutOfReplays(Exception):
    pass


def shrink(
    ops: Sequence[OpRow], witness: Witness, shows: Callable[[tuple[int, ...]], bool], *, max_replays: int = 200
) -> Shrunk:
    """Reduce the ops up to the witness's read.

    Parameters
    ----------
    ops : all ops of the run, the load first; the load is always kept
    witness : where the violation was seen; its ops are tried first
    shows : replays the ops with these indices and says whether the violation is still there
    max_replays : the best found so far is returned when they are used up, ``minimal`` False

    Raises
    ------
    BrokenContract : the whole of it does not show the violation: the replay is not the run.

    References
    ----------
    Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002.
    """
    load = tuple(op.index for op in ops if op.do == "load")
    until = [op for op in ops if op.index <= witness.ops[-1] and op.do != "load"]
    search = _Search(load, shows, max_replays)
    best = [op.index for op in until]
    try:
        best = next((guess for guess in guesses(ops, witness) if search.shows(guess)), best)
        if len(best) == len(until) and not search.shows(best):
            raise BrokenContract(f"the ops up to {witness.ops[-1]} do not show the violation when they are replayed")
        while (smaller := search.smaller(best)) is not None:
            best = smaller
    except _OutOfReplays:
        return Shrunk((*load, *best), False, search.replays)
    return Shrunk((*load, *best), True, search.replays)


def fewest(things: Sequence[int], shows: Callable[[tuple[int, ...]], bool], *, max_replays: int = 200) -> Shrunk:
    """The fewest of some numbered things that still show it; all of them are known to."""
    search, best = _Search((), shows, max_replays), list(things)
    try:
        while best and (smaller := search.smaller(best)) is not None:
            best = smaller
    except _OutOfReplays:
        return Shrunk(tuple(best), False, search.replays)
    return Shrunk(tuple(best), True, search.replays)


def guesses(ops: Sequence[OpRow], witness: Witness) -> list[list[int]]:
    """Ops that are likely to be enough: the write and the read; then with what changed the documents before the read.

    The load aside, which is always kept.
    """
    until = [op for op in ops if op.index <= witness.ops[-1] and op.do != "load"]
    pair = set(witness.ops)
    changes = {op.index for op in until if op.do != "ask"}
    return [[op.index for op in until if op.index in kept] for kept in (pair, pair | changes)]


class _Search:
    """Asks for each subset once, and counts."""

    def __init__(self, load: tuple[int, ...], shows: Callable[[tuple[int, ...]], bool], max_replays: int) -> None:
        self._load, self._shows, self._max = load, shows, max_replays
        self._memo: dict[tuple[int, ...], bool] = {}
        self.replays = 0

    def shows(self, kept: Sequence[int]) -> bool:
        key = tuple(kept)
        if key not in self._memo:
            if self.replays >= self._max:
                raise _OutOfReplays
            self.replays += 1
            self._memo[key] = self._shows((*self._load, *key))
        return self._memo[key]

    def smaller(self, kept: list[int]) -> list[int] | None:
        """``kept`` without some part of it, large parts tried first; None when it cannot lose a single op."""
        size = len(kept) // 2
        while size >= 1:
            for start in range(0, len(kept), size):
                rest = kept[:start] + kept[start + size :]
                if self.shows(rest):
                    return rest
            size //= 2
        return [] if len(kept) == 1 and self.shows([]) else None
