from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.core.scenario import Scenario, arms_of
from testbed.run import scenarios

TEXT = """
from testbed.core.scenario import Scenario
SCENARIO = Scenario(name={name!r}, summary="", dataset="ledger", variants=())
"""


def test_scenarios_are_named_after_their_files(tmp_path: Path) -> None:
    for name in ("b_two", "a_one", "_private"):
        (tmp_path / f"{name}.py").write_text(TEXT.format(name=name.replace("_", "-")))
    assert scenarios.names(tmp_path) == ["a-one", "b-two"]
    assert scenarios.load("a-one", tmp_path).name == "a-one"


def test_an_unknown_scenario_names_the_nearest() -> None:
    with pytest.raises(
        InvalidInput, match=r"unknown scenario 'tenant-lek'; did you mean 'tenant-leak'\? \(make list\)"
    ):
        scenarios.load("tenant-lek")


@pytest.mark.parametrize("name", ["../secrets", "/etc/passwd", "tenant_leak", "a\0b", ""])
def test_a_hostile_name_is_only_an_unknown_one(name: str) -> None:
    with pytest.raises(InvalidInput, match="unknown scenario"):
        scenarios.load(name)


def test_a_file_without_a_scenario_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(InvalidInput, match="must define SCENARIO"):
        scenarios.load("empty", tmp_path)
    (tmp_path / "other.py").write_text(TEXT.format(name="another"))
    with pytest.raises(InvalidInput, match="defines scenario 'another'; expected 'other'"):
        scenarios.load("other", tmp_path)


@pytest.mark.parametrize("name", scenarios.names())
def test_every_variant_has_its_arms_and_promises_something(name: str) -> None:
    scenario: Scenario = scenarios.load(name)
    assert len({v.name for v in scenario.variants}) == len(scenario.variants) >= 1
    for variant in scenario.variants:
        fixes = [fix.name for fix in variant.fixes]
        assert variant.expect.drop_at_least > 0
        assert set(variant.expect.cured_by) <= set(fixes) and variant.expect.cured_by
        arms = [arm.name for arm in arms_of(variant, ("answer", "index"))]
        assert arms[:2] == ["clean", "faulty"]
        joint = 1 if "+" in variant.expect.blame else 0
        assert len(set(arms)) == len(arms) == 2 + 2 * len(fixes) + 2 + joint
