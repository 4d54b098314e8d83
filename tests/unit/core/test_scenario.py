from __future__ import annotations

from dataclasses import replace

from testbed.core.scenario import Expect, Variant, arms_of
from testbed.faults.keys import KeyPartDropped
from testbed.fixes.given import FreshByEvents
from testbed.workloads.stream import Stream

VARIANT = Variant(
    "v", "", (KeyPartDropped("answer", "tenant"),), (), Stream(), Expect("true", 0.1, "answer", ()), given=()
)


def test_every_arm_is_of_a_service_that_is_built_as_the_variant_says() -> None:
    arms = arms_of(replace(VARIANT, given=(FreshByEvents(),)), ("answer", "text"))
    assert [a.name for a in arms] == ["clean", "faulty", "faulty-without:answer", "faulty-without:text"]
    assert all(a.given == (FreshByEvents(),) for a in arms)


def test_two_layers_that_are_to_blame_are_bypassed_together_too() -> None:
    arms = arms_of(replace(VARIANT, expect=Expect("true", 0.1, "answer+text", ())), ("answer", "text"))
    assert arms[-1].name == "faulty-without:answer+text"
    assert arms[-1].bypass == ("answer", "text")
