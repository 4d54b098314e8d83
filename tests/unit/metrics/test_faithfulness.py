from __future__ import annotations

from math import isnan, nan

import pytest

from testbed.core.types import Claim
from testbed.metrics.faithfulness import Graded, Quadrants, faithful, quadrant, quadrants, true


def supported(claim: Claim, served: tuple[Claim, ...]) -> bool:
    return claim in served


def equals(claim: Claim, truth: Claim) -> bool:
    return claim == truth


NOW = Claim("payment gateway", "request timeout", "30", "s")
BEFORE = Claim("payment gateway", "request timeout", "30", "ms")
OTHER = Claim("mail relay", "request timeout", "5", "s")


def test_faithful_is_the_share_of_claims_that_the_sources_support() -> None:
    assert faithful([NOW, OTHER], [NOW], supported) == 0.5
    assert faithful([NOW], [NOW, OTHER], supported) == 1.0
    assert faithful([NOW], [], supported) == 0.0


def test_an_answer_without_claims_is_neither_faithful_nor_unfaithful() -> None:
    assert isnan(faithful([], [NOW], supported))


def test_an_answer_is_true_when_it_states_the_true_claim() -> None:
    assert true([NOW], NOW, equals) == 1.0
    assert true([NOW, OTHER], NOW, equals) == 1.0


def test_a_stale_unit_is_not_true_however_faithful() -> None:
    assert faithful([BEFORE], [BEFORE], supported) == 1.0
    assert true([BEFORE], NOW, equals) == 0.0


def test_stating_the_truth_and_its_contradiction_is_not_true() -> None:
    assert true([NOW, BEFORE], NOW, equals) == 0.0


@pytest.mark.parametrize("claims", [[], [OTHER]])
def test_saying_nothing_of_the_subject_is_not_true(claims: list[Claim]) -> None:
    assert true(claims, NOW, equals) == 0.0


def test_where_no_claim_is_true_an_answer_is_unscored() -> None:
    assert isnan(true([NOW], None, equals))


def test_each_answer_falls_into_one_class() -> None:
    graded = [
        Graded(1.0, 1.0, False),
        Graded(1.0, 0.0, False),
        Graded(1.0, 0.0, False),
        Graded(0.5, 1.0, False),
        Graded(0.0, 0.0, False),
        Graded(nan, 0.0, True),
        Graded(nan, 0.0, False),
        Graded(1.0, nan, False),
    ]
    found = quadrants(graded)
    # Gap over the five that are answered and scored: faithful 3.5 / 5, true 2 / 5.
    assert found == Quadrants(1, 2, 1, 1, abstained=1, unscored=2, gap=pytest.approx(0.3))
    assert quadrant(graded[1]) == "faithful_untrue"


def test_the_gap_of_nothing_is_unscored() -> None:
    assert isnan(quadrants([Graded(nan, nan, True)]).gap)
