"""BACKEND=compose: the same digests as embedded, and one clear story when a service fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import Unavailable
from testbed.faults.infra import Engine
from testbed.stacks import containers, sandbox
from testbed.stacks.sandbox import ROOT, Sandbox
from tests.integration.docker.conftest import PROJECT, needs_docker, own_sandbox

QUERIES = ("--seed", "42", "--queries", "40")


def newest(results: Path, scenario: str) -> dict[str, Any]:
    """Digest and manifest of the newest whole run."""
    folder = max(f for f in (results / scenario).iterdir() if f.name[0] == "2")
    told: dict[str, Any] = {n: json.loads((folder / f"{n}.json").read_text()) for n in ("summary", "manifest")}
    return told


def embedded(scenario: str, folder: Path, *more: str) -> dict[str, Any]:
    knobs = ("REDIS_URL", "CHROMA_URL", "BACKEND", "RESULTS_DIR")
    env = {n: v for n, v in os.environ.items() if n not in knobs}
    command = [sys.executable, "-m", "testbed", "run", scenario, *QUERIES, *more, "--results", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return newest(folder, scenario)


@pytest.mark.parametrize(
    ("scenario", "more"),
    [
        ("tenant-leak", ()),
        ("version-skew", ()),
        ("semantic-drift", ()),
        pytest.param("crash-midwrite", (), marks=pytest.mark.proof),
        ("partition", ()),
        ("tenant-leak", ("--store", "chroma")),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value[1:]),
)
def test_the_digest_is_the_embedded_one(box: Sandbox, tmp_path: Path, scenario: str, more: tuple[str, ...]) -> None:
    code = containers.run_in_compose(["run", scenario, *QUERIES, *more, "--backend", "compose"], box)
    assert code == 0
    inside = newest(Path(box.env["RESULTS_DIR"]), scenario)
    assert inside["summary"]["digest"] == embedded(scenario, tmp_path, *more)["summary"]["digest"]
    assert inside["manifest"]["status"] != "started"
    images = inside["manifest"]["images"]
    assert {"redis", "redis-log", "chroma", "testbed"} <= set(images)
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", image) for image in images.values())
    with closing(Engine(box.project)) as engine:
        for name in ("redis", "redis-log"):
            assert keys(engine.service(name)) == b"", f"the run left keys behind on {name}"


def test_a_data_set_of_ones_own_is_mounted(box: Sandbox, tmp_path: Path) -> None:
    folder = tmp_path / "handbook"
    (folder / "qrels").mkdir(parents=True)
    rows = [
        {"_id": f"d{n}", "title": "", "text": f"The fee of plan {n} is {n}0 EUR.", "metadata": {}} for n in range(9)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    asked = [{"_id": f"q{n}", "text": f"What is the fee of plan {n}?", "metadata": {}} for n in range(9)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(r) + "\n" for r in asked))
    lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t1" for n in range(9))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    tmp_path.chmod(0o755)
    words = ["run", "tenant-leak", "--seed", "1", "--queries", "20", "--dataset", str(folder)]
    assert containers.run_in_compose(words, box) in (0, 1)
    assert newest(Path(box.env["RESULTS_DIR"]), "tenant-leak")["manifest"]["data"]["name"]


def test_a_wrong_knob_is_one_line_and_code_2(box: Sandbox, capfd: pytest.CaptureFixture[str]) -> None:
    assert containers.run_in_compose(["run", "tenant-lek"], box) == 2
    assert "did you mean 'tenant-leak'?" in capfd.readouterr().err


def test_a_service_that_crashes_in_a_run_is_named(box: Sandbox) -> None:
    """Redis is killed while the harness runs; it comes back by itself, the run says so and never hangs."""
    command = [sys.executable, "-m", "testbed.stacks.containers", "run", "tenant-leak", "--queries", "400"]
    env = {**box.env, "TESTBED_BUILD": "0"}
    engine = Engine(box.project)
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        try:
            name = f"{box.project}-run-{run.pid}"
            deadline = time.monotonic() + 60
            while not engine.api.containers.list(filters={"name": name}):
                assert time.monotonic() < deadline and run.poll() is None
                time.sleep(0.1)
            held = engine.service("redis")
            held.wait_until("in use", lambda: b"testbed:" in keys(held), 120)
            held.crash()
            out, _ = run.communicate(timeout=300)
        finally:
            run.kill()
            engine.close()
    assert run.returncode in (0, 3), out
    assert "redis: died during the run and was started again by the restart policy; it is healthy" in out
    assert box.docker("ps", "-aq", "--filter", f"name={name}").stdout == ""


def keys(service: Any) -> bytes:
    script = "REDISCLI_AUTH=$(cat /run/secrets/redis-password) redis-cli --scan --pattern 'testbed:*' | head -n 1"
    out: bytes = service.container.exec_run(["sh", "-c", script])[1]
    return out


def test_the_harness_leaves_no_container_when_it_is_told_to_stop(box: Sandbox) -> None:
    command = [sys.executable, "-m", "testbed.stacks.containers", "run", "tenant-leak", "--queries", "400"]
    env = {**box.env, "TESTBED_BUILD": "0"}
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        name = f"{box.project}-run-{run.pid}"
        deadline = time.monotonic() + 60
        while box.docker("ps", "-q", "--filter", f"name={name}").stdout == "":
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.1)
        run.terminate()
        run.communicate(timeout=60)
    assert run.returncode == 143
    assert box.docker("ps", "-aq", "--filter", f"name={name}").stdout == ""


@pytest.mark.proof
def test_a_service_that_never_gets_healthy_ends_with_code_3_and_its_last_words(tmp_path: Path) -> None:
    """An empty password: Redis refuses to start, again and again. Bounded, named, and no hang."""
    broken = own_sandbox(tmp_path, f"{PROJECT}-broken")
    needs_docker(broken)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "redis-password").write_text("")
    started = time.monotonic()
    try:
        with pytest.raises(Unavailable) as said:
            sandbox.up(broken, ("redis",), wait_s=10)
        assert time.monotonic() - started < 60
        assert said.value.exit_code == 3
        assert "redis is " in str(said.value) and "no password in /run/secrets/redis-password" in str(said.value)
    finally:
        sandbox.down(broken)
