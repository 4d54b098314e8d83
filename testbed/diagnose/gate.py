"""Whether a run is worse than the one that its baseline remembers: rules, in the order in which they are asked.

comparable    same scenario, data, questions, truth and metric versions; else the baseline is stale (could not tell)
determinism   a stack that says so gives the same trace twice; the same trace gives the same scores
invariants    nothing is violated that was not
expect        what the scenario promised and kept, it still keeps
metric        nothing is worse by more than its tolerance, ask by ask: at all where the stack is deterministic, else
              significantly so over all scenarios
coverage      what was scored still is, what could be told still can be
power         enough questions to see a drop worth seeing

``judge`` looks at one run; ``regressions.decide`` at all of them, because significance is adjusted for their number.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np

from testbed.diagnose.asks import SCORES, Asks, scored
from testbed.diagnose.contrast import Name, Pair
from testbed.diagnose.findings import Finding, Judged
from testbed.diagnose.remember import broken_promises, made_from, without_numbers
from testbed.metrics.serving import layer_of
from testbed.record import baseline
from testbed.record.baseline import Cell
from testbed.record.compare import AXES
from testbed.record.folder import RunReader, slug

MUST_SEE = 0.20  # a drop of this size must be visible with 80 % power, or the gate says that it could not tell
# What was just enough to be recorded must not fall out by chance: how small a drop a run shows is itself an estimate,
# of ten blocks of asks, and right to a fifth or so.
LEEWAY = 1.5
FEWEST_SCORED = 100
LOST_COVERAGE = 0.10  # share of the scored asks that may become unscored


def stale(scenario: str, cell: Cell, described: Mapping[str, Any], across: Collection[str] = ()) -> list[Finding]:
    """What makes the baseline stale, by the manifest of a run, or of one that would start now."""
    now = made_from(described)
    changed = [what for what, then in _flat(cell.made_from).items() if what in (f := _flat(now)) and f[what] != then]
    changed += [what for what in _flat(now) if what.startswith("metric ") and what not in _flat(cell.made_from)]
    changed += [what for what in _flat(cell.made_from) if what.startswith("metric ") and what not in _flat(now)]
    command = baseline.refresh(scenario, cell)
    found = []
    if changed:
        what = ", ".join(changed)
        text = f"stale baseline: changed since it was recorded: {what}; look at what changed, then: {command}"
        found.append(Finding("comparable", "unknown", "", text))
    allowed = {name for axis in across for name in AXES[axis]}
    for name in ("stack", "store", "queries"):
        then, is_now = getattr(cell, name), described["settings"][name]
        if then == is_now or f"settings.{name}" in allowed:
            continue
        if name == "queries" and is_now < then:
            text = (
                f"too few queries: QUERIES={is_now} cannot be compared with the {then} of the baseline; unset QUERIES"
            )
            found.append(Finding("power", "unknown", "", text))
        else:
            knob = name.upper()
            text = f"{knob}={is_now} is not the baseline's {knob}={then}; unset {knob}, or: {command}"
            found.append(Finding("comparable", "unknown", "", text))
    return found


def _flat(made: Mapping[str, Any]) -> dict[str, Any]:
    named = {"scenario": "the scenario's file", "questions": "the questions (workload)", "truth": "the truth"}
    flat = {told: made[name] for name, told in named.items() if name in made}
    flat |= {f"data {name}": value for name, value in made["data"].items()}
    return flat | {f"metric {name} (version)": version for name, version in made["metrics"].items()}


def judge(
    scenario: str,
    cell: Cell,
    reader: RunReader,
    *,
    twin: Mapping[str, Path] | None = None,
    across: Collection[str] = (),
    must_see: float = MUST_SEE,
    leeway: float = LEEWAY,
    exact: bool = False,
    as_clean: str = "clean",
) -> Judged:
    """Every rule but the one that needs all scenarios; ``decide`` adds that.

    Parameters
    ----------
    twin : the trace of each arm that was played a second time
    across : axes that may differ on purpose (see ``record.compare.AXES``)
    must_see : size of the drop that must be visible
    leeway : where chance has a part, above so many times that the run is too small to tell
    exact : any change of a deterministic stack's trace is a failure, not a note
    as_clean : the arm of the run that stands for the clean one; with another than ``clean``, only it is judged
    """
    found = stale(scenario, cell, reader.manifest, across)
    if found:
        return Judged(scenario, cell, tuple(found), reader.folder, reader.digest)
    asks = Asks(reader)
    stands = {arm: arm for arm in cell.arms} if as_clean == "clean" else {"clean": as_clean}
    digests = reader.manifest["arm_digests"]
    moved = [arm for arm, now in stands.items() if digests.get(now) != cell.arms[arm].digest]
    claims = reader.manifest["settings"].get("deterministic") is True
    same = all(reader.manifest["settings"][name] == getattr(cell, name) for name in ("stack", "store"))
    is_exact = cell.deterministic and claims and same
    n_scored = scored(asks.gated("clean").get(reader.summary.get("metric", ""), np.array([])))
    sees = 1 / max(n_scored, 1) if is_exact else seen(reader.summary)  # one ask, or what chance leaves
    findings = [
        *_same_twice(reader, twin or {}),
        *_claimed(cell, claims),
        *(_exactly(cell, asks, stands, moved, exact) if claims else ()),
        *_violations(cell, reader.summary, stands),
    ]
    if as_clean == "clean":
        findings += [
            *_promises(cell, reader.summary, is_exact),
            *_power(cell, asks, n_scored, sees, must_see * (1.0 if is_exact else leeway)),
        ]
    pairs = _pairs(cell, asks, stands, moved)
    findings += _coverage(pairs)
    return Judged(
        scenario,
        cell,
        tuple(findings),
        reader.folder,
        reader.digest,
        same_trace=not moved,
        is_exact=is_exact,
        sees=sees,
        pairs=pairs,
        asks=asks,
        stands=stands,
    )


def _claimed(cell: Cell, claims: bool) -> list[Finding]:
    """A stack that says another thing of itself than it did is held to what chance explains, until it is recorded."""
    if cell.deterministic == claims:
        return []
    then, now = ("called", "does not") if cell.deterministic else ("did not call", "does")
    text = f"the stack {then} itself deterministic when the baseline was recorded, and {now} now; record it anew"
    return [Finding("determinism", "noted", "", text)]


def _same_twice(reader: RunReader, twin: Mapping[str, Path]) -> list[Finding]:
    """Same seed, same trace: arms that were played twice in a row."""
    found = []
    for arm, other in twin.items():
        mine = reader.folder / "arms" / slug(arm) / "trace.jsonl"
        first = first_difference(mine.read_bytes(), other.read_bytes())
        if first is not None:
            layer, told = first
            text = f"the same seed gave another trace when {arm} was played a second time, first at {told}"
            found.append(Finding("determinism", "failed", arm, text, layer=layer, witness=told))
    return found


def first_difference(a: bytes, b: bytes) -> tuple[str, str] | None:
    """Layer and words of the first event in which two traces differ; None when they are the same."""
    if a == b:
        return None
    left, right = a.splitlines(), b.splitlines()
    at = next((i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(left), len(right)))
    events = [json.loads(side[at]) if at < len(side) else None for side in (left, right)]
    event = events[0] or events[1] or {}
    told = [f"{e['layer']} {e['kind']}" if e else "the end" for e in events]
    same = "with another value" if told[0] == told[1] else f"against {told[1]}"
    return str(event.get("layer", "")), f"op {event.get('op')} ({told[0]} {same})"


def _exactly(cell: Cell, asks: Asks, stands: Mapping[str, str], moved: Sequence[str], exact: bool) -> list[Finding]:
    """What can be said without any statistics, of a stack that says of itself that it is deterministic."""
    if not cell.deterministic:
        return []
    found = []
    for arm, now in stands.items():
        if arm in moved or not cell.arms[arm].series:
            continue
        then = {metric: baseline.packed(values) for metric, values in cell.series(arm).items()}
        scores = {m: v for m, v in asks.scores(now).items() if m in SCORES}
        other = sorted(m for m, v in scores.items() if then.get(m) != baseline.packed(list(v)))
        if other:
            text = f"the trace is the same but {', '.join(other)} is not: a metric changed without a new version"
            found.append(Finding("determinism", "failed", arm, text, metric=other[0]))
    if moved:
        text = f"behaves differently than the baseline's: {len(moved)} of {len(stands)} arms have another trace"
        found.append(Finding("determinism", "failed" if exact else "noted", moved[0], text))
    return found


def _violations(cell: Cell, summary: Mapping[str, Any], stands: Mapping[str, str]) -> list[Finding]:
    found = []
    for arm, now in stands.items():
        then, row = cell.arms[arm], summary["arms"].get(now, {"status": "missing"})
        if row["status"] != then.status:
            why = f": {row['why']}" if row.get("why") else ""
            text = f"{arm} was {then.status} and is {row['status']} now{why}"
            found.append(Finding("invariants", "failed" if then.status == "ok" else "noted", arm, text))
            continue
        for verdict in row.get("verdicts", ()):
            name = verdict["invariant"]
            before = then.holds.get(name)
            if verdict["holds"] is False and before is not False:
                witness = verdict["witness"] or {}
                text = f"{name} is violated {verdict['violations']} times and was not"
                found.append(
                    Finding(
                        "invariants",
                        "failed",
                        arm,
                        text,
                        layer=witness.get("layer", ""),
                        metric=name,
                        witness=witness.get("story", ""),
                    )
                )
            elif verdict["holds"] is None and before is True:
                text = f"{name} held and cannot be told now: {verdict['why']}"
                found.append(Finding("coverage", "unknown", arm, text, metric=name))
    return found


def _promises(cell: Cell, summary: Mapping[str, Any], is_exact: bool) -> list[Finding]:
    known = {without_numbers(text) for text in cell.promise}
    sure = {without_numbers(text) for text in broken_promises(summary, deterministic=is_exact)}
    metric, blamed = summary.get("metric", ""), summary["expect"]["blame"]
    found = []
    for text in broken_promises(summary):
        if without_numbers(text) in known or text.startswith("clean: violates"):  # told with its witness
            continue
        told, arm = f"no longer as promised: {text}", text.partition(":")[0]
        if without_numbers(text) in sure:
            found.append(Finding("expect", "failed", arm, told, blamed, metric))
        else:
            found.append(Finding("expect", "noted", arm, f"{told}: not significant", blamed, metric))
    return found


def _pairs(cell: Cell, asks: Asks, stands: Mapping[str, str], moved: Collection[str]) -> dict[Name, Pair]:
    """Then and now of every gated metric; of an arm whose trace is the same, the same series twice."""
    pairs = {}
    for arm, now in stands.items():
        if not cell.arms[arm].series:
            continue
        then = cell.series(arm)
        current = asks.gated(now) if arm in moved else {}
        for metric, values in then.items():
            a = np.array(values)
            if arm not in moved:
                b = a
            elif metric in current and len(current[metric]) == len(a):
                # Rounded as the baseline is, so that what is the same stays the same.
                b = np.array(baseline.unpacked(baseline.packed(list(current[metric]))))
            else:
                b = np.full(len(a), nan)
            pairs[Name(arm, metric)] = Pair(a, b)
    return pairs


def _coverage(pairs: Mapping[Name, Pair]) -> list[Finding]:
    """Scores that can no longer be given. A cache may well be asked less often: that is no loss."""
    found = []
    for name, pair in pairs.items():
        then, now = scored(pair.a), scored(pair.b)
        if not layer_of(name.metric) and now < then * (1 - LOST_COVERAGE):
            text = f"{name.metric} is scored at {now} asks, and was at {then}: nothing can be said of the others"
            found.append(Finding("coverage", "unknown", name.arm, text, metric=name.metric))
    return found


def seen(summary: Mapping[str, Any]) -> float:
    """The smallest drop that this many questions show with 80 % power; NaN when there is nothing to tell it by.

    The scenario's own fault tells how losses are spread over the stream: with a share ``s`` of lost asks, errors grow
    with ``sqrt(s (1 - s))``. This gives the share at which the drop is as large as what can just be detected.
    """
    metric = summary.get("metric", "")
    found = summary.get("deltas", {}).get("faulty", {}).get(metric)
    if not found or found["mean"] is None or found["detectable"] is None or not 0.0 < abs(found["mean"]) < 1.0:
        return nan
    share = abs(found["mean"])
    ratio = found["detectable"] ** 2 / (share * (1 - share))
    return float(ratio / (1 + ratio))


def _power(cell: Cell, asks: Asks, n: int, sees: float, must_see: float) -> list[Finding]:
    metric = asks.reader.summary.get("metric", "")
    advice = f"more QUERIES, then: {baseline.refresh(asks.reader.manifest['scenario'], replace(cell, queries=400))}"
    if n < FEWEST_SCORED:
        text = f"too few queries: {n} asks are scored, fewer than {FEWEST_SCORED}; {advice}"
        return [Finding("power", "unknown", "clean", text, metric=metric)]
    if not isnan(sees) and sees > must_see:
        text = f"too few queries: a drop of {metric} is seen from {sees:.3f} up, not from {must_see:g}; {advice}"
        return [Finding("power", "unknown", "clean", text, metric=metric)]
    return []
