"""The story of a run on a terminal: what each arm's users got, what cures it and at what price, whose fault it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from testbed.record.folder import RunReader
from testbed.report import arms, shades
from testbed.report.catalogue import print_json
from testbed.report.columns import Column, number, percent, to_table
from testbed.report.verdict import few, repair

MARGIN = 12  # columns that the names of the lines below the table take


def print_run(folder: Path, console: Console, *, as_json: bool = False, verify: bool = False) -> int:
    """Print one whole run; exit code 1 when the scenario did not show what it promises."""
    reader = RunReader(folder)
    if verify:
        reader.verify()
    summary = reader.summary
    if as_json:
        print_json({**summary, "folder": str(folder)})
    else:
        story(summary, folder, console)
    return 1 if summary["expect"]["failures"] else 0


def story(summary: Mapping[str, Any], folder: Path, console: Console) -> None:
    """All of it, in about 45 lines."""
    _title(summary, console)
    console.print(to_table(arms.columns(summary), console.width))
    console.print(f"hits and valid hits: of the {summary['hits_of']} cache; delta: against clean", style="dim")
    if any(c.name == "grounding*" for c in arms.columns(summary)):
        console.print(arms.GROUNDING_NOTE, style="dim")
    console.print()
    for name, text in (
        *violated(summary),
        *fixes(summary),
        *blame(summary),
        *shapley(summary),
        *spread(summary),
        *quadrants(summary),
    ):
        _line(name, text, console)
    _heatmap(summary, console)
    _versions(summary, console)
    for name, text in (*witness(summary), *expectation(summary)):
        _line(name, text, console)
    for name, text in (("results", str(folder)), ("digest", summary["digest"])):  # to be copied: never folded
        console.print(Text.assemble((name.ljust(MARGIN), "bold"), text), soft_wrap=True)


def violated(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The invariants that the faulty arm breaks, and how often."""
    faulty = summary["arms"].get("faulty", {})
    broken = [f"{v['invariant']} {v['violations']} times" for v in faulty.get("verdicts", ()) if v["holds"] is False]
    if broken:
        yield "violated", f"faulty arm: {', '.join(broken)}"


def fixes(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What each fix gives back of the drop, and what it costs where nothing is wrong."""
    metric, layer = summary["metric"], summary["hits_of"]
    longest = max((len(fix["fix"]) for fix in summary["fixes"]), default=0)
    for place, fix in enumerate(summary["fixes"]):
        share = fix["recovered"]["share"]
        cure = f"recovers {percent(share)}" if share is not None else "could not tell"
        hits = (fix["hit_rate_lost"] or {}).get(layer)
        price = (
            f"costs {number(fix['metric_lost'])} {metric} and {number(hits)} hit rate on a clean stack,"
            f" {number(_hits_lost(summary, fix['fix']))} hit rate on the faulty one"
        )
        still = f"; still violates {', '.join(fix['violates'])}" if fix["violates"] else ""
        yield "" if place else "fixes", f"{fix['fix']:<{longest}} {cure}; {price}{still}"


def _hits_lost(summary: Mapping[str, Any], fix: str) -> float | None:
    """What the clean stack's hit rate is above that of the faulty one with the fix. Latency is a column of its own."""
    clean, cured = (summary["arms"].get(arm, {}).get("hits") for arm in ("clean", f"faulty+{fix}"))
    return None if clean is None or cured is None else clean - cured


def blame(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The share of the drop that goes away without each layer, and what the published method would have said.

    Of a drop that is too small for shares, the asks that it consists of, where the stack is deterministic.
    """
    found = summary["blame"]
    told = [f"{b['layer']} {percent(b['share'])}" for b in found if b["share"] is not None]
    if told:
        yield "blame", f"{', '.join(told)} of the drop is gone without it"
    elif found:
        yield "blame", few(summary) or f"could not tell: {found[0]['why']}"
    if told and summary["published_attribution"]:
        top = summary["published_attribution"][0]
        agrees = "agrees" if top["layer"] == found[0]["layer"] else "does not agree"
        yield "", f"the heatmap alone says {top['layer']} (confidence {top['confidence']:.2f}), which {agrees}"


def shapley(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each layer's share where several hide one another, and what is not theirs."""
    found = summary.get("shapley")
    if not found:
        return
    if not found["shares"]:
        yield "shapley", f"could not tell: {found['why']}"
        return
    some = [s for s in found["shares"] if s["error"] is not None or max(abs(s["low"]), abs(s["high"])) >= 0.0005]
    told = [f"{s['layer']} {number(s['share'], signed=True)}{_spread_of(s)}" for s in some]
    told += ["the other layers nothing"] * (len(some) < len(found["shares"]))
    how = "" if found["exact"] else ", from random orders of the layers"
    yield "shapley", f"the drop of {number(found['drop'])} {summary['metric']} is shared by{how}:"
    yield "", ", ".join(told)
    yield "", f"{number(found['rest'], signed=True)} is no layer's: what running without any of them costs or gives"
    if repaired := repair(summary):
        yield "repair", repaired


def _spread_of(share: Mapping[str, Any]) -> str:
    if share["low"] is not None:
        return f" [{number(share['low'], signed=True)}, {number(share['high'], signed=True)}]"
    return f" ± {number(share['error'])}" if share["error"] is not None else ""


def spread(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How the pollution spread and stayed, in logical seconds."""
    found = summary.get("pollution")
    if not found or found["first_bad_s"] is None:
        return
    told = [f"first served at {found['first_bad_s']:g} s"]
    seen, clean = found["time_to_detect_s"], found["time_to_clean_s"]
    told.append("never loud enough to be noticed" if seen is None else f"noticeable {seen:g} s later")
    made = found["blast_radius"]
    told.append(f"{found['poisoned'][-1]} entries poisoned" + (f" (one of them spread to {made})" if made else ""))
    if clean is not None:
        told.append(f"served until {clean:g} s after the last new one")
    yield "pollution", ", ".join(told)


def quadrants(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The 2 x 2 of the faulty arm: what faithfulness alone cannot see."""
    counts = summary["arms"].get("faulty", {}).get("quadrants")
    if counts:
        yield (
            "answers",
            f"faulty arm: {counts['faithful_true']} faithful and true, {counts['faithful_untrue']} faithful but untrue"
            f" (faithfulness cannot see these), {_other(counts)} unfaithful, {counts['abstained']} abstained,"
            f" {counts['unscored']} that state nothing which can be checked",
        )


def witness(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if summary["witness"]:
        yield "witness", f"{summary['witness']['story']} ({summary['violated']})"


def expectation(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the scenario promises of itself, and whether it is so."""
    expect = summary["expect"]
    metric, cured_by = expect["metric"], ", ".join(expect["cured_by"])
    promise = (
        f"{metric} {'rises' if metric.startswith(LESS_IS_BETTER) else 'falls'} by at least"
        f" {expect['drop_at_least']:.2f}, {expect['blame'].replace('+', ' and ') or 'no layer'} to blame,"
        f" cured by {cured_by}"
    )
    if expect["failures"]:
        yield "expected", f"{promise}: NOT so"
        yield from (("", failure) for failure in expect["failures"])
    elif expect["applies"]:
        yield "expected", f"{promise}: so it is"
    else:
        clean = "; the clean arm violates nothing" if "clean" in summary["arms"] else ""
        yield "expected", f"this run is not held to it, because {expect['why_not']}{clean}"


def _title(summary: Mapping[str, Any], console: Console) -> None:
    knobs = f"seed {summary['seed']}, level {summary['level']:g}, {summary['stack']} on {summary['store']}"
    console.print(f"{summary['scenario']} / {summary['variant']}: {summary['about']}", style="bold")
    console.print(f"{summary['queries']} questions on {summary['dataset']}, {knobs}\n", style="dim")


def _heatmap(summary: Mapping[str, Any], console: Console) -> None:
    """Hit rates of the faulty arm by layer and time, above how far its users fell behind the clean arm's."""
    heat = summary["heatmap"]
    if not heat:
        return
    characters = shades.ramp(console.encoding)
    legend = f"'{characters[0]}' none, '{characters[-1]}' all, {shades.UNKNOWN} not asked"
    console.print(Text.assemble(("heatmap".ljust(MARGIN), "bold"), f"hit rate over time, faulty arm ({legend})"))
    for layer in heat["layers"]:
        console.print(f"  {layer:<{MARGIN - 2}}{shades.shade(heat['hits'][layer], characters)}")
        if layer == summary["hits_of"]:
            console.print(f"  {' valid':<{MARGIN - 2}}{shades.shade(heat['valid_hits'][layer], characters)}")
    lost = [None if value is None else -value for value in heat["delta"]]
    if summary["metric"].startswith(LESS_IS_BETTER):
        lost = heat["delta"]
    top = max((value for value in lost if value is not None), default=0.0)
    drop = shades.shade(lost, characters, top=top)
    console.print(f"  {'drop':<{MARGIN - 2}}{drop}  {summary['metric']}, at most {number(max(top, 0.0))}")


def _versions(summary: Mapping[str, Any], console: Console) -> None:
    """Who the cache believes made its entries, and who did."""
    parts = summary["versions"]
    if not parts:
        return
    console.print("versions", style="bold")
    table = [Column(name, tuple(str(part[name]) for part in parts), number=False) for name in VERSION_COLUMNS]
    console.print(to_table(table, console.width))


def _line(name: str, text: str, console: Console) -> None:
    """A named paragraph with a hanging indent, and no name on the lines that go on with it."""
    lines = Text(text).wrap(console, max(20, console.width - MARGIN))
    for place, line in enumerate(lines):
        console.print(Text.assemble((("" if place else name).ljust(MARGIN), "bold"), line.plain.rstrip()))


def _other(counts: Mapping[str, int]) -> int:
    return int(counts["unfaithful_true"] + counts["unfaithful_untrue"])


LESS_IS_BETTER = ("leak rate", "stale rate", "abstained", "behind > ", "bad hits[")
VERSION_COLUMNS = ("part", "actual", "believed", "agree")
