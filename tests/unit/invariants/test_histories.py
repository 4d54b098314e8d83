"""Every history in tests/histories is judged as its first row says."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.core.types import Verdict
from testbed.diagnose.judge import INVARIANTS
from tests.histories.trace import HERE, load

NAMES = sorted(path.stem for path in HERE.glob("*.jsonl"))


def judged(name: str) -> tuple[dict[str, Any], Verdict]:
    claim, evidence = load(name)
    invariant = next(i for i in INVARIANTS if i.name == claim["invariant"])
    return claim, invariant.check(evidence)


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_the_one_that_the_history_claims(name: str) -> None:
    claim, verdict = judged(name)
    assert (verdict.holds, verdict.checked) == (claim["holds"], claim["checked"]), verdict
    assert verdict.violations == claim.get("violations", 0)
    assert (verdict.witness is not None) == (claim["holds"] is False)
    assert bool(verdict.why) == (claim["holds"] is None)


@pytest.mark.parametrize("name", [n for n in NAMES if "broken" in n])
def test_the_witness_is_the_write_and_the_read(name: str) -> None:
    claim, verdict = judged(name)
    assert verdict.witness is not None
    assert list(verdict.witness.ops) == claim["ops"], verdict.witness
    assert verdict.witness.layer == claim["layer"]
    assert verdict.witness.story == claim.get("story", verdict.witness.story)


@pytest.mark.parametrize("invariant", [i.name for i in INVARIANTS])
def test_each_invariant_has_a_history_of_each_verdict(invariant: str) -> None:
    claims = [load(name)[0] for name in NAMES]
    assert {c["holds"] for c in claims if c["invariant"] == invariant} == {True, False, None}
