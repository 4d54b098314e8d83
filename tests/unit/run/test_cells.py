"""Seeds, levels and variants as they are typed; a wrong one is one line that says what would be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testbed.core.errors import InvalidInput, Unavailable
from testbed.core.scenario import Scenario
from testbed.run import plan as planning
from testbed.run import scenarios
from testbed.run.cells import MAX_SEEDS, cells, levels_of, seeds_of, variants_of


@pytest.mark.parametrize(
    ("typed", "seeds"),
    [("42", (42,)), ("1-3", (1, 2, 3)), ("1-3, 7", (1, 2, 3, 7)), ("3,1-3", (3, 1, 2)), ("0-0", (0,))],
)
def test_seeds_are_numbers_and_ranges_each_once(typed: str, seeds: tuple[int, ...]) -> None:
    assert seeds_of(typed) == seeds


def test_levels_are_words_and_shares_each_once() -> None:
    assert levels_of("low,medium,0.03,0.1") == (0.1, 0.3, 0.03)


@pytest.mark.parametrize(
    ("read", "typed", "says"),
    [
        (seeds_of, "", "names nothing"),
        (seeds_of, "1,,2", "names nothing"),
        (seeds_of, "5-2", "expected 2-5"),
        (seeds_of, "-1", "SEED=-1"),
        (seeds_of, "one", "SEED=one"),
        (seeds_of, f"0-{MAX_SEEDS}", "more than"),
        (levels_of, "low,", "names nothing"),
        (levels_of, "lo", "low, medium, high"),
        (levels_of, "1.5", "from 0 to 1"),
    ],
)
def test_what_is_none_is_told_in_one_line(read: Callable[[str], Any], typed: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as told:
        read(typed)
    assert "\n" not in str(told.value)


def test_variants_are_the_first_all_or_by_name() -> None:
    every = scenarios.load("tenant-leak").variants
    assert [v.name for _, v in variants_of(["tenant-leak"], "first")] == [every[0].name]
    assert [v for _, v in variants_of(["tenant-leak", "tenant-leak"], "all")] == list(every)
    assert [v.name for _, v in variants_of(["tenant-leak"], "post-filter,answer-key")] == ["answer-key", "post-filter"]
    assert [name for name, _ in variants_of([], "first")] == scenarios.names()


def test_slow_scenarios_are_left_out_unless_they_are_named() -> None:
    slow = scenarios.slow()
    assert slow == ("crash-midwrite", "partition")
    assert [name for name, _ in variants_of([], "first", left_out=slow)] == [
        name for name in scenarios.names() if name not in slow
    ]
    assert [name for name, _ in variants_of([slow[0]], "first", left_out=slow)] == [slow[0]]


def test_a_scenario_that_lacks_an_extra_is_left_out_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_runner(scenario: Scenario, dataset: str) -> None:
        if scenario.name == "tenant-leak":
            raise Unavailable("tenant-leak needs torch; pip install 'rag-testbed[runner]'")

    monkeypatch.setattr(planning, "corpus_of", without_runner)
    said: list[str] = []
    assert "tenant-leak" not in {name for name, _ in variants_of([], "first", said.append)}
    assert said == ["left out: tenant-leak needs torch; pip install 'rag-testbed[runner]'"]
    assert [name for name, _ in variants_of(["tenant-leak"], "first", said.append)] == ["tenant-leak"]


def test_a_variant_that_a_scenario_lacks_is_told() -> None:
    with pytest.raises(InvalidInput, match=r"unknown variant of version-skew 'answer-key'"):
        variants_of(["tenant-leak", "version-skew"], "answer-key")
    with pytest.raises(InvalidInput, match="did you mean 'tenant-leak'"):
        variants_of(["tenant-lek"], "first")


def test_cells_are_all_of_it_multiplied_out_seeds_innermost() -> None:
    made = cells(variants_of(["tenant-leak"], "answer-key"), (1, 2), (0.1, 1.0), 60, ("clean",))
    assert [(c.level, c.seed) for c in made] == [(0.1, 1), (0.1, 2), (1.0, 1), (1.0, 2)]
    assert {(c.scenario, c.variant, c.queries, c.arms) for c in made} == {("tenant-leak", "answer-key", 60, ("clean",))}
