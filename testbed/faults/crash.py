"""The process that writes vectors and texts dies between the two."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import testbed
from testbed.core.errors import BrokenContract
from testbed.core.ports import Context
from testbed.stacks import dual
from testbed.stores.dual import Item
from testbed.stores.dual_worker import write_batches

_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class KilledWriter:
    """The indexing process gets SIGKILL while it writes a batch, and comes up again before the next question.

    A real process and a real signal; only the step is chosen, so the damage is the same each time. The level is the
    share of batches in which it dies. The first load is never disturbed.

    Parameters
    ----------
    step : ``between`` is the moment at which one store holds the batch and the other does not, whatever the design
        writes first; or one of the steps that the design has

    References
    ----------
    melandlabs/openloomi #535, amd/gaia #3641: rows committed, vectors not, or the other way round.
    """

    step: str = "between"
    name: str = "killed-writer"
    needs: frozenset[str] = frozenset({"index", "layers.text", "redis"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        if ctx.level == 0:
            yield
            return
        with dual.kept(stack) as stores:

            def kill(batch: list[Item], number: int) -> None:
                step = stores.writer.between if self.step == "between" else self.step
                acknowledged = killed(stores, batch, step)
                writer = stores.restart()
                stores.check(f"recovered from crash {number}")
                if not acknowledged and writer.takes_redelivery:
                    writer.write(batch)

            with dual.struck(stores, ctx, self.name, kill):
                yield


def killed(stores: dual.DualStores, batch: list[Item], step: str) -> bool:
    """Write a batch in a process that dies at a step; whether the batch was acknowledged before."""
    with tempfile.TemporaryDirectory(prefix="rag-testbed-batch-") as folder:
        file = Path(folder) / "batch.jsonl"
        write_batches(file, [batch])
        command = [sys.executable, "-m", "testbed.stores.dual_worker", "--design", stores.design, "--die-at", step]
        command += ["--folder", str(stores.folder), "--namespace", stores.namespace, "--batches", str(file)]
        here = str(Path(testbed.__file__).parents[1])
        path = os.pathsep.join(p for p in (here, os.environ.get("PYTHONPATH", "")) if p)
        done = subprocess.run(
            command,
            env={**os.environ, "REDIS_URL": stores.url, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    written = any(e["event"] == "written" for e in events)
    if done.returncode != -signal.SIGKILL and not written:
        said = done.stderr.strip().splitlines()
        raise BrokenContract(
            f"the {stores.design} writer should have died at step={step} and ended with code {done.returncode}: "
            f"{said[-1] if said else 'no message'}"
        )
    return written
