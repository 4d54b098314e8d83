from __future__ import annotations

import pytest

from testbed.core.errors import BrokenContract
from testbed.core.evidence import OpRow
from testbed.core.types import Witness
from testbed.diagnose.shrink import shrink


def stream(n: int, changes: tuple[int, ...] = ()) -> list[OpRow]:
    ops = [OpRow(0, 0.0, "load", "")]
    return ops + [OpRow(i, float(i), "upsert" if i in changes else "ask", str(i)) for i in range(1, n)]


class Replay:
    """Shows the violation when all of ``needed`` were replayed, in order, after the load."""

    def __init__(self, *needed: int) -> None:
        self.needed = needed
        self.calls = 0

    def __call__(self, kept: tuple[int, ...]) -> bool:
        self.calls += 1
        assert kept[0] == 0
        assert list(kept) == sorted(kept)
        return set(self.needed) <= set(kept)


def witness(*ops: int) -> Witness:
    return Witness(ops, "answer", "")


def test_where_the_write_and_the_read_are_enough_little_is_replayed() -> None:
    replay = Replay(7, 18)
    found = shrink(stream(400), witness(7, 18), replay)
    assert (found.ops, found.minimal) == ((0, 7, 18), True)
    assert found.replays == replay.calls == 3  # the pair, then each of the two alone


def test_a_revision_between_write_and_read_is_found() -> None:
    found = shrink(stream(400, changes=(50, 60, 180)), witness(95, 210), Replay(95, 180, 210))
    assert (found.ops, found.minimal) == ((0, 95, 180, 210), True)


def test_asks_that_the_witness_does_not_name_are_found_by_halving() -> None:
    found = shrink(stream(200), witness(20, 150), Replay(3, 20, 77, 150))
    assert (found.ops, found.minimal) == ((0, 3, 20, 77, 150), True)
    assert found.replays < 120


def test_what_comes_after_the_read_is_never_replayed() -> None:
    found = shrink(stream(50), witness(10), Replay(10))
    assert found.ops == (0, 10)


def test_a_violation_of_the_load_alone_needs_no_other_op() -> None:
    assert shrink(stream(20), witness(5, 9), Replay()).ops == (0,)


def test_when_the_replays_are_used_up_the_best_so_far_is_given_and_said_not_to_be_minimal() -> None:
    found = shrink(stream(200), witness(20, 150), Replay(3, 20, 77, 150), max_replays=12)
    assert not found.minimal
    assert found.replays == 12
    assert {3, 20, 77, 150} <= set(found.ops)


def test_a_replay_that_does_not_show_the_violation_is_an_error_and_not_a_witness() -> None:
    with pytest.raises(BrokenContract, match="ops up to 18 do not show the violation"):
        shrink(stream(30), witness(7, 18), lambda kept: False)
