"""C6: is a language model a better judge of freshness than a fixed lifetime?"""

from __future__ import annotations

import math
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from testbed.caches.freshness import Case, Check, Entry, Judgment, LlmJudge, Score, Ttl, VersionCheck, score
from testbed.claims import data, plot
from testbed.claims.claim import ARTICLE, Claim, Findings, Limit, Row, Ruling, Tier, interval
from testbed.core import seeds
from testbed.core.errors import Unavailable
from testbed.models.llm import LlmClient
from testbed.workloads import traces

# Changes per hour of each kind of data; two kinds share a rate so that the kind alone does not tell it.
KINDS = {"price": 2.0, "news": 0.5, "inventory": 0.5, "policy": 0.02, "preference": 0.005}
TTLS_S = (60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
DAY_S = 86_400.0


class Scale(NamedTuple):
    seeds: tuple[int, ...]
    n: int
    n_judged: int


SCALES: Mapping[Tier, Scale] = {"small": Scale((1, 2, 3), 3000, 60), "full": Scale(tuple(range(1, 11)), 30_000, 600)}


class World(NamedTuple):
    """Seeded cases, and the version of each source at the moment of its case."""

    cases: list[Case]
    versions: dict[str, int]


def world(seed: int, n: int) -> World:
    """Entries of all kinds and ages; each source changes as a Poisson process, at its kind's rate times a factor.

    The change rate that a check is told is the true one: what can be known without looking at the source.
    """
    rng = seeds.stream(seed, "c6")
    cases, versions = [], {}
    for i in range(n):
        kind = sorted(KINDS)[rng.randrange(len(KINDS))]
        rate_per_h = KINDS[kind] * math.exp(rng.gauss(0.0, 0.7))
        age_s = 60.0 * math.exp(rng.uniform(0.0, math.log(1440)))  # 1 minute to 1 day
        changes, now = 0, rng.expovariate(rate_per_h / 3600)
        while now < age_s:
            changes += 1
            now += rng.expovariate(rate_per_h / 3600)
        doc = f"doc-{i}"
        written = DAY_S
        entry = Entry(f"{kind} of item {i}", written, written + age_s * rng.random(), {doc: 1}, kind, rate_per_h)
        cases.append(Case(entry, written + age_s, changes > 0))
        versions[doc] = 1 + changes
    return World(cases, versions)


class BestGuess(NamedTuple):
    """The limit of every judge that sees what the published prompt shows: stale when 1 - exp(-rate x age) is likely.

    For changes that come at random no rule on the same facts catches more at the same share of false alarms.

    References
    ----------
    Neyman, Pearson, "On the problem of the most efficient tests of statistical hypotheses", 1933.
    """

    threshold: float

    @property
    def name(self) -> str:
        return f"best guess (p >= {self.threshold:g})"

    def judge(self, entry: Entry, now_s: float) -> Judgment:
        stale = -math.expm1(-entry.changes_per_h * (now_s - entry.written_at_s) / 3600)
        return Judgment(stale < self.threshold, f"stale with probability {stale:.2f}")


def youden(result: Score) -> float:
    """Recall less false alarms: 0 for a coin, 1 for an exact check."""
    return result.recall - result.false_stale


def best_of(checks: Sequence[Check], cases: Sequence[Case]) -> tuple[str, Score]:
    """The check that separates best, chosen with hindsight: the kindest way to compare."""
    results = [(check.name, score(check, cases)) for check in checks]
    return max(results, key=lambda named: youden(named[1]))


def roc_limit(cases: Sequence[Case]) -> Callable[[float], float]:
    """The largest recall at a share of false alarms for rules on (rate x age), by Neyman and Pearson, on these cases.

    Another rule on the same facts can pass it by luck in a sample, so three standard errors are added.
    """
    exposure = [(c.entry.changes_per_h * (c.now_s - c.entry.written_at_s), c.is_stale) for c in cases]
    exposure.sort(key=lambda seen: (-seen[0], seen[1]))
    n_stale = sum(stale for _, stale in exposure)
    n_fresh = len(exposure) - n_stale
    falses, recalls, caught, alarms = [0.0], [0.0], 0, 0
    for _, stale in exposure:
        caught, alarms = caught + stale, alarms + (not stale)
        falses.append(alarms / n_fresh)
        recalls.append(caught / n_stale)
    slack = 1.5 / math.sqrt(n_stale)
    return lambda false_stale: min(1.0, recalls[bisect_right(falses, false_stale + 1e-12) - 1] + slack)


def real_updates() -> list[Row]:
    """Fixed lifetimes on real update times (releases of products): entries written each week, read a week later."""
    folder = data.public("eol_updates")
    if folder is None:
        return []
    by_doc: dict[str, list[int]] = {}
    for change in traces.eol_updates(folder):
        by_doc.setdefault(change.doc_id, []).append(change.at_s)
    week = 7 * DAY_S
    start, end = min(t[0] for t in by_doc.values()), max(t[-1] for t in by_doc.values())
    cases = []
    versions: dict[str, int] = {}
    for doc, times in sorted(by_doc.items()):
        rate = 3600 * len(times) / (end - start)
        for i in range(int((end - start) / week / 4)):
            written = start + 4 * week * i
            read = written + week * (1 + i % 4)
            then, now = bisect_right(times, written), bisect_right(times, read)
            name = f"{doc}@{i}"
            cases.append(Case(Entry(doc, written, written, {name: then}, "release", rate), read, now > then))
            versions[name] = now
    rows: list[Row] = []
    best: list[Check] = [BestGuess(p / 40) for p in range(1, 40)]
    fixed: list[Check] = [Ttl(weeks * week + 1) for weeks in (0.5, 1, 2, 3)]
    for label, (name, result) in {
        "best fixed lifetime": best_of(fixed, cases),
        "best guess": best_of(best, cases),
        "version check": best_of([VersionCheck(versions.get)], cases),
    }.items():
        rows.append({"check": label, "setting": name, "recall": result.recall, "false stale": result.false_stale})
    return rows


def judged(scale: Scale) -> tuple[list[Row], dict[str, float]]:
    """The published judge, if an endpoint is named (TESTBED_JUDGE_URL, TESTBED_JUDGE_MODEL)."""
    url, model = os.environ.get("TESTBED_JUDGE_URL", ""), os.environ.get("TESTBED_JUDGE_MODEL", "")
    if not url or not model:
        return [], {}
    cases = world(scale.seeds[0], scale.n_judged).cases
    with LlmClient(url, model, api_key=os.environ.get("TESTBED_JUDGE_KEY", "")) as client:
        judge = LlmJudge(client, model, step_s=1.0)
        start = time.perf_counter()
        result = score(judge, cases)
        taken = time.perf_counter() - start
        if judge.n_failed == judge.n_asked:  # it fails closed, and would be measured as one that says no to everything
            raise Unavailable(
                f"the judge at TESTBED_JUDGE_URL answered none of {judge.n_asked} questions: {judge.why_failed};"
                " start it, or unset TESTBED_JUDGE_URL"
            )
    Limit(f"recall of {judge.name}", result.recall, roc_limit(cases)(result.false_stale)).check()
    row: Row = {
        "check": judge.name,
        "recall": result.recall,
        "false stale": result.false_stale,
        "asked": judge.n_asked,
        "failed": judge.n_failed,
    }
    return [row], {
        "judge ms": 1000 * taken / len(cases),
        "judge s per stale entry caught": taken / max(1, result.caught),
    }


def version_check_us(cases: Sequence[Case], versions: Mapping[str, int]) -> float:
    check = VersionCheck(versions.get)
    start = time.perf_counter()
    for case in cases:
        check.judge(case.entry, case.now_s)
    return 1e6 * (time.perf_counter() - start) / len(cases)


class Arena(NamedTuple):
    """What the checks did, seed by seed."""

    found: dict[str, list[Score]]
    rows: list[Row]
    limits: list[Limit]
    curves: dict[str, list[tuple[float, float]]]


def contest(scale: Scale, worlds: Sequence[World]) -> Arena:
    fixed: list[Check] = [Ttl(ttl) for ttl in TTLS_S]
    guesses: list[Check] = [BestGuess(p / 20) for p in range(1, 20)]
    names = ("best fixed lifetime", "best guess", "version check", "sliding 900 s")
    arena = Arena({name: [] for name in names}, [], [], {})
    for seed, (cases, versions) in zip(scale.seeds, worlds, strict=True):
        bound = roc_limit(cases)
        each = {check.name: score(check, cases) for check in (*fixed, *guesses)}
        arena.found["best fixed lifetime"].append(max((each[c.name] for c in fixed), key=youden))
        arena.found["best guess"].append(max((each[c.name] for c in guesses), key=youden))
        arena.found["version check"].append(score(VersionCheck(versions.get), cases))
        arena.found["sliding 900 s"].append(score(Ttl(900.0, sliding=True), cases))
        for name, s in each.items():
            arena.rows.append({"seed": seed, "check": name, "recall": s.recall, "false stale": s.false_stale})
            arena.limits.append(Limit(f"recall of {name}, seed {seed}", s.recall, bound(s.false_stale)))
        if not arena.curves:
            for label, checks in {"fixed lifetime": fixed, "best guess": guesses}.items():
                arena.curves[label] = sorted((each[c.name].false_stale, each[c.name].recall) for c in checks)
            arena.curves["version check"] = [(0.0, 0.0), (0.0, 1.0)]
    return arena


def measure(tier: Tier) -> Findings:
    scale = SCALES[tier]
    worlds = [world(seed, scale.n) for seed in scale.seeds]
    arena = contest(scale, worlds)
    skill = {
        name: interval(f"recall less false alarms, {name}", [youden(s) for s in scores])
        for name, scores in arena.found.items()
    }
    judge_rows, timings = judged(scale)
    timings = timings | {"version check us": version_check_us(worlds[0].cases, worlds[0].versions)}
    why = (
        f"on what the published prompt shows (kind, age, change rate) the best possible judge reaches recall less "
        f"false alarms of {skill['best guess'].mean:.2f}; the best fixed lifetime "
        f"{skill['best fixed lifetime'].mean:.2f}, a version check {skill['version check'].mean:.2f}: a judge can beat "
        "a fixed lifetime by knowing the rate, and cannot beat a version check; "
    )
    ruling: Ruling = "not measurable here"
    if judge_rows:
        own = float(judge_rows[0]["recall"]) - float(judge_rows[0]["false stale"])
        ruling = "holds only if" if own > skill["best fixed lifetime"].mean else "refuted"
        why += f"the judge at the endpoint: {own:.2f}"
    else:
        why += "the judge itself needs an endpoint (TESTBED_JUDGE_URL, TESTBED_JUDGE_MODEL)"
    return Findings(
        ruling=ruling,
        why=why,
        seeds=scale.seeds,
        tables={"checks": arena.rows, "judge": judge_rows, "real updates": real_updates()},
        intervals=tuple(skill.values()),
        limits=(*arena.limits, *(Limit(f"skill of the {name}", ci.mean, 1.0) for name, ci in skill.items())),
        plot=plot.lines(
            "Stale entries caught", "share of fresh entries called stale", "recall", arena.curves, y_max=1.0
        ),
        timings=timings,
        timing_note=f"version check {timings['version check us']:.1f} us in process, its source a dict",
    )


C6 = Claim(
    id="C6",
    title="freshness by an LLM judge",
    statement=(
        "A language model decides per entry whether it is semantically stale, in 200-800 ms, answering "
        '{"fresh": bool, "reason": str}; better than a fixed lifetime.'
    ),
    source=ARTICLE,
    definitions=(
        "stale: the source changed after the entry was written (seeded, known for each entry)",
        "the judge sees what the published prompt shows: key, last update, now, kind of data, recent change rate",
        "better: recall less false alarms; the fixed lifetime is chosen with hindsight among six",
        "the change rate that is shown is the true one: a judge with a measured rate does worse",
    ),
    generator="entries of five kinds, ages from a minute to a day, Poisson changes; real release dates beside",
    tolerance="intervals over seeds",
    limit="no rule on rate and age catches more than the likelihood ratio at the same share of false alarms",
    measure=measure,
)
