"""A run: plan, record every arm, have it judged, write the results folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from testbed.record import manifest
from testbed.record.folder import RunReader, RunWriter
from testbed.run import plan as planning
from testbed.run import services, workers
from testbed.run.arms import Progress, builder, is_deterministic
from testbed.run.settings import Settings


class Judge(workers.ArmJudge, Protocol):
    """Judges a recorded run; lives above this package, which only records. Pickled to worker processes."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Version by name of every metric and invariant."""

    def arm(self, reader: RunReader, arm: str) -> Any:
        """What the evidence of one arm says by itself."""

    def run(
        self, plan: planning.Plan, judged: Mapping[str, Any], unsupported: Mapping[str, str], run_digest: str
    ) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        """The summary, and one score row per arm and ask."""


def run_scenario(settings: Settings, judge: Judge, progress: Progress = lambda what, done, of: None) -> Path:
    """Run every arm of a scenario, have it judged, and write the results folder.

    Parameters
    ----------
    judge : turns the recorded evidence into the summary
    progress : called with what is being done, how many of its steps are done, and of how many

    Returns
    -------
    The finished folder.

    Raises
    ------
    HarnessError : any of them; a half-written folder stays behind and says so in its manifest.
    """
    plan = planning.make(settings)
    settings = plan.settings
    builder(settings.stack)  # an unknown stack is told before anything starts
    with ExitStack() as open_now:
        service = open_now.enter_context(services.connect(settings.redis_url or None))
        writer = open_now.enter_context(RunWriter.start(settings.results_dir, described(plan, judge, service.server)))
        writer.write_inputs(
            ops=planning.op_rows(plan.ops),
            docs=planning.doc_rows(plan.ops),
            gold=list(plan.gold.values()),
            texts=planning.texts(plan.ops),
            canaries=plan.corpus.canaries,
            lexicon=plan.corpus.lexicon,
        )
        job = workers.Job(settings, service.url, service.namespace, writer.folder, judge)
        judged: dict[str, Any] = {}
        unsupported: dict[str, str] = {}
        for arm, outcome in workers.record(job, plan, service.client, progress):
            writer.recorded(arm, outcome.digest)
            if outcome.unsupported:
                unsupported[arm] = outcome.unsupported
            else:
                judged[arm] = outcome.judged
        progress("judging", 0, 1)
        content, rows = judge.run(plan, judged, unsupported, writer.digest())
        return writer.finish(content, rows)


def preview(settings: Settings, judge: Judge) -> dict[str, Any]:
    """The manifest that a run with these settings would start with; starts nothing and writes nothing."""
    return described(planning.make(settings), judge, "")


def described(plan: planning.Plan, judge: Judge, server: str) -> dict[str, Any]:
    """The manifest of a run that starts now."""
    settings = plan.settings
    return manifest.describe(
        scenario=plan.scenario.name,
        variant=plan.variant.name,
        seed=settings.seed,
        level=settings.level,
        scenario_digest=plan.scenario_digest,
        data={"name": plan.corpus.name, "digest": plan.corpus.digest},
        settings={
            "stack": settings.stack,
            "store": settings.store,
            "queries": settings.queries,
            "backend": settings.backend,
            "redis": server,
            "dataset": settings.dataset,
            "blame": settings.blame,
            "arms": list(settings.arms),
            "deterministic": is_deterministic(settings.stack),
        },
        arms=[arm.name for arm in plan.arms],
        metrics=judge.versions,
        argv=settings.argv or None,
    )
