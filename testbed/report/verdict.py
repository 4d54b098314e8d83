"""What a run shows, in one sentence, and the few figures that carry it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from testbed.diagnose.attribution import suspects_of_blame
from testbed.diagnose.blame import from_json
from testbed.metrics.faithfulness import FAITHFUL, TRUE
from testbed.metrics.scores import is_lower_better
from testbed.report.columns import number
from testbed.report.columns import percent as spaced

Mood = Literal["harm", "calm", "unsure"]
CURED = 0.9  # share of the drop that a fix gives back to be called a cure
LITTLE = 0.05  # share of the asks
FREE = 0.005  # hit rate, or points of the metric, below which a cost is none
NAMES = {
    "answer": "answer cache",
    "retrieval": "retrieval cache",
    "embedding": "embedding cache",
    "index": "index",
    "text": "text store",
}


class Verdict(NamedTuple):
    """The headline of a run. ``detail`` says why, in one or two sentences; ``promise`` whether it was foreseen."""

    sentence: str
    detail: str
    mood: Mood
    promise: str
    kept: bool | None


class Tile(NamedTuple):
    """One figure of the clean arm and of the faulty one. ``bad``: the move is for the worse."""

    label: str
    before: str
    after: str
    change: str
    note: str
    bad: bool


def verdict(summary: Mapping[str, Any]) -> Verdict:
    promise, kept = _promise(summary["expect"])
    why = _untold(summary)
    if why:
        return Verdict(f"Could not tell: {why}.", _sentence(summary["about"]), "unsure", promise, kept)
    found = drop(summary)
    if found is None:
        broken = violations(summary)
        sentence = f"{_little(summary) or 'No clear harm'}: {_same(summary)}"
        if broken:
            sentence += f", yet {broken[0][0]} is violated {_times(broken[0][1])}"
        mood: Mood = "unsure" if broken else "calm"
        return Verdict(f"{sentence}.", _sentence(summary["about"]), mood, promise, kept)
    guilty = named(summary)
    cause = f"{_joined([f'the {layer_name(x)}' for x in guilty])} did it" if guilty else "no layer can be named"
    sentence = f"{cause[0].upper()}{cause[1:]}: {_fall(summary)}{_cure(summary)}."
    return Verdict(sentence, " ".join(_detail(summary, guilty)), "harm", promise, kept)


def tiles(summary: Mapping[str, Any]) -> list[Tile]:
    """The metric, what faithfulness says, and what the hit rates say, which is often the opposite."""
    clean, faulty = (summary["arms"].get(arm, {}) for arm in ("clean", "faulty"))
    if clean.get("status") != "ok" or faulty.get("status") != "ok":
        return []
    return list(_tiles(summary, clean, faulty))


def drop(summary: Mapping[str, Any]) -> float | None:
    """How much worse the faulty arm is than the clean one, > 0; None when that is not clear."""
    delta = summary["deltas"].get("faulty", {}).get(summary["metric"])
    if not delta or any(delta[name] is None for name in ("mean", "low", "high")):
        return None
    ends = (delta["low"], delta["high"]) if is_lower_better(summary["metric"]) else (-delta["high"], -delta["low"])
    return float(abs(delta["mean"])) if ends[0] > 0 else None


def named(summary: Mapping[str, Any]) -> list[str]:
    """Layers without which a clear part of the drop is gone, or most of the few asks that it consists of.

    Two that were left out together are one entry, ``a+b``; where it gives back the most, what one of them does alone is
    in it.
    """
    suspects = suspects_of_blame(map(from_json, summary["blame"]), exact=is_exact(summary))
    layers = [suspect.layer for suspect in suspects]
    return layers[:1] if layers and "+" in layers[0] else layers


def is_exact(summary: Mapping[str, Any]) -> bool:
    """Whether chance has no part in the run: its stack is deterministic. Summaries of older runs do not say."""
    return summary.get("deterministic") is True


def _harmed(summary: Mapping[str, Any]) -> bool:
    """Whether asks are worse, and more of them than are better, where chance has no part in it."""
    found = summary["blame"]
    return bool(found) and is_exact(summary) and bool(found[0].get("worse")) and (found[0].get("drop") or 0.0) > 0.0


def few(summary: Mapping[str, Any]) -> str:
    """Whose fault few asks are; "" where none is worse, or chance may have made it so."""
    found = summary["blame"]
    if not _harmed(summary):
        return ""
    each = ", ".join(f"{b['layer']} {b['mended']}" for b in found)
    return f"asks that are worse: {found[0]['worse']}, too few for shares; without the layer are mended: {each}"


def repair(summary: Mapping[str, Any]) -> str:
    """The fewest layers to mend, of a deterministic stack; "" where nothing is worse."""
    found = (summary.get("shapley") or {}).get("repair")
    if not found or not is_exact(summary) or not found["worse"]:
        return ""
    without = f"without {' and '.join(found['layers']) or 'nothing'} {found['left']:,}, and no fewer layers do"
    return f"asks worse than in the clean arm: {found['worse']:,}; {without}"


def violations(summary: Mapping[str, Any], arm: str = "faulty") -> list[tuple[str, int]]:
    """Invariants that the arm breaks and how often, the one of the witness first."""
    broken = [v for v in summary["arms"].get(arm, {}).get("verdicts", ()) if v["holds"] is False]
    ranked = sorted(broken, key=lambda v: v["invariant"] != summary["violated"])
    return [(v["invariant"], v["violations"]) for v in ranked]


def hits_lost(summary: Mapping[str, Any], arm: str) -> float | None:
    """What the clean stack's hit rate is above that of the arm; below 0 where the arm hits more."""
    clean, other = (summary["arms"].get(name, {}).get("hits") for name in ("clean", arm))
    return None if clean is None or other is None else float(clean - other)


def percent(share: float | None) -> str:
    """A share in a sentence: its sign never starts a line."""
    return spaced(share).replace(" ", "\u00a0")


def layer_name(layer: str) -> str:
    """What a sentence calls it, after "the": of ``a+b`` both."""
    return " and the ".join(NAMES.get(name, f"{name} layer") for name in layer.split("+"))


def _promise(expect: Mapping[str, Any]) -> tuple[str, bool | None]:
    if expect["failures"]:
        return "not as the scenario promises", False
    return ("as the scenario promises", True) if expect["applies"] else ("not held to the scenario's promise", None)


def _untold(summary: Mapping[str, Any]) -> str:
    for name in ("clean", "faulty"):
        arm = summary["arms"].get(name)
        if arm is None:
            return f"the {name} arm did not run"
        if arm["status"] != "ok":
            return f"the {name} arm is unsupported ({arm.get('why', '')})"
    means = [summary["arms"][name]["means"].get(summary["metric"]) for name in ("clean", "faulty")]
    return f"no question is scored for {summary['metric']}" if None in means else ""


def _means(summary: Mapping[str, Any], metric: str) -> tuple[float, float]:
    clean, faulty = (summary["arms"][arm]["means"].get(metric) for arm in ("clean", "faulty"))
    return (math.nan if clean is None else clean), (math.nan if faulty is None else faulty)


def _fall(summary: Mapping[str, Any]) -> str:
    before, after = _means(summary, summary["metric"])
    if summary["metric"] == TRUE:
        return f"true answers fall from {percent(before)} to {percent(after)}"
    verb = "rises" if after > before else "falls"
    return f"{summary['metric']} {verb} from {number(before)} to {number(after)}"


def _same(summary: Mapping[str, Any]) -> str:
    before, after = _means(summary, summary["metric"])
    if summary["metric"] == TRUE:
        return f"{percent(after)} of the answers are true with the fault, {percent(before)} without it"
    return f"{summary['metric']} is {number(after)} with the fault and {number(before)} without it"


def _little(summary: Mapping[str, Any]) -> str:
    """Harm that an interval cannot tell from chance, which has no part in a stack that is deterministic."""
    found = summary["blame"]
    if not _harmed(summary):
        return ""
    names = [f"the {layer_name(x)}" for x in named(summary)]
    harm = "Little harm" if found[0]["worse"] <= LITTLE * summary["queries"] else "Harm"
    where = f"{harm}, at {found[0]['worse']:,} of {summary['queries']:,} asks"
    return where + (f", by {_joined(names)}" if names else "")


def _cure(summary: Mapping[str, Any]) -> str:
    """The cheapest cures, by what they cost in hit rate on the faulty stack and in the metric on a clean one."""
    cures = [f for f in summary["fixes"] if (f["recovered"]["share"] or 0.0) >= CURED and not f["violates"]]
    if not cures:
        return ", and no fix that was tried cures it" if summary["fixes"] else ""
    prices = {f["fix"]: _price(summary, f) for f in cures}
    free = [name for name, price in prices.items() if price is not None and price <= FREE]
    if free:
        return f"; {_joined(free)} {'cure' if len(free) > 1 else 'cures'} it at no cost"
    known = {name: price for name, price in prices.items() if price is not None}
    if not known:
        return f"; {_joined(list(prices))} {'cure' if len(prices) > 1 else 'cures'} it"
    cheapest = min(known, key=lambda name: known[name])
    return f"; {cheapest} cures it and costs {number(known[cheapest], 2)} of hit rate"


def _price(summary: Mapping[str, Any], fix: Mapping[str, Any]) -> float | None:
    lost = hits_lost(summary, f"faulty+{fix['fix']}")
    return None if lost is None else max(0.0, lost, fix.get("metric_lost") or 0.0)


def _detail(summary: Mapping[str, Any], guilty: Sequence[str]) -> Iterator[str]:
    yield _sentence(summary["about"])
    if guilty:
        first = next(b for b in summary["blame"] if b["layer"] == guilty[0])
        low, high = percent(first["low"]), percent(first["high"])
        sure = f" (95\u00a0% interval {low} to {high})" if low != high else ""
        gone = f"{percent(first['share'])} of the drop is gone{sure}"
        if first["share"] is None:
            gone = f"{first['mended']:,} of the {first['worse']:,} asks are right again"
        yield f"Without the {layer_name(guilty[0])} {gone}."
    elif summary["blame"]:
        why = summary["blame"][0].get("why")
        yield f"Blame: {why}." if why else "Leaving out any one layer gives no clear part of the drop back."


def _tiles(summary: Mapping[str, Any], clean: Mapping[str, Any], faulty: Mapping[str, Any]) -> Iterator[Tile]:
    metric = summary["metric"]
    for name in dict.fromkeys((metric, FAITHFUL, "MRR@5")):
        if name not in clean["means"]:
            continue
        before, after = _means(summary, name)
        delta = summary["deltas"].get("faulty", {}).get(name) or {}
        bad = (after > before) if is_lower_better(name) else (after < before)
        note = "what this asker should have been told" if name == TRUE else ""
        if name == metric and delta.get("low") is not None:
            note = f"({number(delta['low'], 2, signed=True)} to {number(delta['high'], 2, signed=True)})"
        if name == FAITHFUL:
            note = "sees the harm" if bad and before - after > FREE else "does not see the harm"
            note = note if drop(summary) is not None else "true to what was served"
        yield _tile(name, before, after, note, bad=bad)
    cache = layer_name(summary["hits_of"])
    before, after = (math.nan if arm.get("hits") is None else arm["hits"] for arm in (clean, faulty))
    flatters = after > before + FREE and drop(summary) is not None
    yield _tile("hit rate", before, after, "looks better" if flatters else f"of the {cache}", bad=False)
    before, after = (math.nan if arm.get("valid_hits") is None else arm["valid_hits"] for arm in (clean, faulty))
    yield _tile("valid hit rate", before, after, f"of the {cache}", bad=after < before - FREE)


def _tile(label: str, before: float, after: float, note: str, *, bad: bool) -> Tile:
    return Tile(label, number(before), number(after), number(after - before, signed=True), note, bad)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""
