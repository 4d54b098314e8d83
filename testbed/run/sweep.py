"""Many runs, of each of which one JSON value is kept: interrupted at any moment, a sweep goes on where it was.

A cell is named by the digest of everything that its value depends on: the settings, the scenario's file, the data, the
code of this package, the packages it runs on, and what is measured. The value is written in one step, with its own
digest; before it is used again both are checked, and a cell that is not whole is run anew. One sweep at a time works in
a folder: another one is told so, and a new one waits for what a killed one's processes still do.
"""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from testbed.core import digest
from testbed.core.errors import HarnessError, InvalidInput, Unavailable
from testbed.record import durable, manifest
from testbed.run import plan as planning
from testbed.run import scenarios, workers
from testbed.run.arms import Progress
from testbed.run.execute import Judge, run_scenario
from testbed.run.settings import Settings

FORMAT = 1
_PACKAGE = Path(__file__).resolve().parents[1]


class Measure(NamedTuple):
    """What is kept of a finished results folder: a function of a module (it travels to worker processes) -> JSON.

    ``name`` tells two measures of the same run apart; change it when the function changes its mind.
    """

    name: str
    of: Callable[[Path], Any]


class Done(NamedTuple):
    """A cell's value; ``reused`` when an earlier sweep had it. ``error`` is why there is none, else ""."""

    settings: Settings
    value: Any
    reused: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Where a sweep keeps its cells, and how it makes them.

    Parameters
    ----------
    folder : cells are kept in ``<folder>/cells``; may be shared by sweeps of different measures
    judge : picklable, as for a single run
    n_workers : processes; each runs one cell at a time
    keeps_going : a cell that fails is told by its ``Done.error``, and the others are run; it is not kept
    apart : never in this process, however few workers: what is run is to meet another hash seed than here
    """

    folder: Path
    judge: Judge
    measure: Measure
    n_workers: int = 1
    keeps_going: bool = False
    apart: bool = False

    def run(self, cells: Sequence[Settings], progress: Progress = lambda what, done, of: None) -> list[Done]:
        """The value of every cell, in the order given; a cell that is given twice is run once.

        Raises
        ------
        HarnessError : a cell's own, unless ``keeps_going``; what is finished by then is kept.
        """
        with durable.saying(self.folder / "cells"):
            (self.folder / "cells").mkdir(parents=True, exist_ok=True)
        with _alone(self.folder):
            return self._run(cells, progress)

    def _run(self, cells: Sequence[Settings], progress: Progress) -> list[Done]:
        named = [self._told(partial(fingerprint, cell, self.measure.name)) for cell in cells]
        names = [name or f"cell {place}" for place, (name, _) in enumerate(named)]
        values = {name: (None, error) for name, (_, error) in zip(names, named, strict=True) if error}
        found = {name: _read(self._path(name), name) for name in dict.fromkeys(names) if name not in values}
        missing = {n: cell for n, cell in zip(names, cells, strict=True) if n in found and found[n] is None}
        values |= {name: (cell["value"], "") for name, cell in found.items() if cell is not None}
        label = f"cells ({len(found) - len(missing)} reused)"
        progress(label, 0, len(missing))
        for done, (name, value, error) in enumerate(self._made(missing), start=1):
            values[name] = value, error
            progress(label, done, len(missing))
        reused = {name for name, cell in found.items() if cell is not None}
        return [Done(c, values[n][0], n in reused, values[n][1]) for n, c in zip(names, cells, strict=True)]

    def _path(self, name: str) -> Path:
        return self.folder / "cells" / f"{name}.json"

    def _made(self, missing: Mapping[str, Settings]) -> Iterator[tuple[str, Any, str]]:
        """Name, value and error of each cell, as they are done."""
        if not self.apart and (self.n_workers <= 1 or len(missing) <= 1):
            for name, cell in missing.items():
                yield name, *self._told(partial(self.make, name, cell))
            return
        if not missing:
            return
        with _pool(min(self.n_workers, len(missing)), self.folder, self.judge) as executor:
            with _interrupts_held():
                waiting = {executor.submit(_in_worker, self, n, cell): n for n, cell in missing.items()}
            try:
                for future in as_completed(waiting):
                    yield waiting[future], *self._told(future.result)
            except BrokenProcessPool as error:
                raise Unavailable(
                    f"a process of the sweep died; what is finished is kept in {self.folder}; run it again to go on"
                ) from error

    def _told(self, result: Callable[[], Any]) -> tuple[Any, str]:
        try:
            return result(), ""
        except HarnessError as error:
            if not self.keeps_going:
                raise
            return None, str(error) or type(error).__name__

    def make(self, name: str, cell: Settings) -> Any:
        """Run one cell, keep its value, drop its results folder."""
        scratch = self.folder / "scratch" / name
        shutil.rmtree(scratch, ignore_errors=True)  # of a sweep that was killed
        try:
            value = self.measure.of(run_scenario(replace(cell, results_dir=scratch), self.judge))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        told = {"format": FORMAT, "cell": name, "measure": self.measure.name, "settings": _knobs(cell), "value": value}
        durable.write_bytes(self._path(name), digest.canonical(told | {"digest": digest.of_json(told)}) + b"\n")
        return value


def fingerprint(cell: Settings, measure: str) -> str:
    """32 hex digits over everything that the value of a cell depends on."""
    return digest.of_json(
        {
            "settings": _knobs(cell),
            "scenario": digest.of_bytes(scenarios.source(cell.scenario, cell.scenarios_dir).read_bytes()),
            "data": _data_digest(cell.scenario, cell.scenarios_dir, cell.dataset),
            "code": code_digest(),
            "stack": _stack_digest(cell.stack),
            "packages": manifest.packages(),
            "measure": measure,
        }
    )[:32]


def n_workers(cells: int) -> int:
    """How many processes a sweep of so many cells may use: ``$TESTBED_WORKERS``, else one a core."""
    asked = os.environ.get(workers.ENV, "")
    if asked and (not asked.isdigit() or int(asked) < 1):
        raise InvalidInput(f"{workers.ENV}={asked} must be a whole number >= 1")
    return max(1, min(cells, int(asked) if asked else os.cpu_count() or 1))


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of this package's source files: another line of code may be another value."""
    files = sorted(_PACKAGE.rglob("*.py"))
    return digest.of_parts((f.relative_to(_PACKAGE).as_posix(), digest.of_bytes(f.read_bytes())) for f in files)


def _stack_digest(stack: str) -> str:
    """Digest of the module of a user's own stack; "" for one of ours, whose code is counted already."""
    module, colon, _ = stack.partition(":")
    if not colon:
        return ""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # a parent that is not there, or no name at all
        found = None
    if found is None or not found.has_location or found.origin is None:
        raise InvalidInput(f"STACK={stack}: there is no file of a module {module!r}; expected package.module:build")
    return digest.of_bytes(Path(found.origin).read_bytes())


@lru_cache(maxsize=64)
def _data_digest(scenario: str, scenarios_dir: Path | None, dataset: str) -> str:
    return planning.corpus_of(scenarios.load(scenario, scenarios_dir), dataset).digest


def _knobs(cell: Settings) -> dict[str, Any]:
    """The settings that a value depends on: not where results go, nor which server holds the caches."""
    told = asdict(cell)
    for name in ("results_dir", "redis_url", "chroma_url", "argv"):
        del told[name]
    return told | {"arms": list(cell.arms), "scenarios_dir": str(cell.scenarios_dir or "")}


def _read(path: Path, name: str) -> dict[str, Any] | None:
    """A finished cell; None when it is not there or not whole."""
    try:
        told = json.loads(path.read_bytes())
        said = told.pop("digest")
        whole = told["format"] == FORMAT and told["cell"] == name and said == digest.of_json(told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return told if whole else None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """This sweep alone works in the folder: locks of the kernel, which a process that dies cannot leave behind.

    ``lock`` is the sweep's. Its worker processes share ``working``: when a sweep was killed they live a moment longer,
    and may finish a cell in it, which must not be run a second time.
    """
    with (folder / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(
                f"another sweep is at work in {folder}; wait for it to end, or give this one another folder"
            ) from None
        with (folder / "working").open("ab") as working:
            fcntl.flock(working, fcntl.LOCK_EX)
        yield


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the processes that are started here are there; they never see it: this one ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _pool(n: int, folder: Path, judge: Judge) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that end with this one, however it ends."""
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(n, mp_context=context, initializer=_start, initargs=(folder, judge))
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()  # not kill: it has a server of its own to stop
        raise
    executor.shutdown()


def _start(folder: Path, judge: Judge) -> None:
    global _working, _judge
    _judge = judge
    _working = (folder / "working").open("ab")
    fcntl.flock(_working, fcntl.LOCK_SH)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[workers.ENV] = "1"  # the cores are taken by cells
    workers.die_with_parent()
    gc.set_threshold(50_000, 20, 50)  # a cell makes millions of small objects, and hardly a cycle


def _in_worker(sweep: Sweep, name: str, cell: Settings) -> Any:
    assert _judge is not None
    try:
        return replace(sweep, judge=_judge).make(name, cell)  # one for all cells: it remembers what it has read
    except SystemExit as told:  # SIGTERM: the run has cleaned up; the pool would take it for an outcome and go on
        os._exit(told.code if isinstance(told.code, int) else 1)


_judge: Judge | None = None
_working: BinaryIO | None = None  # open, and so locked, as long as this worker lives
