"""A real server on a real socket, serving the tiny model."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs the runner extra")
pytest.importorskip("transformers", reason="needs the runner extra")
pytest.importorskip("fastapi", reason="needs the runner extra")
pytest.importorskip("uvicorn", reason="needs the runner extra")

from testbed.models.runner import weights  # noqa: E402
from testbed.models.runner.engine import Engine  # noqa: E402
from testbed.models.runner.serving import Running  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny() -> weights.Loaded:
    return weights.load("tiny")


@pytest.fixture
def serve(tiny: weights.Loaded) -> Iterator[object]:
    """``serve(**settings of an engine)``, or ``serve(engine)``: the base URL of a server that ends with the test."""
    started: list[Running] = []

    def start(engine: Engine | None = None, **settings: object) -> str:
        running = Running(engine or Engine(tiny, **settings))  # type: ignore[arg-type]
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        started.append(running)
        return running.wait_until_up(30.0)

    yield start
    for running in started:
        running.stop()
