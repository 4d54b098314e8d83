from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from testbed.core.types import Key, Query
from testbed.faults.matching import LastMessageOnly, LooseEmbedding, ThresholdAlone
from testbed.faults.tiers import PublishedLevel
from testbed.fixes.matching import ExactOnly, GateOnRead, HistoryScopedKey, SecondGate, ValidatedThreshold
from tests.contract.small_stack import small_stack
from tests.contract.test_changes import context

HELD, TWIN, OTHER = "fee for plan 14 in Oslo", "fee for plan 15 in Oslo", "who repairs the lift"


@contextmanager
def holding(*changes: Any, text: str = HELD, ctx: Any = None) -> Iterator[Any]:
    """A stack under these changes whose answer cache holds one answer."""
    stack = small_stack()
    with ExitStack() as on:
        for change in changes:
            on.enter_context(change.applied(stack, ctx or context()))
        stack.layers["answer"].put(key(text), {"of": text})
        yield stack


def key(text: str) -> Key:
    return Key.of(text=text, tenant="a")


def answer(stack: Any, text: str) -> Any:
    return stack.layers["answer"].get(key(text))


@pytest.mark.parametrize("scale", ["similarity", "distance", "unset"])
def test_a_threshold_alone_serves_a_twin_and_a_second_gate_does_not(scale: Any) -> None:
    fault = ThresholdAlone(0.8, scale)
    with holding(fault) as stack:
        assert answer(stack, TWIN) == {"of": HELD}
        assert (answer(stack, OTHER) is None) or scale == "distance"
    for fix in (SecondGate(), ExactOnly()):
        with holding(fault, fix) as stack:
            assert answer(stack, TWIN) is None
            assert answer(stack, HELD) == {"of": HELD}


def test_an_inverted_measure_serves_what_is_least_alike() -> None:
    with holding(ThresholdAlone(scale="inverted")) as stack:
        stack.layers["answer"].put(key(OTHER), {"of": OTHER})
        assert answer(stack, TWIN) == {"of": OTHER}


def test_a_constant_embedding_serves_anything_and_a_validated_threshold_notices() -> None:
    faults = (ThresholdAlone(), LooseEmbedding("constant"))
    with holding(*faults) as stack:
        assert answer(stack, OTHER) == {"of": HELD}
    with holding(*faults, ValidatedThreshold()) as stack:
        assert answer(stack, OTHER) is None
        assert answer(stack, HELD) == {"of": HELD}


def test_a_template_around_every_question_makes_all_of_them_alike() -> None:
    with holding(ThresholdAlone()) as stack:
        assert answer(stack, OTHER) is None
    with holding(ThresholdAlone(), LooseEmbedding("boilerplate")) as stack:
        assert answer(stack, OTHER) == {"of": HELD}


def test_stems_and_synonyms_lose_the_order_and_a_gate_on_read_finds_it() -> None:
    asked, swapped = "transfers from the mill to the port", "transfers from the port to the mill"
    with holding(PublishedLevel(), text=asked) as stack:
        assert answer(stack, swapped) == {"of": asked}
    with holding(PublishedLevel(), GateOnRead(), text=asked) as stack:
        assert answer(stack, swapped) is None


def test_a_key_of_the_last_message_mixes_conversations_until_their_history_is_in_it() -> None:
    talks = [Query("q", f"We look at {thing}.\nWhat is its fee?", "a") for thing in ("Oslo", "Rome")]
    for fixes, found in (((), {"of": talks[0].text}), ((HistoryScopedKey(),), None)):
        ctx = context()
        ctx.asking(talks[0])
        with holding(LastMessageOnly(), *fixes, text=talks[0].text, ctx=ctx) as stack:
            assert answer(stack, talks[0].text) == {"of": talks[0].text}
            ctx.asking(talks[1])
            assert answer(stack, talks[1].text) == found
