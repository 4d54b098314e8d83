"""Which runs a sweep is made of: scenarios, variants, seeds and levels as they are typed, multiplied out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from testbed.core.errors import InvalidInput, Unavailable, unknown
from testbed.core.scenario import Scenario, Variant
from testbed.run import plan as planning
from testbed.run import scenarios
from testbed.run.settings import Settings, level_of, seed_of

MAX_SEEDS = 10_000
FIRST, ALL = "first", "all"


def seeds_of(text: str) -> tuple[int, ...]:
    """Seeds such as ``42``, ``1-10`` or ``1-3,7``: each once, in the order typed."""
    out: dict[int, None] = {}
    for part in _parts(text, "seeds", "1-10 or 1,2,5"):
        found = re.fullmatch(r"(\d+)-(\d+)", part, re.ASCII)
        first, last = (int(found[1]), int(found[2])) if found else (seed_of(part),) * 2
        if last < first:
            raise InvalidInput(f"--seeds {part}: the range ends before it begins; expected {last}-{first}")
        if last - first >= MAX_SEEDS:
            raise InvalidInput(f"--seeds {part}: {last - first + 1} seeds are more than {MAX_SEEDS}")
        out.update(dict.fromkeys(range(first, last + 1)))
    return tuple(out)


def levels_of(text: str) -> tuple[float, ...]:
    """Levels such as ``low,medium,0.03``: each once, in the order typed."""
    return tuple(dict.fromkeys(level_of(part) for part in _parts(text, "levels", "low,medium,0.03")))


def variants_of(
    names: Sequence[str],
    which: str,
    say: Callable[[str], None] = lambda line: None,
    left_out: Sequence[str] = (),
) -> list[tuple[str, Variant]]:
    """Variants of scenarios: ``first`` of each, ``all``, or names, of which each scenario must have one.

    Parameters
    ----------
    names : scenarios; none is all that can be played here
    say : told which scenario is left out for want of an extra
    left_out : scenarios that are played only when they are named
    """
    out: list[tuple[str, Variant]] = []
    for name in dict.fromkeys(names or [name for name in scenarios.names() if name not in left_out]):
        scenario = scenarios.load(name)
        if not names and (why := _missing(scenario)):
            say(f"left out: {why}")
            continue
        if which in (FIRST, ALL):
            chosen = list(scenario.variants[: 1 if which == FIRST else None])
        else:
            asked = _parts(which, "variants", "all, first, or names")
            chosen = [variant for variant in scenario.variants if variant.name in asked]
            if not chosen:
                raise unknown(f"variant of {name}", asked[0], [v.name for v in scenario.variants])
        out += [(name, variant) for variant in chosen]
    return out


def cells(
    variants: Iterable[tuple[str, Variant]],
    seeds: Sequence[int],
    levels: Sequence[float] = (1.0,),
    queries: int = 400,
    arms: tuple[str, ...] = (),
    stack: str = "reference",
    store: str = "faiss",
) -> list[Settings]:
    """Every variant at every level and seed, seeds innermost."""
    return [
        Settings(
            name, variant=variant.name, seed=seed, level=level, queries=queries, arms=arms, stack=stack, store=store
        )
        for name, variant in variants
        for level in levels
        for seed in seeds
    ]


def played_on(stack: str, store: str) -> str:
    """What the name of a table says of where it was played; "" for the reference stack on its usual store."""
    usual = Settings("")
    return "" if (stack, store) == (usual.stack, usual.store) else re.sub(r"\W+", "-", f"-{stack}-{store}")


def _missing(scenario: Scenario) -> str:
    """What the scenario's own data needs that is not installed; "" when nothing is missing."""
    try:
        planning.corpus_of(scenario, "")
    except Unavailable as error:
        return str(error)
    return ""


def _parts(text: str, option: str, example: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InvalidInput(f"--{option} {text!r} names nothing between two commas; expected such as {example}")
    return parts
