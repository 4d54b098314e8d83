"""Plays the runs that baselines remember again, and has them judged."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.core.errors import HarnessError, InvalidInput, Undecided
from testbed.diagnose import gate, regressions
from testbed.diagnose.contrast import SAME
from testbed.diagnose.findings import Decision, Finding, Judged
from testbed.diagnose.remember import broken_promises, cell_of, is_gated, usual_tolerance, without_numbers
from testbed.diagnose.summary import Summarize
from testbed.metrics.scores import is_lower_better
from testbed.record import baseline
from testbed.record.baseline import Baseline, Cell
from testbed.record.folder import RunReader, slug
from testbed.run import scenarios, workers
from testbed.run.arms import builder
from testbed.run.execute import preview, run_scenario
from testbed.run.settings import Settings

Progress = Callable[[str, int, int], None]
BASELINES = Path("results") / "baselines"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a gate was asked for.

    Parameters
    ----------
    names : scenarios; () is every one that has a baseline
    baselines : folder of the baselines
    results_dir : where the runs are kept
    queries, stack, store : what to play with in place of what the baseline says; 0 and "" keep that. Another stack or
        store must be allowed by ``across``.
    exact : any change of a deterministic stack's trace fails
    must_see : the drop that the questions must be enough for
    """

    names: tuple[str, ...] = ()
    baselines: Path = BASELINES
    results_dir: Path = Path("results")
    queries: int = 0
    stack: str = ""
    store: str = ""
    across: tuple[str, ...] = ()
    redis_url: str = ""
    chroma_url: str = ""
    exact: bool = False
    must_see: float = gate.MUST_SEE


def play(asked: Ask, progress: Progress = lambda what, done, of: None, others: Sequence[Finding] = ()) -> Decision:
    """Play every cell of the baselines that were asked for, and decide.

    ``others`` are findings from elsewhere, such as of latencies.

    Raises
    ------
    Undecided : there is no baseline at all
    """
    known = baseline.names(asked.baselines)
    names = asked.names or tuple(known)
    if not names:
        raise Undecided(f"no baselines in {asked.baselines}; record one: {baseline.refresh('<scenario>')}")
    cells: list[Judged] = []
    missing: list[Finding] = []
    for name in names:
        found = baseline.read(asked.baselines, name)
        if found is None or not found.cells:
            scenarios.source(name)  # a name that is none at all is a typo
            text = f"{name} has no baseline in {asked.baselines}; record one: {baseline.refresh(name)}"
            missing.append(Finding("comparable", "unknown", name, text))
            continue
        cells += [judged(name, cell, asked, progress) for cell in found.cells]
    without = () if asked.names else tuple(sorted(set(scenarios.names()) - set(known)))
    return regressions.decide(cells, without=without, others=(*missing, *others))


def settings_of(scenario: str, cell: Cell, asked: Ask) -> Settings:
    return Settings(
        scenario,
        variant=cell.variant,
        seed=cell.seed,
        level=cell.level,
        stack=asked.stack or cell.stack,
        store=asked.store or cell.store,
        dataset=cell.dataset,
        queries=asked.queries or cell.queries,
        redis_url=asked.redis_url,
        chroma_url=asked.chroma_url,
        results_dir=asked.results_dir,
    )


def judged(scenario: str, cell: Cell, asked: Ask, progress: Progress = lambda what, done, of: None) -> Judged:
    """Play one cell and judge it. An error is kept, so that what else was found is still told; it never passes."""
    settings = settings_of(scenario, cell, asked)
    builder(settings.stack)  # a stack that cannot be imported is no matter of the baseline
    try:
        # A stale baseline is told before anything is played.
        found = gate.stale(scenario, cell, preview(settings, Summarize()), asked.across)
        if found:
            return Judged(scenario, cell, tuple(found))
        reader = RunReader(run_scenario(settings, Summarize(), progress))
        with ExitStack() as until_judged:
            twin = _twin(cell, reader, settings, until_judged, progress)
            return gate.judge(
                scenario,
                cell,
                reader,
                twin=twin,
                across=asked.across,
                must_see=asked.must_see,
                exact=asked.exact,
            )
    except InvalidInput as error:
        text = f"stale baseline: it cannot be played any more: {error}"
        return Judged(scenario, cell, (Finding("comparable", "unknown", "", text),))
    except HarnessError as error:
        finding = Finding("run", "unknown", "", str(error))
        return Judged(scenario, cell, (finding,), code=error.exit_code)


def _twin(
    cell: Cell, reader: RunReader, settings: Settings, until_judged: ExitStack, progress: Progress
) -> dict[str, Path]:
    """The traces of the arms that are not as the baseline remembers them, played a second time.

    An arm with the baseline's own trace has been played twice already: then and now.
    """
    if not (cell.deterministic and reader.manifest["settings"].get("deterministic") is True):
        return {}
    digests = reader.manifest["arm_digests"]
    moved = tuple(arm for arm in reader.arms if arm not in cell.arms or digests[arm] != cell.arms[arm].digest)
    if not moved:
        return {}
    progress("a second time, for determinism", 0, 1)
    folder = until_judged.enter_context(tempfile.TemporaryDirectory(prefix="rag-testbed-twin-"))
    again = replace(settings, arms=moved, results_dir=Path(folder))
    played = workers.in_fresh_process(run_scenario, again, RecordOnly())
    return {arm: played / "arms" / slug(arm) / "trace.jsonl" for arm in moved}


class RecordOnly:
    """A judge that says nothing: for a run of which only the trace is wanted."""

    @property
    def versions(self) -> Mapping[str, str]:
        return {}

    def arm(self, reader: RunReader, arm: str) -> None:
        return None

    def run(
        self, plan: Any, judged: Mapping[str, Any], unsupported: Mapping[str, str], run_digest: str
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        return {}, []


# -- recording ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recorded:
    """A baseline that was written, or that was not because of what ``worse`` says. ``changed``: mean by arm, metric."""

    path: Path | None
    worse: tuple[str, ...]
    cell: Cell
    before: Cell | None
    too_small: bool = False


def record(settings: Settings, folder: Path, *, accept: str, must_see: float, progress: Progress) -> Recorded:
    """Play a run and make it the baseline of its scenario, variant and seed.

    Nothing is written where that would hide something: a run that is worse than the baseline that is there, that
    breaks an invariant or a promise, or that is too small to see a drop, is recorded only with a reason (``accept``),
    which is kept in the file.
    """
    old = baseline.read(folder, settings.scenario) or Baseline(settings.scenario)
    reader = RunReader(run_scenario(settings, Summarize(), progress))
    fresh = cell_of(reader)
    before = old.cell(fresh.key)
    if before is not None:
        fresh = replace(fresh, tolerance={**fresh.tolerance, **_kept(before, fresh)})
    with ExitStack() as until_judged:
        twin = _twin(replace(fresh, arms={}), reader, settings, until_judged, progress)
        worse = [*_worse(settings.scenario, before, reader, twin), *_broken(fresh, reader)]
        own = gate.judge(settings.scenario, fresh, reader, twin=twin, must_see=must_see, leeway=1.0)
    small = [f.text for f in own.findings if f.rule == "power"]
    unsteady = [f"{f.arm}: {f.text}" for f in own.findings if f.rule == "determinism" and f.outcome == "failed"]
    worse = list(dict.fromkeys([*unsteady, *worse, *small]))
    if worse and not accept:
        return Recorded(None, tuple(worse), fresh, before, too_small=worse == small)
    fresh = replace(fresh, accepted=accept if worse else "")
    return Recorded(baseline.write(folder, old.with_cell(fresh)), tuple(worse), fresh, before)


def _kept(before: Cell, fresh: Cell) -> dict[str, float]:
    """Tolerances that somebody has edited stay."""
    edited = {m: v for m, v in before.tolerance.items() if v != usual_tolerance(m, before.deterministic)}
    return {metric: value for metric, value in edited.items() if metric in fresh.tolerance}


def _worse(scenario: str, before: Cell | None, reader: RunReader, twin: Mapping[str, Path]) -> list[str]:
    """What a gate against the older baseline would say; by means only where the two cannot be paired."""
    if before is None:
        return []
    held = gate.judge(scenario, before, reader, twin=twin, must_see=1.0)
    if held.pairs:
        failed = regressions.decide([held]).findings("failed")
        return [f"{f.arm}: {f.text}" if f.arm else f.text for _, f in failed]
    return list(_lower_means(before, cell_of(reader)))


def _lower_means(before: Cell, fresh: Cell) -> Iterator[str]:
    for arm in sorted(before.arms.keys() & fresh.arms.keys()):
        if not is_gated(arm):
            continue
        for metric, allowed in sorted(before.tolerance.items()):
            then, now = (cell.arms[arm].means.get(metric) for cell in (before, fresh))
            if then is None or now is None:
                continue
            loss = now - then if is_lower_better(metric) else then - now
            # Other questions, perhaps: what is a matter of chance is held to what chance explains.
            if loss > max(allowed, usual_tolerance(metric, deterministic=False)) + SAME:
                yield f"{arm}: {metric} {then:.3f} -> {now:.3f} (another experiment: not paired, look at it yourself)"


def _broken(fresh: Cell, reader: RunReader) -> list[str]:
    """What a run of this size is held to and does not show; of a stack that is not deterministic, surely not."""
    told = reader.summary["expect"]["failures"]
    if not fresh.deterministic:
        sure = {without_numbers(text) for text in broken_promises(reader.summary, deterministic=False)}
        told = [text for text in told if without_numbers(text) in sure]
    return [f"not as promised: {text}" for text in told]
