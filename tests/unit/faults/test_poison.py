from __future__ import annotations

from typing import Any

import pytest

from testbed.core.scenario import Arm
from testbed.core.types import Query
from testbed.faults.poison import ERROR_PAGE, DrainedStream, FailedCallCached, cut
from testbed.fixes.admit import AdmissionCheck, flaw
from testbed.run.arms import changed
from tests.contract.small_stack import DOCS, small_stack
from tests.contract.test_changes import context

QUERY = Query("q", "What is the request timeout of the gateway?", "acme")
RIGHT = "The request timeout of the gateway is 10 ms. Every request timeout is given in milliseconds."


def asked_three_times(*changes: Any) -> list[str]:
    stack, ctx = small_stack(), context()
    fixes = tuple(c for c in changes if isinstance(c, AdmissionCheck))
    with changed(stack, Arm("x", tuple(c for c in changes if c not in fixes), fixes), ctx):
        stack.upsert(DOCS)
        ctx.asking(QUERY)
        return [stack.ask(QUERY).text for _ in range(3)]


def test_a_failed_call_is_tried_again_and_answered_by_the_cache() -> None:
    assert asked_three_times(FailedCallCached("error", 1.0)) == [ERROR_PAGE] * 3
    assert asked_three_times(FailedCallCached("truncated", 1.0)) == [cut(RIGHT)] * 3


def test_the_second_asker_of_a_stream_gets_nothing() -> None:
    assert asked_three_times(DrainedStream()) == [RIGHT, "", ""]


@pytest.mark.parametrize("fault", [FailedCallCached("error", 1.0), FailedCallCached("truncated", 1.0), DrainedStream()])
def test_what_is_not_admitted_is_made_again(fault: Any) -> None:
    assert asked_three_times(fault, AdmissionCheck()) == [RIGHT] * 3


@pytest.mark.parametrize(
    ("text", "abstained", "why"),
    [
        (RIGHT, False, ""),
        ("", False, "it is empty"),
        ("", True, ""),
        (ERROR_PAGE, False, "it was not read from its sources"),
        ("The request timeout of the gateway", False, "it stops in the middle of a sentence"),
        ("10 ms.", False, ""),
    ],
)
def test_only_whole_answers_that_were_read_from_something_are_kept(text: str, abstained: bool, why: str) -> None:
    assert flaw({"text": text, "abstained": abstained, "sources": [["d", 1, RIGHT]]}) == why
