"""What a scan of the running containers finds: no root, nothing writable that need not be, no way out, no secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.faults.infra import Engine, Service
from testbed.stacks import containers
from testbed.stacks.sandbox import Sandbox

pytestmark = pytest.mark.proof

SERVICES = ("redis", "redis-log", "chroma", "model-runner", "testbed")
WRITABLE = {  # beside /tmp and what the kernel gives every container
    "redis": {"/data"},
    "redis-log": {"/data"},
    "chroma": {"/srv/chroma"},
    "model-runner": {"/srv/models"},
    "testbed": {"/srv/results", "/srv/memo"},
}


@pytest.fixture(scope="module")
def running(box: Sandbox) -> Iterator[dict[str, Service]]:
    """Every service as it runs; the harness's container is given something that lasts to do."""
    engine = Engine(box.project)
    name = f"{box.project}-scanned"
    user = containers.container_user(box)
    own = Sandbox(box.root, {**box.env, **user})
    idle = ["python", "-c", "import time; time.sleep(600)"]
    done = own.compose("run", "--detach", "--no-deps", "--name", name, "testbed", *idle, timeout_s=60)
    assert done.returncode == 0, done.stderr
    try:
        found = {s: engine.service(s) for s in SERVICES[:-1]}
        found["testbed"] = Service(engine, "testbed", engine.api.containers.get(name))
        yield found
    finally:
        engine.api.containers.get(name).remove(force=True)
        engine.close()


def status(service: Service, pid: str = "1") -> dict[str, str]:
    """/proc/<pid>/status, as the kernel sees the process."""
    lines = service.exec("cat", f"/proc/{pid}/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("name", SERVICES)
def test_no_process_is_root_or_has_a_capability_or_can_gain_one(running: dict[str, Service], name: str) -> None:
    pids = [p for p in running[name].exec("bash", "-c", "cd /proc && echo [0-9]*").split()]
    seen = 0
    for pid in pids:
        try:
            told = status(running[name], pid)
        except Exception:  # the process that asked is gone by now
            continue
        seen += 1
        assert "0" not in told["Uid"].split() and "0" not in told["Gid"].split(), told["Name"]
        assert {told[c] for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}, told["Name"]
        assert told["NoNewPrivs"] == "1", told["Name"]
    assert seen >= 1


@pytest.mark.parametrize("name", SERVICES)
def test_only_memory_and_its_own_volumes_are_writable(running: dict[str, Service], name: str) -> None:
    kernel = ("/proc", "/dev", "/sys")
    mounts = [line.split() for line in running[name].exec("cat", "/proc/mounts").splitlines()]
    writable = {m[1] for m in mounts if "rw" in m[3].split(",") and not m[1].startswith(kernel)}
    assert writable - {"/tmp"} == WRITABLE[name]
    code, out = running[name].container.exec_run(["bash", "-c", "echo x > /x"])
    assert code != 0 and b"Read-only file system" in out


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_published_beyond_loopback(running: dict[str, Service], name: str) -> None:
    running[name].container.reload()
    ports = running[name].container.attrs["NetworkSettings"]["Ports"]
    published = [b["HostIp"] for bindings in ports.values() for b in bindings or ()]
    assert set(published) <= {"127.0.0.1"}
    assert bool(published) == (name == "model-runner")


@pytest.mark.parametrize("name", [s for s in SERVICES if s != "model-runner"])
def test_there_is_no_route_to_the_outside(running: dict[str, Service], name: str) -> None:
    routes = [line.split() for line in running[name].exec("cat", "/proc/net/route").splitlines()[1:]]
    assert routes and all(destination != "00000000" for _, destination, *_ in routes)


def test_the_network_with_a_published_port_does_not_masquerade(box: Sandbox) -> None:
    (told,) = json.loads(box.docker("network", "inspect", f"{box.project}_edge").stdout)
    assert told["Options"]["com.docker.network.bridge.enable_ip_masquerade"] == "false"


@pytest.mark.parametrize("name", SERVICES)
def test_the_engine_is_out_of_reach(running: dict[str, Service], name: str) -> None:
    told: dict[str, Any] = running[name].container.attrs
    assert not told["HostConfig"]["Privileged"] and told["HostConfig"]["PidMode"] == ""
    assert all("docker.sock" not in m["Source"] for m in told["Mounts"])


@pytest.mark.parametrize("name", SERVICES)
def test_limits_are_set(running: dict[str, Service], name: str) -> None:
    limits = running[name].container.attrs["HostConfig"]
    assert limits["Memory"] > 0 and limits["NanoCpus"] > 0 and limits["PidsLimit"] > 0


@pytest.mark.parametrize("name", SERVICES)
def test_the_password_is_in_no_inspection_of_container_or_image(
    box: Sandbox, running: dict[str, Service], password: str, name: str
) -> None:
    container = running[name].container
    assert password not in json.dumps(box.docker("inspect", container.id).stdout)
    image = container.attrs["Image"]
    assert password not in box.docker("inspect", image).stdout
    assert password not in box.docker("history", "--no-trunc", image).stdout


def test_the_password_is_in_no_file_of_the_image_and_on_no_command_line(
    running: dict[str, Service], password: str
) -> None:
    look = (
        "import os, sys; word = sys.argv[1].encode(); found = []\n"
        "for top in ('/srv', '/etc', '/usr/local/bin'):\n"
        "    for folder, _, files in os.walk(top):\n"
        "        for file in files:\n"
        "            path = os.path.join(folder, file)\n"
        "            if os.path.isfile(path) and os.access(path, os.R_OK) and os.path.getsize(path) < 10**7:\n"
        "                if word in open(path, 'rb').read(): found.append(path)\n"
        "print(found)"
    )
    # the second half of the password only: the command line of this very search is not what is looked for
    assert running["testbed"].exec("python", "-c", look, password[24:]).strip() == "[]"
    for name in ("redis", "redis-log"):
        assert password not in running[name].exec("bash", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")


def test_the_data_of_the_scenarios_cannot_be_changed(running: dict[str, Service]) -> None:
    code, out = running["testbed"].container.exec_run(["bash", "-c", "echo x > /srv/datasets/x"])
    assert code != 0 and b"Read-only file system" in out
