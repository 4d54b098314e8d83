"""From evidence to judgement: one arm by itself, then the arms of a run beside one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan, nan
from typing import Any

import numpy as np

from testbed.core.evidence import Evidence
from testbed.core.history import History
from testbed.core.scenario import Expect
from testbed.core.types import Verdict, Witness
from testbed.diagnose import blame, expectations
from testbed.diagnose.blame import Blame
from testbed.diagnose.delta import Delta, delta, paired, series
from testbed.diagnose.heatmap import Heatmap, Match, heatmap, joint_attribution
from testbed.diagnose.pollution import Pollution, spread
from testbed.invariants.admission import OnlyCompleteValues
from testbed.invariants.freshness import Freshness
from testbed.invariants.isolation import NoCrossTenant
from testbed.invariants.lineage import Lineage
from testbed.invariants.losses import DictWithLosses
from testbed.metrics import scores as scoring
from testbed.metrics.faithfulness import FAITHFUL, TRUE, ClaimReader, Quadrants
from testbed.metrics.grounding import ANSWER_CONTAINMENT
from testbed.metrics.scores import RANKING, AskScore
from testbed.metrics.serving import LayerServing, Serving, layer_of, rates, serve

INVARIANTS = (NoCrossTenant(), DictWithLosses(), Freshness(), Lineage(), OnlyCompleteValues())


@dataclass(frozen=True, slots=True)
class ArmJudgement:
    """All that can be said of one arm by itself.

    ``means`` by metric, NaN where no ask is scored; ``unscored`` counts the asks that a mean leaves out.
    ``quadrants`` is None on data without a ledger of facts.
    """

    arm: str
    scores: tuple[AskScore, ...]
    means: Mapping[str, float]
    unscored: Mapping[str, int]
    quadrants: Quadrants | None
    serving: Serving
    verdicts: tuple[Verdict, ...]

    def holds(self) -> dict[str, bool | None]:
        return {v.invariant: v.holds for v in self.verdicts}

    def layer(self, name: str) -> LayerServing | None:
        return next((found for found in self.serving.layers if found.layer == name), None)

    def to_json(self) -> dict[str, Any]:
        """A JSON value: no NaN, but None beside a count of what is unscored. Score rows are a table of their own."""
        found: dict[str, Any] = plain(
            {
                "arm": self.arm,
                "asks": len(self.scores),
                "means": self.means,
                "unscored": self.unscored,
                "quadrants": None if self.quadrants is None else asdict(self.quadrants),
                "serving": {found.layer: _layer_json(found) for found in self.serving.layers},
                "verdicts": [_verdict_json(v) for v in self.verdicts],
            }
        )
        return found


@dataclass(frozen=True, slots=True)
class Fixed:
    """What a fix gave back and what it cost where nothing was wrong.

    ``recovered`` is the share of the drop that is gone in ``faulty+<fix>``. ``metric_lost``, ``hit_rate_lost`` and
    ``p95_ms_added`` compare ``clean+<fix>`` with ``clean``; empty or NaN where that arm did not run. ``violates`` are
    the invariants that ``faulty+<fix>`` still breaks.
    """

    fix: str
    recovered: Blame
    metric_lost: float = nan
    hit_rate_lost: Mapping[str, float] | None = None
    p95_ms_added: Mapping[str, float] | None = None
    violates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunJudgement:
    """The arms beside one another.

    ``deltas`` of every arm against clean, by metric. ``heat``, ``pollution`` and ``published`` are of the faulty arm.
    ``failures`` are what is not as the scenario promises, in words; ``witness`` is one of ``violated``.
    """

    metric: str
    arms: Mapping[str, ArmJudgement]
    deltas: Mapping[str, Mapping[str, Delta]]
    blames: tuple[Blame, ...]
    fixes: tuple[Fixed, ...]
    heat: Heatmap | None
    pollution: Pollution | None
    published: tuple[Match, ...]
    failures: tuple[str, ...]
    witness: Witness | None
    violated: str = ""

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(
            {
                "metric": self.metric,
                "arms": {name: arm.to_json() for name, arm in self.arms.items()},
                "deltas": {
                    arm: {metric: _delta_json(d) for metric, d in by_metric.items()}
                    for arm, by_metric in self.deltas.items()
                },
                "blame": [b._asdict() for b in self.blames],
                "fixes": [{**asdict(f), "recovered": f.recovered._asdict()} for f in self.fixes],
                "heatmap": None if self.heat is None else asdict(self.heat),
                "pollution": None if self.pollution is None else asdict(self.pollution),
                "published_attribution": [m._asdict() for m in self.published],
                "failures": list(self.failures),
                "violated": self.violated,
                "witness": None if self.witness is None else asdict(self.witness),
            }
        )
        return found


def judge_arm(
    evidence: Evidence,
    timings: Iterable[tuple[int, str, str, int]] = (),
    *,
    reader: ClaimReader | None = None,
) -> ArmJudgement:
    """Score and check one arm.

    Parameters
    ----------
    timings : rows (op, layer, kind, nanoseconds)
    reader : what reads claims; give the same one (``metrics.scores.claim_reader``) to all arms of a run, and each
        text is read once
    """
    history = History(evidence)
    rows = tuple(scoring.score_history(history, reader=reader))
    means = {name: scoring.mean(rows, name) for name in scoring.names(rows)}
    return ArmJudgement(
        arm=evidence.arm,
        scores=rows,
        means={name: value for name, (value, _) in means.items()},
        unscored={name: count for name, (_, count) in means.items()},
        quadrants=scoring.table(rows) if evidence.lexicon is not None else None,
        serving=serve(history, timings),
        verdicts=tuple(invariant.judge(history) for invariant in INVARIANTS),
    )


def judge_run(
    arms: Mapping[str, ArmJudgement],
    expect: Expect,
    layers: Sequence[str],
    *,
    seed: int = 0,
    n_windows: int = 32,
) -> RunJudgement:
    """Put the arms of a run beside one another.

    ``layers`` are those that an arm ``faulty-without:<layer>`` bypasses, outermost first. An arm that is missing did
    not run. ``seed`` draws the resamples behind the intervals. Where the data cannot score the expected metric, the
    judgement is about its stand-in (``metric_on``), and says so by its ``metric``.
    """
    clean, faulty = arms.get("clean"), arms.get("faulty")
    if expect.metric not in (*known_to(clean), *known_to(faulty)):
        arms = {name: measured(arm, expect.metric) for name, arm in arms.items()}
        clean, faulty = arms.get("clean"), arms.get("faulty")
    expect = replace(expect, metric=metric_on(expect.metric, clean or faulty))
    means = {name: arm.means.get(expect.metric, nan) for name, arm in arms.items()}
    verdicts = {name: arm.holds() for name, arm in arms.items()}
    violated, witness = _witness(faulty, expect)
    heat, pollution = None, None
    if clean is not None and faulty is not None:
        heat = _heat(clean, faulty, expect.metric, layers, n_windows)
        losses = -_sign(expect.metric) * paired(faulty.scores, clean.scores, expect.metric)
        pollution = spread(faulty.serving, faulty.scores, losses, heat.delta, n_windows)
    return RunJudgement(
        metric=expect.metric,
        arms=arms,
        deltas={} if clean is None else {n: _deltas(a, clean, seed) for n, a in arms.items() if n != "clean"},
        blames=tuple(_blames(arms, expect.metric, {n: f"faulty-without:{n}" for n in layers}, seed)),
        fixes=tuple(_fixed(arms, expect.metric, fix, seed) for fix in _fixes(arms)),
        heat=heat,
        pollution=pollution,
        published=tuple(joint_attribution(heat)) if heat is not None else (),
        failures=tuple(expectations.check_expect(expect, means, verdicts, layers)),
        witness=witness,
        violated=violated,
    )


def known_to(arm: ArmJudgement | None) -> tuple[str, ...]:
    return () if arm is None else tuple(arm.means)


def measured(arm: ArmJudgement, metric: str) -> ArmJudgement:
    """The arm with one more metric, made for the scenario: of what a layer served, or of how late answers were."""
    if layer_of(metric):
        by_op = rates(arm.serving, metric)
        rows = tuple(replace(s, metrics={**s.metrics, metric: by_op.get(s.op, nan)}) for s in arm.scores)
    elif (limit_s := scoring.limit_of(metric)) is not None:
        rows = tuple(replace(s, metrics={**s.metrics, metric: s.late(limit_s)}) for s in arm.scores)
    else:
        return arm
    value, unscored = scoring.mean(rows, metric)
    return replace(arm, scores=rows, means={**arm.means, metric: value}, unscored={**arm.unscored, metric: unscored})


def metric_on(metric: str, arm: ArmJudgement | None) -> str:
    """The metric itself, or what comes nearest on data without a ledger: containment for truth, else the ranking."""
    if arm is None or not isnan(arm.means.get(metric, nan)) or metric not in (TRUE, FAITHFUL):
        return metric
    return next((m for m in (ANSWER_CONTAINMENT, RANKING[0].name) if not isnan(arm.means.get(m, nan))), metric)


def _heat(clean: ArmJudgement, faulty: ArmJudgement, metric: str, layers: Sequence[str], n_windows: int) -> Heatmap:
    deltas = paired(faulty.scores, clean.scores, metric)
    asked = dict.fromkeys([*layers, *(x.layer for x in faulty.serving.layers if x.requests)])
    shown = [name for name in asked if name != "index" and faulty.layer(name) is not None]
    return heatmap(faulty.serving.lookups, [s.op for s in faulty.scores], deltas, shown, n_windows)


def _sign(metric: str) -> int:
    return -1 if scoring.is_lower_better(metric) else 1


def _deltas(arm: ArmJudgement, clean: ArmJudgement, seed: int) -> dict[str, Delta]:
    return {metric: delta(arm.scores, clean.scores, metric, seed=seed) for metric in clean.means}


def _blames(arms: Mapping[str, ArmJudgement], metric: str, repaired: Mapping[str, str], seed: int) -> list[Blame]:
    """Share of the drop that is gone in each of the arms, by a name for each."""
    if "clean" not in arms or "faulty" not in arms:
        return []
    found = {name: series(arms[arm].scores, metric) for name, arm in repaired.items() if arm in arms}
    clean, faulty = (series(arms[arm].scores, metric) for arm in ("clean", "faulty"))
    return blame.counterfactual(clean, faulty, found, seed=seed, sign=_sign(metric))


def _fixes(arms: Mapping[str, ArmJudgement]) -> list[str]:
    return [name.removeprefix("faulty+") for name in arms if name.startswith("faulty+")]


def _fixed(arms: Mapping[str, ArmJudgement], metric: str, fix: str, seed: int) -> Fixed:
    cured, clean, clean_fixed = arms[f"faulty+{fix}"], arms.get("clean"), arms.get(f"clean+{fix}")
    share = next(iter(_blames(arms, metric, {fix: f"faulty+{fix}"}, seed)), Blame(fix, None, why="no clean arm"))
    violates = tuple(v.invariant for v in cured.verdicts if v.holds is False)
    if clean is None or clean_fixed is None:
        return Fixed(fix, share, violates=violates)
    both = [(a, b) for a in clean.serving.layers if (b := clean_fixed.layer(a.layer)) is not None]
    return Fixed(
        fix,
        share,
        metric_lost=expectations.fall(metric, clean.means.get(metric, nan), clean_fixed.means.get(metric, nan)),
        hit_rate_lost={a.layer: a.hit_rate - b.hit_rate for a, b in both if a.requests},
        p95_ms_added={a.layer: b.latency.p95_ms - a.latency.p95_ms for a, b in both},
        violates=violates,
    )


def _witness(faulty: ArmJudgement | None, expect: Expect) -> tuple[str, Witness | None]:
    """The violation to tell: one that was expected if there is, with a write and a read if there is."""
    if faulty is None:
        return "", None
    broken = [v for v in faulty.verdicts if v.holds is False and v.witness is not None]
    ranked = sorted(broken, key=lambda v: (v.witness is None or len(v.witness.ops) != 2, _rank(v, expect)))
    return (ranked[0].invariant, ranked[0].witness) if ranked else ("", None)


def _rank(verdict: Verdict, expect: Expect) -> int:
    expected = expect.violates
    return expected.index(verdict.invariant) if verdict.invariant in expected else len(expected)


def plain(value: Any) -> Any:
    """A JSON value: NaN becomes None, tuples lists, numpy numbers Python's."""
    if isinstance(value, float | np.floating):
        return None if isnan(value) else float(value)
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _layer_json(found: LayerServing) -> dict[str, Any]:
    flat = asdict(found) | {"hits": found.hits, "hit_rate": found.hit_rate, "valid_hit_rate": found.valid_hit_rate}
    return {name: value for name, value in flat.items() if name not in ("layer", "latency")} | found.latency._asdict()


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {**asdict(verdict), "witness": None if verdict.witness is None else asdict(verdict.witness)}


def _delta_json(found: Delta) -> dict[str, Any]:
    return {**found.interval._asdict(), "detectable": found.detectable, "scored": found.scored} | {
        "unscored": found.unscored
    }
