"""Old answers that live on: expiry, tiers, slow fills, verdicts; and what mends each."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from testbed.core.clock import LogicalClock
from testbed.core.names import ValueNames
from testbed.core.types import Doc, Query
from testbed.faults.expiry import TtlOnly, UnevenTiers, WeakFallback
from testbed.faults.identity import PathAsIdentity
from testbed.faults.keys import KeyPartDropped
from testbed.faults.reordering import SlowFill
from testbed.faults.tiers import FirstLevelKept, LateMerge
from testbed.faults.verdicts import VerdictKey
from testbed.fixes.expiry import AbsoluteTtl, TtlOnChange
from testbed.fixes.given import FreshByEvents, FreshByJudge
from testbed.fixes.guard import RevisionCheck
from testbed.fixes.keys import EpochKey
from testbed.fixes.lease import LeaseToken, WriteThrough
from testbed.fixes.repair import ReadRepair, TextInvalidation
from testbed.fixes.verdicts import VerdictByInput
from testbed.probes.trace import Recorder
from testbed.run.context import RunContext
from tests.contract.small_stack import Trace, small_stack

WITHOUT_EPOCH = KeyPartDropped("answer", "epoch")
ASKED = Query("q", "What is the request timeout of the gateway?", "acme", "s")


def page(version: int) -> Doc:
    return Doc("gateway", f"The request timeout of the gateway is {version} ms.", "acme", version, kind="record")


class Service:
    """One page and one question about it, under changes, with a clock to move."""

    def __init__(self, *changes: Any) -> None:
        self.clock = LogicalClock()
        self.ctx = RunContext(1, 1.0, self.clock, Recorder(Trace(), ValueNames(), self.clock.now))
        self.stack = small_stack(self.clock)
        self.on = ExitStack()
        for change in changes:
            self.on.enter_context(change.applied(self.stack, self.ctx))
        self.stack.upsert([page(1)])

    def edit(self, at_s: float, version: int = 2) -> None:
        self.clock.move_to(at_s)
        self.stack.upsert([page(version)])

    def ask(self, at_s: float) -> int:
        """The version that the answer was read from."""
        self.clock.move_to(at_s)
        self.ctx.asking(ASKED)
        answer = self.stack.ask(ASKED)
        self.ctx.asking(None)
        return answer.sources[0].version


def asked_after_an_edit(*changes: Any, edit_s: float = 10, at_s: tuple[float, ...] = (0, 20, 40, 60)) -> list[int]:
    service = Service(*changes)
    found = []
    for second in sorted({*at_s, edit_s}):
        if second == edit_s:
            service.edit(second)
        if second in at_s:
            found.append(service.ask(second))
    return found


def test_a_sliding_lifetime_never_ends_for_what_is_asked_often_and_an_absolute_one_does() -> None:
    assert asked_after_an_edit(TtlOnly(30, sliding=True), WITHOUT_EPOCH) == [1, 1, 1, 1]
    assert asked_after_an_edit(TtlOnly(30), WITHOUT_EPOCH) == [1, 1, 2, 2]
    sliding = (TtlOnly(30, sliding=True), WITHOUT_EPOCH)
    assert asked_after_an_edit(*sliding, AbsoluteTtl(30)) == [1, 1, 2, 2]
    assert asked_after_an_edit(*sliding, TtlOnChange(30)) == [1, 1, 2, 2]


def test_a_first_level_outlives_the_second_that_alone_expires() -> None:
    assert asked_after_an_edit(WITHOUT_EPOCH, UnevenTiers(30)) == [1, 1, 1, 1]
    assert asked_after_an_edit(WITHOUT_EPOCH, UnevenTiers(30), AbsoluteTtl(30)) == [1, 1, 2, 2]


def test_a_fallback_is_stale_for_as_long_as_the_server_is_away() -> None:
    assert asked_after_an_edit(WeakFallback(15, 50)) == [1, 1, 1, 2]
    assert asked_after_an_edit(WeakFallback(15, 50), EpochKey()) == [1, 2, 2, 2]


def test_a_known_path_is_not_read_again_and_the_record_repairs_it() -> None:
    assert asked_after_an_edit(PathAsIdentity()) == [1, 1, 1, 1]
    for fix in (ReadRepair(), TextInvalidation()):
        assert asked_after_an_edit(PathAsIdentity(), fix) == [1, 2, 2, 2]


MENDED = (LeaseToken(), RevisionCheck(), EpochKey())


def test_a_service_that_is_fresh_by_events_or_by_a_judge_is_fresh() -> None:
    for given in (FreshByEvents(), FreshByJudge()):
        assert asked_after_an_edit(given) == [1, 2, 2, 2]


def test_a_slow_fill_brings_back_what_was_deleted_and_a_lease_does_not_let_it() -> None:
    fault = (FreshByEvents(), SlowFill(30))
    # made at 0, deleted at 10, put in at 30: served at 40 and 45
    assert asked_after_an_edit(*fault, at_s=(0, 20, 40, 45)) == [1, 2, 1, 1]
    for fix in MENDED:
        assert asked_after_an_edit(*fault, fix, at_s=(0, 20, 40, 45)) == [1, 2, 2, 2]


def test_a_second_level_that_merges_late_brings_back_what_was_deleted() -> None:
    fault = (FreshByEvents(), LateMerge(30))
    assert asked_after_an_edit(*fault, at_s=(0, 40)) == [1, 1]
    for fix in (*MENDED, WriteThrough()):
        assert asked_after_an_edit(*fault, fix, at_s=(0, 40)) == [1, 2]


def test_a_first_level_that_is_not_invalidated_keeps_its_answer() -> None:
    assert asked_after_an_edit(FreshByEvents(), FirstLevelKept()) == [1, 1, 1, 1]
    for fix in MENDED:
        assert asked_after_an_edit(FreshByEvents(), FirstLevelKept(), fix) == [1, 2, 2, 2]


@pytest.mark.parametrize("fix", [VerdictByInput(), RevisionCheck()])
def test_a_verdict_outlives_what_it_was_about_unless_its_key_holds_that(fix: Any) -> None:
    times = (0.0, 5.0, 20.0, 40.0)  # judged fresh at 5, before the edit
    assert asked_after_an_edit(FreshByJudge(), VerdictKey(), at_s=times) == [1, 1, 1, 1]
    assert asked_after_an_edit(FreshByJudge(), VerdictKey(), fix, at_s=times) == [1, 1, 2, 2]
