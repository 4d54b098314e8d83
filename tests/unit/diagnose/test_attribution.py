from __future__ import annotations

from math import isnan

import pytest

from testbed.diagnose.attribution import (
    Case,
    Suspect,
    accuracy,
    suspects_of_blame,
    suspects_of_matches,
    suspects_of_repair,
    suspects_of_shares,
    wilson,
)
from testbed.diagnose.blame import Blame
from testbed.diagnose.heatmap import Match


def case(injected: str, *suspects: tuple[str, float], method: str = "replay") -> Case:
    return Case(method, tuple(injected.split()), tuple(Suspect(*s) for s in suspects))


def test_a_run_counts_when_the_first_suspects_are_the_injected_layers() -> None:
    cases = [
        case("answer", ("answer", 0.9), ("text", 0.2)),
        case("answer", ("text", 0.6), ("answer", 0.5)),
        case("answer text", ("text", 0.6), ("answer", 0.5)),  # in any order
        case("answer text", ("text", 0.9)),
        case("answer"),
    ]
    (found,) = accuracy(cases)
    assert (found.faulty_runs, found.clean_runs) == (5, 0)
    assert found.named.share == 0.4
    assert found.misnamed.share == 0.4  # in the last one nothing is named
    assert isnan(found.false_blame.share)


def test_any_name_on_a_clean_run_is_false_blame() -> None:
    (found,) = accuracy([case("", ("answer", 0.3)), case(""), case(""), case("")])
    assert found.false_blame.share == 0.25
    assert isnan(found.named.share)


def test_calibration_sets_what_was_said_beside_how_often_it_was_right() -> None:
    cases = [
        case("a", ("a", 0.9)),
        case("a", ("a", 0.9)),
        case("a", ("b", 1.0)),
        case("", ("b", 0.1)),
        case("a"),  # says nothing, so it is not sure of anything
    ]
    (found,) = accuracy(cases, n_bins=2)
    low, high = found.calibration
    assert (low.runs, low.said, low.right) == (1, 0.1, 0.0)
    assert (high.runs, high.said, high.right) == (3, pytest.approx(2.8 / 3), pytest.approx(2 / 3))
    assert found.brier == pytest.approx((0.01 + 0.01 + 1.0 + 0.01) / 4)


def test_methods_are_kept_apart() -> None:
    found = accuracy([case("a", ("a", 1.0)), case("a", ("b", 1.0), method="heatmap")])
    assert [(a.method, a.named.share) for a in found] == [("replay", 1.0), ("heatmap", 0.0)]


def test_blame_names_layers_whose_bypass_clearly_gives_back_a_part() -> None:
    blames = [
        Blame("answer", 0.3, 0.1, 0.5),
        Blame("index", 1.02, 0.9, 1.1),
        Blame("text", 0.4, -0.1, 0.9),
        Blame("embedding", 0.02, 0.01, 0.03),
        Blame("retrieval", None),
    ]
    assert suspects_of_blame(blames) == (Suspect("index", 0.9), Suspect("answer", 0.1))


def test_shares_are_named_by_their_part_of_the_whole() -> None:
    found = suspects_of_shares([("a", 0.1), ("b", 0.3), ("c", 0.0)])
    assert found == (Suspect("b", pytest.approx(0.75)), Suspect("a", 0.25))
    assert suspects_of_shares([("a", -0.1), ("b", 0.1)]) == ()


def test_the_published_method_is_read_by_its_most_confident_match_of_each_layer() -> None:
    matches = [Match("L2", 47, 49, -0.02, 0.86), Match("L3", 83, 85, 0.01, 0.79), Match("L3", 90, 90, 0.0, 0.9)]
    assert suspects_of_matches(matches) == (Suspect("L3", 0.9), Suspect("L2", 0.86))


def test_an_interval_is_honest_for_all_and_none() -> None:
    # Wilson's interval for 10 of 10 begins at 10 / (10 + 1.96^2).
    assert wilson(10, 10) == (1.0, pytest.approx(0.7225, abs=1e-4), pytest.approx(1.0))
    assert wilson(0, 10) == (0.0, pytest.approx(0.0), pytest.approx(0.2775, abs=1e-4))
    assert isnan(wilson(0, 0).low)


def few(layer: str, mended: int, worse: int = 4) -> Blame:
    return Blame(layer, None, why="the drop is not clearly above 0", worse=worse, mended=mended, drop=0.01)


def test_a_drop_of_few_asks_is_told_by_those_that_a_bypass_mends_where_chance_has_no_part() -> None:
    blames = [few("answer", 4), few("text", 2), few("index", 0)]
    assert suspects_of_blame(blames) == ()
    assert suspects_of_blame(blames, exact=True) == (Suspect("answer", pytest.approx(0.51, abs=0.01)),)
    assert suspects_of_blame([few("answer", 0, worse=0)], exact=True) == ()
    gain = few("answer", 4)._replace(drop=-0.1)  # others got better, these are worse all the same
    assert [s.layer for s in suspects_of_blame([gain], exact=True)] == ["answer"]


def test_few_asks_say_nothing_beside_a_clear_drop() -> None:
    clear = Blame("answer", 0.9, 0.5, 1.0, worse=40, mended=36, drop=0.1)
    other = Blame("text", 0.1, -0.1, 0.2, worse=40, mended=10, drop=0.1)
    assert [s.layer for s in suspects_of_blame([clear, other], exact=True)] == ["answer"]
    wide = clear._replace(low=-0.8)
    assert suspects_of_blame([wide]) == ()
    assert [s.layer for s in suspects_of_blame([wide], exact=True)] == ["answer"]


def test_the_smallest_repair_is_told_of_a_deterministic_stack_alone() -> None:
    found = {"layers": ["answer", "text"], "worse": 4, "left": 0}
    assert [s.layer for s in suspects_of_repair(found, exact=True)] == ["answer", "text"]
    assert suspects_of_repair(found, exact=True)[0].confidence == pytest.approx(0.51, abs=0.01)
    assert suspects_of_repair(found, exact=False) == suspects_of_repair(None, exact=True) == ()
    assert suspects_of_repair({"layers": [], "worse": 0, "left": 0}, exact=True) == ()
