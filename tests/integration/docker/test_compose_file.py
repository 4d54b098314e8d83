"""What compose.yaml says, read by Compose itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from testbed.stacks.sandbox import Sandbox
from tests.integration.docker.conftest import needs_docker, own_sandbox

LONG_RUNNING = ("redis", "redis-log", "chroma", "model-runner", "model-runner-gpu", "redis-proxy", "prometheus")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    box: Sandbox = own_sandbox(tmp_path_factory.mktemp("config"), "rag-testbed-config")
    needs_docker(box)
    said = box.compose("--profile", "*", "config", "--format", "json")
    assert said.returncode == 0, said.stderr
    told: dict[str, Any] = json.loads(said.stdout)
    return told


def test_compose_loads_every_profile(config: dict[str, Any]) -> None:
    assert {*LONG_RUNNING, "testbed", "testbed-gpu"} <= set(config["services"])


def test_without_a_profile_only_the_stores_and_the_model_start(tmp_path: Path) -> None:
    box = own_sandbox(tmp_path, "rag-testbed-config")
    needs_docker(box)
    said = box.compose("config", "--services")
    assert sorted(said.stdout.split()) == ["chroma", "model-runner", "redis", "redis-log"]


@pytest.mark.parametrize(
    ("profile", "more"),
    [
        ("run", {"testbed"}),
        ("gpu", {"model-runner-gpu", "testbed-gpu"}),
        ("telemetry", {"prometheus"}),
        ("chaos", {"redis-proxy"}),
        ("chaos-image", {"netfault"}),
    ],
)
def test_each_profile_is_valid_by_itself(tmp_path: Path, profile: str, more: set[str]) -> None:
    """What its services depend on is there without another profile, as `docker compose --profile X up` needs it."""
    box = own_sandbox(tmp_path, "rag-testbed-config")
    needs_docker(box)
    said = box.compose("--profile", profile, "config", "--services")
    assert said.returncode == 0, said.stderr
    assert set(said.stdout.split()) == {"chroma", "model-runner", "redis", "redis-log"} | more


def test_every_service_is_hardened(config: dict[str, Any]) -> None:
    for name, service in config["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"] and not service.get("cap_add"), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged") and not service.get("pid") and not service.get("devices"), name


def test_every_service_is_bounded_in_memory_cpus_and_processes(config: dict[str, Any]) -> None:
    for name, service in config["services"].items():
        if name != "netfault":
            limits = service["deploy"]["resources"]["limits"]
            assert int(limits["memory"]) > 0 and float(limits["cpus"]) > 0 and int(limits["pids"]) > 0, name


def test_ports_are_published_on_loopback_only(config: dict[str, Any]) -> None:
    ports = [(name, p) for name, s in config["services"].items() for p in s.get("ports", ())]
    assert {name for name, _ in ports} <= {"model-runner", "model-runner-gpu", "prometheus"}
    assert all(p["host_ip"] == "127.0.0.1" for _, p in ports)


def test_the_network_of_the_stores_has_no_way_out(config: dict[str, Any]) -> None:
    assert config["networks"]["backend"]["internal"] is True
    for name in ("redis", "redis-log", "chroma", "testbed", "redis-proxy"):
        assert list(config["services"][name]["networks"]) == ["backend"], name


def test_data_is_mounted_read_only_and_the_engine_nowhere(config: dict[str, Any]) -> None:
    mounts = [(name, m) for name, s in config["services"].items() for m in s.get("volumes", ())]
    assert not any("docker.sock" in m["source"] for _, m in mounts)
    binds = {m["target"]: m.get("read_only", False) for name, m in mounts if name == "testbed" and m["type"] == "bind"}
    assert binds == {"/srv/results": False, "/srv/datasets": True}


def test_what_runs_on_has_a_health_check_and_what_depends_waits_for_it(config: dict[str, Any]) -> None:
    for name in LONG_RUNNING:
        assert config["services"][name]["healthcheck"]["test"], name
    for name, service in config["services"].items():
        assert all(d["condition"] == "service_healthy" for d in service.get("depends_on", {}).values()), name


def test_no_secret_is_in_the_environment(config: dict[str, Any]) -> None:
    for name, service in config["services"].items():
        words = [k for k in service.get("environment", {}) if re.search("PASS|SECRET|TOKEN|REDIS_URL", k)]
        assert words == [], name


def test_the_gpu_is_asked_for_in_its_profile_only(config: dict[str, Any]) -> None:
    asking = {
        name
        for name, s in config["services"].items()
        if s.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices")
    }
    assert asking == {"model-runner-gpu", "testbed-gpu"}
