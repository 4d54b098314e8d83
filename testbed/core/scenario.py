"""A scenario and its arms: frozen values that one file in ``scenarios/`` builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.core.errors import unknown
from testbed.core.ports import Change, Corpus, Workload


@dataclass(frozen=True, slots=True)
class Expect:
    """What must be true of a variant for it to count as a live benchmark.

    The faulty arm's ``metric`` must fall by at least ``drop_at_least`` below the clean arm's; bypassing the layer
    ``blame`` must cure it and bypassing another must not; each fix of ``cured_by`` must recover at least
    ``recovers``, of the drop or of what that bypass gives back (see ``diagnose.expectations``).

    ``blame`` "a+b" are two layers of which each hides the other: bypassing both cures, one alone does not. "" is for
    what no bypass brings back, as lost hits. ``metric`` is any of ``metrics.scores``, or made for the scenario: the
    rate of a layer's hits (``valid hits[answer]``, ``bad hits[answer]``), or the share of answers from a revision that
    was replaced longer ago than a service allows (``behind > 60 s``). Where less is better, it must rise.
    """

    metric: str
    drop_at_least: float
    blame: str
    cured_by: tuple[str, ...]
    violates: tuple[str, ...] = ()
    recovers: float = 0.95


@dataclass(frozen=True, slots=True)
class Variant:
    """One way in which the scenario's fault shows: its faults, its workload, its fixes, what is expected of it.

    ``encoder`` is in force at the start ("": the stack has none); ``expands_questions`` is False for a service without
    query rewriting.
    ``given`` is how this service is built, in every arm and at every level: a bounded cache, another way to stay fresh.
    """

    name: str
    summary: str
    faults: tuple[Change, ...]
    fixes: tuple[Change, ...]
    workload: Workload
    expect: Expect
    anomalies: tuple[str, ...] = ()
    encoder: str = "minilm"
    expands_questions: bool = True
    given: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named pollution. ``variants[0]`` is what runs when none is asked for.

    A scenario about another kind of service brings its own: ``stack`` (``package.module:build``) with the ``layers``
    that can be bypassed there, and ``corpus``, which makes the data set called ``dataset``.
    ``slow``: all fixes on one variant take minutes, as where processes are really killed. What plays many fixes or
    levels on every scenario leaves it out, unless it is named or everything is asked for.
    """

    name: str
    summary: str
    dataset: str
    variants: tuple[Variant, ...]
    shows_versions: bool = False
    stack: str = ""
    layers: tuple[str, ...] = ()
    corpus: Callable[[], Corpus] | None = None
    slow: bool = False

    def variant(self, name: str) -> Variant | None:
        return next((v for v in self.variants if v.name == name), None)


@dataclass(frozen=True, slots=True)
class Arm:
    """One replay of the ops: how the service is built, which changes are on, which layers are bypassed."""

    name: str
    faults: tuple[Change, ...] = ()
    fixes: tuple[Change, ...] = ()
    bypass: tuple[str, ...] = ()
    given: tuple[Change, ...] = ()


def arms_of(variant: Variant, layers: tuple[str, ...]) -> tuple[Arm, ...]:
    """clean, faulty, each fix on both, and the faulty stack without each layer (and without all that are to blame)."""
    faulty = variant.faults
    joint = variant.expect.blame.split("+")
    out = [Arm("clean"), Arm("faulty", faulty)]
    out += [Arm(f"faulty+{f.name}", faulty, (f,)) for f in variant.fixes]
    out += [Arm(f"clean+{f.name}", (), (f,)) for f in variant.fixes]
    out += [Arm(f"faulty-without:{layer}", faulty, (), (layer,)) for layer in layers]
    if len(joint) > 1:
        out.append(Arm(f"faulty-without:{variant.expect.blame}", faulty, (), tuple(joint)))
    return tuple(replace(arm, given=variant.given) for arm in out)


def without(variant: Variant, layers: Sequence[str]) -> Arm:
    """The faulty stack without some layers; without none of them, the faulty arm itself."""
    name = f"faulty-without:{'+'.join(layers)}" if layers else "faulty"
    return Arm(name, variant.faults, (), tuple(layers), variant.given)


def arm_named(name: str, variant: Variant, fixes: Mapping[str, Change], layers: tuple[str, ...]) -> Arm:
    """The arm of a name in its full form: ``faulty+fix-a+fix-b-without:answer+retrieval``, or ``clean...``.

    Parameters
    ----------
    fixes : what may stand after a plus, by name; any fix, not only the variant's own
    layers : what may be bypassed

    Raises
    ------
    InvalidInput : it starts with neither ``clean`` nor ``faulty``, or names a fix or layer that is not there.
    """
    head, _, bypassed = name.partition("-without:")
    base, *fixed = head.split("+")
    if base not in ("clean", "faulty"):
        raise unknown("arm", name, [arm.name for arm in arms_of(variant, layers)])
    for fix in fixed:
        if fix not in fixes:
            raise unknown("fix", fix, fixes, f"arm {name}")
    bypass = tuple(bypassed.split("+")) if bypassed else ()
    for layer in bypass:
        if layer not in layers:
            raise unknown("layer", layer, layers, f"arm {name}")
    faults = variant.faults if base == "faulty" else ()
    return Arm(name, faults, tuple(fixes[f] for f in fixed), bypass, variant.given)
