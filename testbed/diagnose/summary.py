"""From a recorded run to its summary: the one document that reports, comparisons and gates read.

scenario variant about anomalies seed level stack deterministic store dataset queries digest
metric                      what the scenario's expectation is about
order                       the arms as they were run
arms.<arm>                  status; means, serving, verdicts, p95_ms, hits, valid_hits, held_bytes where it ran
deltas blame fixes heatmap published_attribution pollution violated witness      see ``judge``
shapley                     None, or each layer's share where every set of layers was bypassed (see ``shares``)
hits_of                     the layer whose hit rates stand in the table
versions                    part, actual, believed, agree; of the faulty arm, where the scenario shows it
expect                      metric, drop_at_least, blame, cured_by, violates, applies, why_not, failures
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import nan
from typing import Any, NamedTuple

from testbed.core.scenario import Expect, Scenario, arms_of
from testbed.diagnose import shares, versions
from testbed.diagnose.expectations import BYPASSED
from testbed.diagnose.judge import INVARIANTS, ArmJudgement, RunJudgement, judge_arm, judge_run, plain
from testbed.metrics import scores as scoring
from testbed.metrics.faithfulness import FAITHFUL, TRUE, ClaimReader
from testbed.metrics.grounding import ANSWER_CONTAINMENT, LEXICAL_GROUNDING
from testbed.metrics.serving import layer_of
from testbed.record.folder import RunReader
from testbed.run.plan import Plan
from testbed.run.settings import Settings

# Raise a number when the same evidence gives another value: runs judged by different ones are not comparable.
VERSIONS = {
    **{metric.name: "1" for metric in scoring.RANKING},
    **dict.fromkeys((FAITHFUL, TRUE, ANSWER_CONTAINMENT, LEXICAL_GROUNDING), "1"),
    **dict.fromkeys((scoring.LEAK_RATE, scoring.STALE_RATE, scoring.ABSTAINED), "1"),
    **{invariant.name: "1" for invariant in INVARIANTS},
}
FULL_LEVEL, FULL_STREAM = 1.0, 400
OUTERMOST = "answer"


class JudgedArm(NamedTuple):
    """One arm's judgement, what its parts said of their versions, what its caches held, and what the stack promises."""

    judgement: ArmJudgement
    versions: list[dict[str, str]]
    held_bytes: int | None
    deterministic: bool


class Summarize:
    """Judges a run from its folder: each arm once it is recorded, then all of them. One object per process.

    It remembers the claims that it read, from one arm to the next and over runs on the same data.
    """

    def __init__(self) -> None:
        self._lexicon: Any = None
        self._claims: ClaimReader | None = None

    @property
    def versions(self) -> Mapping[str, str]:
        return VERSIONS

    def arm(self, reader: RunReader, arm: str) -> JudgedArm:
        """One arm by itself, what its parts said of their versions, and what its caches held."""
        evidence = reader.evidence(arm)
        if self._claims is None or evidence.lexicon != self._lexicon:
            self._lexicon, self._claims = evidence.lexicon, scoring.claim_reader(evidence)
        judgement = judge_arm(evidence, reader.timings(arm), reader=self._claims)
        deterministic = reader.manifest["settings"].get("deterministic") is True
        return JudgedArm(judgement, versions.table(evidence), reader.held_bytes(arm), deterministic)

    def run(
        self, plan: Plan, judged: Mapping[str, JudgedArm], unsupported: Mapping[str, str], run_digest: str
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The arms beside one another: the summary, and one score row per arm and ask."""
        arms = {name: found.judgement for name, found in judged.items()}
        layers = _bypassed(plan)
        run = judge_run(arms, plan.variant.expect, layers, seed=plan.settings.seed)
        content = _header(plan, run_digest) | run.to_json()
        del content["failures"]  # told in ``expect``, where a run that is not held to all of them says so
        content["deterministic"] = all(found.deterministic for found in judged.values())
        content["shapley"] = None
        if plan.settings.blame == "shapley":
            content["shapley"] = shares.measured(arms, plan, run.metric)
        content["order"] = [arm.name for arm in plan.arms]
        content["hits_of"] = hits_of = _hits_of(arms, plan.variant.expect)
        for name, arm in arms.items():
            content["arms"][name] |= _table_row(arm, hits_of) | {"held_bytes": judged[name].held_bytes}
        for name, why in unsupported.items():
            content["arms"][name] = {"status": "unsupported", "why": why}
        shows = plan.scenario.shows_versions and "faulty" in judged
        content["versions"] = judged["faulty"].versions if shows else []
        content["expect"] = _expectation(plan, run)
        return plain(content), [score.row(name) for name, arm in run.arms.items() for score in arm.scores]


def _bypassed(plan: Plan) -> list[str]:
    """What an arm is without: each single layer, and together those that are to blame together."""
    named = {f"faulty-without:{layer}": layer for arm in plan.arms for layer in arm.bypass}
    blame = plan.variant.expect.blame
    named |= {f"faulty-without:{blame}": blame}
    return [named[arm.name] for arm in plan.arms if arm.name in named]


def _header(plan: Plan, run_digest: str) -> dict[str, Any]:
    settings = plan.settings
    return {
        "scenario": plan.scenario.name,
        "variant": plan.variant.name,
        "about": plan.variant.summary,
        "anomalies": list(plan.variant.anomalies),
        "seed": settings.seed,
        "level": settings.level,
        "stack": settings.stack,
        "store": settings.store,
        "dataset": plan.corpus.name,
        "queries": len(plan.gold),
        "digest": run_digest,
    }


def _hits_of(arms: Mapping[str, ArmJudgement], expect: Expect) -> str:
    """The cache whose hit rates tell the story: that of the metric, the blamed one, or the outermost of all."""
    clean, blamed = arms.get("clean"), layer_of(expect.metric) or expect.blame
    found = clean.layer(blamed) if clean else None
    return blamed if found is not None and found.requests and blamed != "index" else OUTERMOST


def _table_row(arm: ArmJudgement, hits_of: str) -> dict[str, Any]:
    cache, whole = arm.layer(hits_of), arm.layer("stack")
    return {
        "status": "ok",
        "hits": cache.hit_rate if cache else nan,
        "valid_hits": cache.valid_hit_rate if cache else nan,
        "p95_ms": whole.latency.p95_ms if whole else nan,
    }


def _expectation(plan: Plan, run: RunJudgement) -> dict[str, Any]:
    """What the variant promises, whether this run is held to it, and what is not as promised.

    A clean stack must violate nothing in any run; the rest is promised for full pollution of the scenario's own data.
    Where arms are left out, those that were played are still judged by what the promise says of them.
    """
    why_not = _why_not_full(plan.settings, plan.scenario)
    played = {arm.name for arm in plan.arms}
    left_out = sorted(_promised_arms(plan) - played) if plan.settings.arms else []
    unplayed = tuple(f"{arm.name}: " for arm in arms_of(plan.variant, plan.layers) if arm.name not in played)
    failures = [
        text
        for text in run.failures
        if not text.startswith(unplayed) and (not why_not or text.startswith("clean: violates"))
    ]
    why_not = why_not or (f"--arms leaves out {', '.join(left_out)}" if left_out else "")
    return {**asdict(plan.variant.expect), "applies": not why_not, "why_not": why_not, "failures": failures}


def _why_not_full(settings: Settings, scenario: Scenario) -> str:
    if settings.level < FULL_LEVEL:
        return f"POLLUTION_LEVEL={settings.level:g} is below {FULL_LEVEL:g}"
    if settings.dataset not in ("", scenario.dataset):
        return f"DATASET={settings.dataset} is not the scenario's own ({scenario.dataset})"
    if settings.queries < FULL_STREAM:
        return f"QUERIES={settings.queries} is below {FULL_STREAM}"
    return ""


def _promised_arms(plan: Plan) -> set[str]:
    """The arms without which a promise is not shown: those of other layers only show who else is not to blame."""
    expect = plan.variant.expect
    blamed = {f"{BYPASSED}{expect.blame}"} if expect.blame else set()
    return {"clean", "faulty", *(f"faulty+{fix}" for fix in expect.cured_by), *blamed}
