"""Writers in containers, killed by the engine and cut off from the network by it; audited before new traffic."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.core import digest
from testbed.core.ports import Row
from testbed.faults.infra import Engine, Service
from testbed.stacks import containers
from testbed.stacks.sandbox import Sandbox
from testbed.stores.dual import Item, item
from testbed.stores.dual_worker import DESIGNS, write_batches

N_DOCS, N_EDITS = 40, 6


def batch(n: int, version: int) -> list[Item]:
    rng = np.random.default_rng(version)
    out = []
    for number in range(n):
        text = f"document {number} as of version {version}"
        vector = rng.normal(size=8).astype(np.float32)
        row = Row(f"d{number:02d}", version, "a", vector / np.linalg.norm(vector), "encoder", digest.of_text(text))
        out.append(item(row, text))
    return out


class Worker:
    """Writers of one design on one namespace of the change log's server, each in a container of its own."""

    def __init__(self, box: Sandbox, design: str, test: str) -> None:
        user = containers.container_user(box)
        self.box = Sandbox(box.root, {**box.env, **user})
        self.engine = Engine(box.project)
        self.design = design
        self.slug = f"{design}-{test}"
        self.results = Path(box.env["RESULTS_DIR"])
        self._count = 0

    def start(self, batches: list[list[Item]], *more: str) -> Service:
        self._count += 1
        file = self.results / f"{self.slug}-{self._count}.jsonl"
        write_batches(file, batches)
        file.chmod(0o644)
        name = f"{self.box.project}-{self.slug}-{self._count}"
        command = ["python", "-m", "testbed.stores.dual_worker", "--design", self.design, "--answer-within", "1"]
        command += ["--folder", f"/srv/memo/{self.slug}", "--namespace", f"{self.slug}:"]
        command += ["--batches", f"/srv/results/{file.name}", *more]
        options = ["--detach", "--no-deps", "--name", name, "--env", "REDIS_ADDRESS=redis-log:6379"]
        done = self.box.compose("run", *options, "testbed", *command, timeout_s=60)
        assert done.returncode == 0, done.stderr
        return Service(self.engine, name, self.engine.api.containers.get(name))

    def events(self, service: Service) -> list[dict[str, Any]]:
        return [json.loads(line) for line in service.container.logs(stderr=False).decode().splitlines()]

    def ended(self, service: Service) -> tuple[int, list[dict[str, Any]]]:
        code = service.container.wait(timeout=60)["StatusCode"]
        said = self.events(service)
        service.container.remove(force=True)
        return code, said

    def write(self, *batches: list[Item]) -> list[dict[str, Any]]:
        code, said = self.ended(self.start(list(batches)))
        assert code == 0
        return said

    def held(self, batches: list[list[Item]], step: str) -> tuple[Service, int]:
        """A writer that stands still at a step of its last batch, and the number of its process."""
        service = self.start(batches, "--hold-at", step, "--in-batch", str(len(batches) - 1))
        service.wait_until(f"at {step}", lambda: any(e["event"] == "at" for e in self.events(service)), 60)
        return service, self.events(service)[-1]["pid"]


@pytest.fixture
def worker(box: Sandbox, request: pytest.FixtureRequest) -> Any:
    made: list[Worker] = []

    def make(design: str) -> Worker:
        made.append(Worker(box, design, digest.of_text(request.node.nodeid)))
        return made[-1]

    yield make
    for each in made:
        each.engine.close()


def damage(wrong: list[list[Any]]) -> Counter[str]:
    return Counter(kind for _, kind, _, _ in wrong)


@pytest.mark.parametrize(
    ("design", "expected"),
    [("naive", {"text-behind": N_EDITS}), ("one-script", {"vector-behind": N_EDITS}), ("recoverable", {})],
)
def test_an_indexer_killed_between_the_stores(worker: Any, design: str, expected: dict[str, int]) -> None:
    """`docker kill` between the two writes; a new container comes up and says what is wrong before it takes traffic."""
    writer = worker(design)
    if design == "one-script":
        writer.write(batch(N_DOCS, 1), batch(N_DOCS, 1))  # more documents than it saves after: the load is on disk
    else:
        writer.write(batch(N_DOCS, 1))
    service, _ = writer.held([batch(N_EDITS, 2)], DESIGNS[design].between)
    service.container.kill()
    code, said = writer.ended(service)
    assert code == 137 and not any(e["event"] == "written" for e in said)
    again = writer.write()
    assert damage(again[0]["wrong"]) == Counter(expected)


@pytest.mark.parametrize("design", ["naive", "recoverable"])
def test_redis_off_the_network_while_a_batch_is_written(box: Sandbox, worker: Any, design: str) -> None:
    writer = worker(design)
    writer.write(batch(N_DOCS, 1))
    first = "after-vector" if design == "naive" else "before-commit"
    service, pid = writer.held([batch(N_EDITS, 2)], first)
    with writer.engine.service("redis-log").disconnected():
        service.exec("python", "-c", f"import os, signal; os.kill({pid}, signal.SIGCONT)")
        started = time.monotonic()
        code, said = writer.ended(service)
        assert time.monotonic() - started < 60
    acknowledged = any(e["event"] == "written" for e in said)
    again = writer.write()[0]["wrong"]
    if design == "naive":  # it said that it was done, and the texts are gone for good
        assert acknowledged or code == 3
        assert damage(again) == Counter({"text-behind": N_EDITS})
        return
    assert code == 3 and not acknowledged and again == []
    assert writer.write(batch(N_EDITS, 2))[-1] == {"event": "done", "wrong": []}
