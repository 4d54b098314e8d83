"""Arms in parallel: they share nothing but the ops, so each can run in a process of its own.

Processes are spawned, not forked: a fork of a process in which numpy, Faiss or torch already run threads can hang.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from testbed.core import digest
from testbed.core.errors import InvalidInput, Unavailable
from testbed.core.scenario import Arm
from testbed.record.folder import ArmWriter, RunReader
from testbed.run import plan as planning
from testbed.run import services
from testbed.run.arms import ArmRunner, Progress, Server
from testbed.run.settings import Settings

WORTH_WORKERS = 2000  # asks over all arms: below, starting processes costs more than it saves
MAX_WORKERS = 4
ENV = "TESTBED_WORKERS"
T = TypeVar("T")


class ArmJudge(Protocol):
    """Judges one recorded arm; travels to the worker, as does what it gives back."""

    def arm(self, reader: RunReader, arm: str) -> Any: ...


class Outcome(NamedTuple):
    """A recorded arm: the digest of its trace, why it is unsupported ("" when it ran), what the judge made of it."""

    digest: str
    unsupported: str
    judged: Any


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to record any arm of a run: all of it small, the rest it works out again."""

    settings: Settings
    redis_url: str
    namespace: str
    folder: Path
    judge: ArmJudge


def record(job: Job, plan: planning.Plan, client: Any, progress: Progress) -> Iterator[tuple[str, Outcome]]:
    """Record and judge every arm; outcomes in the order of the plan.

    What no run has embedded before is embedded here first; workers then find it in the memo, and need no torch.
    """
    here = Recording(job, plan, client, progress)
    here.embed_ahead()
    first, rest = plan.arms[0], plan.arms[1:]
    n_workers = workers_for(len(plan.gold) * len(plan.arms))
    if n_workers == 1:
        for arm in plan.arms:
            yield arm.name, here(arm)
        return
    with pool(job, n_workers) as executor:
        yield first.name, here(first)
        waiting = [executor.submit(_in_worker, number) for number in range(1, len(plan.arms))]
        yield from _collect(rest, waiting, progress)


def workers_for(n_asks: int) -> int:
    """How many processes to use: ``$TESTBED_WORKERS``, else one a core up to four where it is worth it."""
    asked = os.environ.get(ENV, "")
    if asked:
        if not asked.isdigit() or int(asked) < 1:
            raise InvalidInput(f"{ENV}={asked} must be a whole number >= 1")
        return int(asked)
    return max(1, min(MAX_WORKERS, os.cpu_count() or 1)) if n_asks >= WORTH_WORKERS else 1


def _collect(
    arms: Sequence[Arm], waiting: Sequence[Future[Outcome]], progress: Progress
) -> Iterator[tuple[str, Outcome]]:
    for done, (arm, future) in enumerate(zip(arms, waiting, strict=True)):
        progress("arms", done, len(arms))
        try:
            yield arm.name, future.result()
        except BrokenProcessPool as error:
            raise Unavailable(f"the process that ran arm {arm.name} died; free some memory, or set {ENV}=1") from error
    progress("arms", len(arms), len(arms))


class Recording:
    """Records and judges arms in this process."""

    def __init__(self, job: Job, plan: planning.Plan, client: Any, progress: Progress) -> None:
        self._job = job
        self._runner = ArmRunner(plan, Server(client, job.namespace), progress)
        self._known = frozenset(digest.of_text(text) for text in planning.texts(plan.ops))
        self._reader = RunReader(job.folder, unfinished=True)

    def embed_ahead(self) -> None:
        self._runner.embed_ahead()

    def __call__(self, arm: Arm) -> Outcome:
        sink = ArmWriter(self._job.folder, arm.name, self._known)
        try:
            why, held_bytes = self._runner.run(arm, sink)
            sink.held(held_bytes)
            sink.close()
        finally:
            sink.abandon()
        return Outcome(sink.digest, why, None if why else self._job.judge.arm(self._reader, arm.name))


# -- in a worker -------------------------------------------------------------------------------------------------------

_here: tuple[Recording, tuple[Arm, ...]] | None = None


def _start(job: Job) -> None:
    """Once per worker: load the plan and connect. Ctrl-C is for the parent, which ends its workers itself."""
    global _here
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    plan = planning.make(job.settings)
    _here = Recording(job, plan, services.client_at(job.redis_url), lambda what, done, of: None), plan.arms


def _in_worker(number: int) -> Outcome:
    assert _here is not None
    recording, arms = _here
    return recording(arms[number])


def die_with_parent() -> None:
    """A parent that was killed cannot tell: watch for it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def in_fresh_process(call: Callable[..., T], *arguments: Any) -> T:
    """The result of a call in a new process: with another hash seed, unless PYTHONHASHSEED says which."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=die_with_parent) as executor:
        try:
            return executor.submit(call, *arguments).result()
        except BrokenProcessPool as error:
            raise Unavailable("the process that played a run a second time died; free some memory") from error
        except BaseException:
            for child in multiprocessing.active_children():
                child.kill()
            raise


@contextmanager
def pool(job: Job, n_workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes, started at once; none of them outlives the with-block."""
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(n_workers, mp_context=context, initializer=_start, initargs=(job,))
    try:
        for _ in range(n_workers):
            executor.submit(os.getpid)
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.kill()
        raise
    executor.shutdown()
