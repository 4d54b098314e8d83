"""The rule of the gate that needs all runs: which metrics fell by more than their tolerance or chance explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan

from testbed.core.history import Ask
from testbed.diagnose.contrast import SAME, Contrast, Pair, contrasts, over_scenarios
from testbed.diagnose.expectations import BYPASSED
from testbed.diagnose.findings import RULES, Decision, Finding, Judged
from testbed.diagnose.remember import usual_tolerance
from testbed.diagnose.significance import Questions
from testbed.metrics.scores import is_lower_better
from testbed.metrics.serving import layer_of


def decide(cells: Sequence[Judged], *, without: Sequence[str] = (), others: Sequence[Finding] = ()) -> Decision:
    """Add what needs all of them: which metrics fell, by more than chance explains among so many."""
    groups: dict[str, list[Judged]] = {}
    for judged in cells:
        if judged.pairs:
            groups.setdefault(judged.group, []).append(judged)
    compared = {
        group: contrasts(
            [j.pairs for j in members], seed=members[0].cell.seed, name=f"gate/{group}", questions=_questions(members)
        )
        for group, members in groups.items()
    }
    exact = {group for group, members in groups.items() if members[0].is_exact}
    compared = {
        **over_scenarios({group: rows for group, rows in compared.items() if group in exact}),
        **over_scenarios({group: rows for group, rows in compared.items() if group not in exact}),
    }
    out = []
    for judged in cells:
        found = list(judged.findings)
        if judged.pairs and groups[judged.group][0] is judged:
            found += _fallen(groups[judged.group], compared[judged.group])
        found.sort(key=lambda f: (f.outcome == "noted", RULES.index(f.rule)))
        out.append(replace(judged, findings=tuple(found)))
    return Decision(tuple(out), compared, tuple(without), tuple(others))


def _questions(members: Sequence[Judged]) -> list[Questions] | None:
    """Which asks of each run are of the same question; not looked up where no arm has moved."""
    asks = [judged.asks for judged in members if judged.asks is not None]
    return [found.questions() for found in asks] if not all(judged.same_trace for judged in members) else None


def _fallen(members: Sequence[Judged], rows: Sequence[Contrast]) -> list[Finding]:
    """Metrics that are worse by more than their tolerance: notes where chance may have done it, failures else.

    Chance has no part in a stack that is deterministic, but an outer cache that serves more leaves less to an inner
    one: behind a layer that has more valid hits, one that has fewer is judged as if chance had.
    """
    found = []
    more = {(row.name.arm, layer) for row in rows if (layer := layer_of(row.name.metric)) and row.loss < -SAME}
    order = [] if members[0].asks is None else members[0].asks.reader.summary["order"]
    for row in rows:
        before = _outside(layer_of(row.name.metric), order)
        is_exact = members[0].is_exact and not any((row.name.arm, layer) in more for layer in before)
        allowed = min(_allowed(judged, row.name.metric, is_exact) for judged in members)
        if isnan(row.loss) or row.loss <= allowed + SAME:
            continue
        layer, witness = _where(members, row)
        low, high = row.interval.low, row.interval.high
        digits = 3 if row.loss >= 0.0005 else 6
        way = "rose" if is_lower_better(row.name.metric) else "fell"
        text = (
            f"{row.name.metric} {way} by {row.loss:.{digits}f}, {row.a:.{digits}f} -> {row.b:.{digits}f}"
            f" (95 % interval of the difference {low:+.{digits}f} to {high:+.{digits}f}, tolerance {allowed:g},"
            f" p {row.p_holm:.4f})"
        )
        fails = row.significant or is_exact
        if not fails:
            text += ": not significant"
        elif not row.significant:
            asks = "1 ask is" if row.losses == 1 else f"{row.losses} asks are"
            text += f": {asks} worse, {row.wins} better, and chance has no part in it"
        found.append(
            Finding(
                "metric",
                "failed" if fails else "noted",
                row.name.arm,
                text,
                layer=layer,
                metric=row.name.metric,
                witness=witness if fails else "",
                contrast=row,
            )
        )
    return found


def _outside(layer: str, order: Sequence[str]) -> list[str]:
    """What is asked before a layer, by the arms that bypass one; of a tier, also its layer as a whole."""
    whole, tier = layer.partition(".")[0], "." in layer
    layers = [arm.removeprefix(BYPASSED) for arm in order if arm.startswith(BYPASSED) and "+" not in arm]
    return [*layers[: layers.index(whole)], *[whole] * tier] if whole in layers else []


def _allowed(judged: Judged, metric: str, is_exact: bool) -> float:
    """What is not yet a regression: nothing where chance has no part, unless the file says otherwise."""
    own = judged.cell.tolerance.get(metric, usual_tolerance(metric, judged.cell.deterministic))
    return own if is_exact == judged.cell.deterministic else max(own, usual_tolerance(metric, deterministic=False))


def _where(members: Sequence[Judged], row: Contrast) -> tuple[str, str]:
    """The layer that served most of the asks that got worse, and the first of them in words."""
    sign = 1 if is_lower_better(row.name.metric) else -1
    served: dict[str, int] = {}
    witness = ""
    for judged in members:
        assert judged.asks is not None
        pair = judged.pairs[row.name]
        history = judged.asks.history(judged.stands[row.name.arm])
        for place, ask in enumerate(history.asks.values()):
            if sign * (pair.b[place] - pair.a[place]) > SAME:
                served[ask.via] = served.get(ask.via, 0) + 1
                texts = history.evidence.texts
                witness = witness or _story(ask, row.name.metric, pair, place, texts, judged.cell.seed)
    worst = max(sorted(served), key=lambda layer: served[layer], default="")
    return layer_of(row.name.metric) or ("index" if worst == "none" else worst), witness


def _story(ask: Ask, metric: str, pair: Pair, place: int, texts: Mapping[str, str], seed: int) -> str:
    who = f"tenant {ask.op.tenant} asked" if ask.op.tenant else "asked"
    how = "no cache served it" if ask.via == "none" else f"served by the {ask.via} cache"
    question = texts.get(ask.op.text, ask.op.id)
    return (
        f'op {ask.op.index} (seed {seed}): {who} "{question}": {metric} {pair.a[place]:.3g} -> {pair.b[place]:.3g},'
        f" {how}"
    )
