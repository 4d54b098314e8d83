"""The sandbox on a real engine, up once for all tests here and taken down after them.

Skipped, with the reason, where no engine answers; ``REQUIRE_DOCKER=1`` makes that a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.core import digest
from testbed.core.errors import Unavailable
from testbed.stacks import sandbox
from testbed.stacks.sandbox import Sandbox

PROJECT = f"rag-testbed-test-{digest.of_text(str(sandbox.ROOT))[:6]}"  # two checkouts do not meet


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(900))


def needs_docker(box: Sandbox) -> None:
    try:
        sandbox.check(box)
    except Unavailable as missing:
        if os.environ.get("REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(str(missing))


def own_sandbox(folder: Path, project: str) -> Sandbox:
    """A project apart from a user's own: other names, other secrets, other results, free ports, the small model."""
    results = folder / "results"
    results.mkdir()
    own = {
        "COMPOSE_PROJECT_NAME": project,
        "SECRETS_DIR": str(folder / "secrets"),
        "RESULTS_DIR": str(results),
        "RUNNER_PORT": "0",
        "PROMETHEUS_PORT": "0",
        "MODEL": "tiny",
    }
    return Sandbox(env={**os.environ, **own})


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    box = own_sandbox(tmp_path_factory.mktemp("docker"), PROJECT)
    needs_docker(box)
    sandbox.down(box)  # what a killed session left
    sandbox.build(box, ("testbed", "chroma", "model-runner"))
    try:
        sandbox.up(box)
        yield box
    finally:
        sandbox.down(box)
        left = box.docker("ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}").stdout
        assert left == "", "containers are left behind"


@pytest.fixture(scope="session")
def password(box: Sandbox) -> str:
    return sandbox.ensure_password(box).read_text()
