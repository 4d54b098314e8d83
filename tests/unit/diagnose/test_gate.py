from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from testbed.diagnose.contrast import Contrast, Name
from testbed.diagnose.findings import Decision, Finding, Judged
from testbed.diagnose.gate import LEEWAY, judge, stale
from testbed.diagnose.regressions import _fallen, _outside, decide
from testbed.diagnose.remember import broken_promises, cell_of
from testbed.diagnose.significance import Interval
from tests.unit.diagnose.judged import BROKEN, BY_CHANCE, DESCRIBED, HOLDS, N_ASKS, arm_scores, cell, run


def gate(tmp_path: Path, *, twin: Any = None, options: dict[str, Any] | None = None, **changed: Any) -> Decision:
    """A run with these changes, held to one without."""
    settings = changed.get("settings", DESCRIBED["settings"])
    then = cell(tmp_path / "then", settings=settings)
    return decide([judge("tenant-leak", then, run(tmp_path / "now", **changed), twin=twin, **options or {})])


def found(decision: Decision, outcome: str = "failed") -> list[Finding]:
    return [finding for _, finding in decision.findings(outcome)]  # type: ignore[arg-type]


def lower(share: float, start: int = 0) -> list[float | None]:
    """One run of wrong answers in a stream of right ones."""
    return [0.0 if start <= place < start + round(share * N_ASKS) else 1.0 for place in range(N_ASKS)]


ORDER = ["clean", "faulty", *(f"faulty-without:{x}" for x in ("answer", "retrieval", "embedding", "answer+text"))]


def exact(tmp_path: Path) -> Judged:
    return judge("tenant-leak", cell(tmp_path / "then"), run(tmp_path / "now"))


def contrast(metric: str, wins: int, losses: int, n: int = 400) -> Contrast:
    """Of the arm ``clean``: so many asks better and worse by 1."""
    mean = (wins - losses) / n
    interval = Interval(mean, mean - 0.01, mean + 0.01)
    return Contrast(
        Name("clean", metric), 1.0, 1.0 + mean, interval, 0.0, wins, n - wins - losses, losses, 0.1, n, 0, 1.0, 1.0
    )


def test_the_same_run_passes_and_says_that_it_is_the_same(tmp_path: Path) -> None:
    decision = gate(tmp_path)
    assert (decision.code, decision.cells[0].findings) == (0, ())
    assert decision.cells[0].same_trace
    assert decision.cells[0].outcome() == "passed"


def test_a_lower_metric_fails_with_its_numbers_its_layer_and_the_first_case(tmp_path: Path) -> None:
    scores = arm_scores(0.8)
    (failed,) = found(gate(tmp_path, scores={"clean": scores}, hits=N_ASKS))[:1]
    assert (failed.rule, failed.arm, failed.metric, failed.layer) == ("metric", "clean", "true", "answer")
    assert "true fell by 0.200, 1.000 -> 0.800" in failed.text
    assert failed.contrast is not None
    assert failed.contrast.interval.mean == pytest.approx(-0.2)
    assert failed.contrast.interval.high < 0
    first = scores.index(0.0) + 1
    assert failed.witness.startswith(f'op {first} (seed 42): tenant a asked "how long is the timeout?": true 1 -> 0')


def test_a_lower_metric_within_its_tolerance_passes(tmp_path: Path) -> None:
    assert gate(tmp_path, scores={"clean": arm_scores(0.98)}, settings=BY_CHANCE).code == 0


def test_one_worse_answer_of_a_deterministic_stack_fails(tmp_path: Path) -> None:
    decision = gate(tmp_path, scores={"clean": lower(1 / N_ASKS, start=7)})
    (failed,) = found(decision)
    assert (failed.rule, failed.arm, failed.metric) == ("metric", "clean", "true")
    assert failed.text.endswith("1 ask is worse, 0 better, and chance has no part in it")
    assert failed.witness.startswith("op 8 ")
    assert decision.cells[0].sees == 1 / N_ASKS


def test_what_is_worse_here_and_better_there_is_no_worse_metric(tmp_path: Path) -> None:
    then = cell(tmp_path / "then", scores={"clean": lower(0.01)})
    now = run(tmp_path / "now", scores={"clean": lower(0.01, start=100)})
    decision = decide([judge("tenant-leak", then, now)])
    assert [f.rule for f in found(decision, "noted")] == ["determinism"] and decision.code == 0


def test_an_inner_cache_may_lose_what_an_outer_one_serves(tmp_path: Path) -> None:
    assert _outside("embedding", ORDER) == ["answer", "retrieval"] and _outside("answer", ORDER) == []
    assert _outside("answer.l1", ORDER) == ["answer"] and _outside("cache", ORDER) == _outside("", ORDER) == []
    judged = exact(tmp_path)
    judged.asks.reader.summary["order"] = ["clean", "faulty-without:outer", "faulty-without:answer"]  # type: ignore[union-attr]
    rows = [contrast("valid hits[outer]", 14, 0), contrast("valid hits[answer]", 0, 1, n=40)]
    assert [f.outcome for f in _fallen([judged], rows)] == ["noted"]
    assert [f.outcome for f in _fallen([judged], rows[1:])] == ["failed"]
    inner = [contrast("valid hits[text]", 14, 0), rows[1]]
    assert [f.outcome for f in _fallen([judged], inner)] == ["failed"]


def test_another_axis_is_allowed_and_nothing_else(tmp_path: Path) -> None:
    then, now = cell(tmp_path / "then"), run(tmp_path / "now", scores={"clean": lower(0.01)})
    assert decide([judge("tenant-leak", then, now, across=("store",))]).code == 1


def test_one_seed_does_not_make_up_for_another(tmp_path: Path) -> None:
    worse = judge("tenant-leak", cell(tmp_path / "a"), run(tmp_path / "b", scores={"clean": lower(0.01)}))
    then = replace(cell(tmp_path / "c", scores={"clean": lower(0.01)}), seed=43)
    better = judge("tenant-leak", then, run(tmp_path / "d"))
    assert decide([worse, better]).code == 1


@pytest.mark.parametrize("then", [True, False])
def test_a_stack_that_says_another_thing_of_itself_is_told_and_held_to_chance(tmp_path: Path, then: bool) -> None:
    said = {"settings": {**DESCRIBED["settings"], "deterministic": then}}
    now = {"settings": {**DESCRIBED["settings"], "deterministic": not then}}
    changed = run(tmp_path / "now", scores={"clean": arm_scores(0.99)}, **now)
    decision = decide([judge("tenant-leak", cell(tmp_path / "then", **said), changed, exact=True)])
    assert decision.code == 0
    assert any("itself deterministic when the baseline was recorded" in f.text for f in found(decision, "noted"))


def test_a_loss_that_rounds_to_nothing_is_told_with_its_digits(tmp_path: Path) -> None:
    (failed,) = _fallen([exact(tmp_path)], [contrast("true", 0, 1, n=4000)])
    assert failed.text.startswith("true fell by 0.000250, 1.000000 -> 0.999750")
    assert failed.text.endswith("1 ask is worse, 0 better, and chance has no part in it")


def test_another_stack_is_held_to_what_chance_explains(tmp_path: Path) -> None:
    options: dict[str, Any] = {"across": ("stack",)}
    other = {**DESCRIBED["settings"], "stack": "mine:build"}
    then = cell(tmp_path / "then")
    near, far = (run(tmp_path / str(s), scores={"clean": arm_scores(s)}, settings=other) for s in (0.98, 0.8))
    assert decide([judge("tenant-leak", then, near, **options)]).code == 0
    assert decide([judge("tenant-leak", then, far, **options)]).code == 1


def test_a_tolerance_can_be_set_in_the_baseline(tmp_path: Path) -> None:
    remembered = cell(tmp_path / "then")
    wide = replace(remembered, tolerance={**remembered.tolerance, "true": 0.25})
    now = run(tmp_path / "now", scores={"clean": arm_scores(0.8)})
    assert decide([judge("tenant-leak", remembered, now)]).code == 1
    assert decide([judge("tenant-leak", wide, now)]).code == 0


def test_a_difference_that_chance_explains_is_a_note_and_no_failure(tmp_path: Path) -> None:
    # One stretch of asks that neighbours share: 3 % lower, and the same stretch elsewhere would have been no surprise.
    decision = gate(tmp_path, scores={"clean": lower(0.03)}, settings=BY_CHANCE)
    assert decision.code == 0
    (note,) = [f for f in found(decision, "noted") if f.rule == "metric"]
    assert "not significant" in note.text


def test_a_better_metric_passes(tmp_path: Path) -> None:
    remembered = cell(tmp_path / "then", scores={"clean": arm_scores(0.8), "clean+cure": arm_scores(0.8)})
    now = run(tmp_path / "now")
    assert [f for f in decide([judge("tenant-leak", remembered, now)]).cells[0].findings if f.rule == "metric"] == []


def test_fewer_valid_hits_fail_and_name_the_layer(tmp_path: Path) -> None:
    failed = [f for f in found(gate(tmp_path, hits=100)) if f.arm == "clean"]
    assert [(f.metric, f.layer) for f in failed] == [("valid hits[answer]", "answer")]


def test_a_worse_faulty_arm_is_not_a_regression(tmp_path: Path) -> None:
    assert gate(tmp_path, arms={"faulty": (0.4, BROKEN)}).code == 0


def test_an_invariant_that_is_newly_violated_fails_with_its_witness(tmp_path: Path) -> None:
    (failed,) = found(gate(tmp_path, arms={"clean": (1.0, BROKEN)}, moved=("clean",)))
    assert (failed.rule, failed.arm, failed.layer, failed.metric) == (
        "invariants",
        "clean",
        "answer",
        "no-cross-tenant",
    )
    assert failed.witness == "op 9: tenant b was answered from a's entry written at op 4"


def test_an_invariant_that_was_violated_before_may_stay_so(tmp_path: Path) -> None:
    then = cell(tmp_path / "then", arms={"clean": (1.0, BROKEN)})
    now = run(tmp_path / "now", arms={"clean": (1.0, BROKEN)})
    assert decide([judge("tenant-leak", then, now)]).code == 0


def test_what_could_be_told_and_cannot_now_is_not_a_pass(tmp_path: Path) -> None:
    decision = gate(tmp_path, arms={"clean": (1.0, {**HOLDS, "freshness": None})})
    assert decision.code == 4
    assert "freshness held and cannot be told now" in found(decision, "unknown")[0].text


def test_an_arm_that_is_no_longer_supported_fails(tmp_path: Path) -> None:
    failed = found(gate(tmp_path, gone={"clean+cure": "no layer text"}))
    assert failed[0].text == "clean+cure was ok and is unsupported now: no layer text"


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        ({"faulty": (0.95, BROKEN)}, "faulty: true fell by 0.0500, expected at least 0.1000"),
        ({"faulty": (0.5, HOLDS)}, "faulty: does not violate no-cross-tenant"),
        ({"faulty-without:answer": (0.6, HOLDS)}, "faulty-without:answer: recovered 20% of the drop"),
    ],
)
def test_a_promise_that_is_no_longer_kept_fails(tmp_path: Path, arms: dict[str, Any], says: str) -> None:
    failed = [f for f in found(gate(tmp_path, arms=arms)) if f.rule == "expect"]
    assert says in failed[0].text
    assert failed[0].layer == "answer"


def test_a_promise_that_was_not_kept_before_is_no_news(tmp_path: Path) -> None:
    then = cell(tmp_path / "then", arms={"faulty": (0.95, BROKEN)})
    assert then.promise
    now = run(tmp_path / "now", arms={"faulty": (0.94, BROKEN)})
    assert [f for f in judge("tenant-leak", then, now).findings if f.rule == "expect"] == []


def test_a_promise_that_chance_may_have_broken_is_noted_where_chance_has_a_part(tmp_path: Path) -> None:
    """A cure that gives back 94 % of the drop: a fact of a deterministic stack, an estimate of another one."""
    arms = {"faulty+cure": (0.97, HOLDS)}
    for settings, outcome in ((DESCRIBED["settings"], "failed"), (BY_CHANCE, "noted")):
        folder = tmp_path / outcome
        then, now = cell(folder / "then", settings=settings), run(folder / "now", settings=settings, arms=arms)
        (told,) = [f for f in judge("tenant-leak", then, now).findings if f.rule == "expect"]
        assert told.outcome == outcome
        assert told.text.endswith(": not significant") is (outcome == "noted")
    then, now = (
        cell(tmp_path / "a", settings=BY_CHANCE),
        run(tmp_path / "b", settings=BY_CHANCE, arms={"faulty+cure": (0.6, HOLDS)}),
    )
    (told,) = [f for f in judge("tenant-leak", then, now).findings if f.rule == "expect"]
    assert told.outcome == "failed" and "recovered 20% of the drop" in told.text


def test_promises_are_looked_at_whatever_the_size_of_the_run(tmp_path: Path) -> None:
    summary = run(tmp_path, arms={"faulty": (1.0, BROKEN)}).summary
    assert any("fell by 0.0000" in text for text in broken_promises(summary))


def test_another_trace_of_a_deterministic_stack_is_noted_and_fails_where_that_is_asked_for(tmp_path: Path) -> None:
    decision = gate(tmp_path, moved=("clean",))
    assert decision.code == 0 and not decision.cells[0].same_trace
    assert "1 of 5 arms have another trace" in found(decision, "noted")[0].text
    assert gate(tmp_path / "exact", moved=("clean",), options={"exact": True}).code == 1


def test_a_stack_that_does_not_say_that_it_is_deterministic_may_have_another_trace(tmp_path: Path) -> None:
    then = cell(tmp_path / "then", settings=BY_CHANCE)
    now = run(tmp_path / "now", settings=BY_CHANCE, moved=("clean",))
    assert decide([judge("tenant-leak", then, now, exact=True)]).cells[0].findings == ()


def test_the_same_trace_with_other_scores_is_a_changed_metric(tmp_path: Path) -> None:
    then = cell(tmp_path / "then")
    scored = {**then.arms["clean"].series, "true": "0*400"}
    forged = replace(then, arms={**then.arms, "clean": replace(then.arms["clean"], series=scored)})
    failed = found(decide([judge("tenant-leak", forged, run(tmp_path / "now"))]))[0]
    assert failed.rule == "determinism"
    assert "a metric changed without a new version" in failed.text


def test_another_trace_on_a_second_play_fails_at_its_first_event(tmp_path: Path) -> None:
    now, again = run(tmp_path / "now"), run(tmp_path / "again", moved=("clean",))
    twin = {"clean": again.folder / "arms" / "clean" / "trace.jsonl"}
    (failed,) = found(decide([judge("tenant-leak", cell(tmp_path / "then"), now, twin=twin)]))
    assert (failed.rule, failed.arm, failed.layer) == ("determinism", "clean", "answer")
    assert failed.witness == "op 1 (answer put with another value)"


def test_scores_that_can_no_longer_be_given_are_not_a_pass(tmp_path: Path) -> None:
    scores: list[float | None] = [None if place % 2 else 1.0 for place in range(N_ASKS)]
    decision = gate(tmp_path, scores={"clean": scores})
    assert decision.code == 4
    assert "true is scored at 200 asks, and was at 400" in found(decision, "unknown")[0].text


def test_too_few_questions_to_see_a_drop_is_not_a_pass(tmp_path: Path) -> None:
    decision = gate(tmp_path, detectable=0.4, settings=BY_CHANCE)
    assert decision.code == 4
    (unknown,) = found(decision, "unknown")
    assert (
        unknown.rule == "power"
        and "too few queries: a drop of true is seen from 0.390 up, not from 0.3" in unknown.text
    )
    assert "make baseline NAME=tenant-leak VARIANT=answer-key SEED=42" in unknown.text


def test_what_was_just_enough_to_be_recorded_does_not_fall_out_by_chance(tmp_path: Path) -> None:
    now = run(tmp_path / "now", settings=BY_CHANCE, detectable=0.28)  # r = 0.0784 / 0.25, s = 0.239
    then = cell(tmp_path / "then", settings=BY_CHANCE)
    rules = {leeway: [f.rule for f in judge("x", then, now, leeway=leeway).findings] for leeway in (1.0, LEEWAY)}
    assert rules == {1.0: ["power"], LEEWAY: []}


def test_what_can_be_seen_shrinks_with_the_share_of_lost_asks(tmp_path: Path) -> None:
    # detectable 0.1 at a drop of 0.5: r = 0.01 / 0.25 = 0.04, s = r / (1 + r).
    assert gate(tmp_path, settings=BY_CHANCE).cells[0].sees == pytest.approx(0.04 / 1.04)
    then = cell(tmp_path / "a", arms={"faulty": (1.0, BROKEN)}, settings=BY_CHANCE)
    assert isnan(judge("x", then, run(tmp_path / "b", settings=BY_CHANCE)).sees) is False
    assert isnan(gate(tmp_path / "c", arms={"faulty": (1.0, BROKEN)}, settings=BY_CHANCE).cells[0].sees)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"scenario_digest": "x"}, "the scenario's file"),
        ({"data": {"name": "ledger", "digest": "x"}}, "data digest"),
        ({"metrics": {"MRR@5": "1", "true": "2"}}, "metric true (version)"),
        ({"metrics": {"MRR@5": "1"}}, "metric true (version)"),
        ({"metrics": {"MRR@5": "1", "true": "1", "new": "1"}}, "metric new (version)"),
    ],
)
def test_a_stale_baseline_is_named_with_the_command_that_renews_it(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    decision = gate(tmp_path, **changed)
    assert decision.code == 4
    (unknown,) = found(decision, "unknown")
    assert unknown.text.startswith(f"stale baseline: changed since it was recorded: {named}; ")
    assert unknown.text.endswith("make baseline NAME=tenant-leak VARIANT=answer-key SEED=42")


def test_other_questions_make_a_baseline_stale(tmp_path: Path) -> None:
    then = cell(tmp_path / "then")
    other = replace(then, made_from={**then.made_from, "questions": "x"})
    assert "the questions (workload)" in stale("tenant-leak", other, run(tmp_path / "now").manifest)[0].text


def test_a_run_of_another_stack_is_compared_only_where_that_is_asked_for(tmp_path: Path) -> None:
    then = cell(tmp_path / "then")
    now = run(tmp_path / "now", settings={**DESCRIBED["settings"], "stack": "mine:build"})
    assert decide([judge("tenant-leak", then, now)]).code == 4
    assert decide([judge("tenant-leak", then, now, across=("stack",))]).code == 0


def test_a_regression_counts_more_than_what_could_not_be_told_or_played(tmp_path: Path) -> None:
    worse = judge("a", cell(tmp_path / "then"), run(tmp_path / "now", scores={"clean": arm_scores(0.5)}))
    unknown = Judged("b", worse.cell, (Finding("comparable", "unknown", "", "stale"),))
    down = Judged("c", worse.cell, (Finding("run", "unknown", "", "redis is not reachable"),), code=3)
    assert [decide(cells).code for cells in ([worse, unknown, down], [unknown, down], [unknown], [])] == [1, 3, 4, 0]


def test_the_same_difference_is_less_sure_among_many_scenarios(tmp_path: Path) -> None:
    then = cell(tmp_path / "then")
    worse = judge("a", then, run(tmp_path / "now", scores={"clean": lower(0.16)}))
    fine = judge("fine", then, run(tmp_path / "same"))
    same = [replace(fine, scenario=f"s{i}") for i in range(20)]
    alone, among = decide([worse]), decide([worse, *same])
    p = [next(f.contrast.p_holm for f in d.cells[0].findings if f.contrast) for d in (alone, among)]
    assert p[0] < p[1] and p[1] == pytest.approx(min(1.0, 21 * p[0]))


def test_seeds_of_one_variant_are_judged_together(tmp_path: Path) -> None:
    cells = []
    for seed in (1, 2, 3):
        then = cell(tmp_path / f"then{seed}", seed=seed, settings=BY_CHANCE)
        now = run(tmp_path / f"now{seed}", seed=seed, settings=BY_CHANCE, scores={"clean": arm_scores(0.9)})
        cells.append(judge("tenant-leak", then, now))
    decision = decide(cells)
    failed = decision.findings("failed")
    assert len(failed) == 1 and failed[0][1].contrast is not None
    assert failed[0][1].contrast.scored == 3 * N_ASKS


def test_another_arm_can_stand_for_the_clean_one(tmp_path: Path) -> None:
    judged = judge("tenant-leak", cell(tmp_path / "then"), run(tmp_path / "now"), as_clean="faulty")
    rules = {f.rule for f in decide([judged]).cells[0].findings if f.outcome == "failed"}
    assert rules == {"invariants", "metric"}


def test_a_cell_says_what_a_run_was_made_from(tmp_path: Path) -> None:
    reader = run(tmp_path)
    made = cell_of(reader).made_from
    assert made["questions"] == reader.manifest["files"]["ops.jsonl"]
    assert made["scenario"] == "5c" and made["data"] == {"name": "ledger", "digest": "da7a"}
