"""Faults of real processes, networks and disks, through the Docker engine.

Each is a with-block that ends with the service healthy again, or raises Unavailable: no wait is without a limit. They
run on the host, beside a sandbox that is up (``make up``). The engine's socket is never given to a container.

Not here, because containers share the host's clock: a skewed clock. Logical time is skewed in the embedded runs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from docker.client import from_env
from docker.errors import APIError, ContainerError, DockerException, NotFound

from testbed.core.errors import Unavailable, Unsupported

WAIT_S = 60.0
_POLL_S = 0.05
_SQUEEZE_S = 5.0
_CHAOS_IMAGE = "rag-testbed/netfault:local"


@dataclass(frozen=True, slots=True)
class Revival:
    """How a service came back: seconds until healthy, restarts by the engine, exit code of the dead process."""

    healthy_after_s: float
    restarts: int
    exit_code: int


class Engine:
    """The Docker engine of this machine and the containers of one Compose project on it."""

    def __init__(self, project: str = "rag-testbed") -> None:
        try:
            self.api = from_env(timeout=30)
            self.api.ping()
        except DockerException as error:
            raise Unavailable(f"no Docker engine answers ({error}); start Docker, or see DOCKER_HOST") from error
        self.project = project

    def close(self) -> None:
        self.api.close()

    def service(self, name: str) -> Service:
        """The one container of a service."""
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={name}"]
        found = self.api.containers.list(all=True, filters={"label": [*labels, "com.docker.compose.oneoff=False"]})
        if len(found) != 1:
            raise Unavailable(f"service {name!r} of project {self.project!r} has {len(found)} containers; run: make up")
        return Service(self, name, found[0])


class Service:
    """A running service that can be harmed."""

    def __init__(self, engine: Engine, name: str, container: Any) -> None:
        self.engine = engine
        self.name = name
        self.container = container

    # -- how it stands ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        self.container.reload()
        told: dict[str, Any] = self.container.attrs["State"]
        return told

    def is_healthy(self) -> bool:
        told = self.state()
        health = (told.get("Health") or {}).get("Status", "healthy")
        return bool(told["Status"] == "running" and health == "healthy")

    def wait_until(self, what: str, holds: Callable[[], bool], limit_s: float = WAIT_S) -> float:
        """Seconds until a condition holds; Unavailable, with the end of the log, when it does not in time."""
        started = time.monotonic()
        while not holds():
            if time.monotonic() - started > limit_s:
                log = self.container.logs(tail=10).decode(errors="replace").strip()
                raise Unavailable(f"{self.name} is not {what} after {limit_s:.0f} s; last lines of its log:\n{log}")
            time.sleep(_POLL_S)
        return time.monotonic() - started

    def wait_healthy(self, limit_s: float = WAIT_S) -> float:
        return self.wait_until("healthy", self.is_healthy, limit_s)

    def exec(self, *command: str) -> str:
        """Output of a command in the container; Unavailable when it fails."""
        code, out = self.container.exec_run(list(command))
        if code != 0:
            raise Unavailable(
                f"{self.name}: {command[0]} ended with code {code}: {out.decode(errors='replace').strip()}"
            )
        return str(out.decode(errors="replace"))

    # -- processes --------------------------------------------------------------------------------------------------

    def crash(self) -> Revival:
        """SIGKILL to the main process, as the kernel or an operator does; the restart policy brings it back.

        Not the same as ``killed``: the engine takes ``docker kill`` as a wish and restarts nothing.
        """
        told = self.state()
        restarts, pid = self.container.attrs["RestartCount"], told["Pid"]
        if pid <= 0:  # 0 would be our own process group
            raise Unavailable(f"{self.name} is {told['Status']}; only what runs can crash")
        try:
            os.kill(pid, signal.SIGKILL)
        except (PermissionError, ProcessLookupError) as error:
            raise Unsupported(f"process {pid} of {self.name} cannot be signalled from here ({error})") from error

        def came_back() -> bool:
            return self.is_healthy() and self.container.attrs["RestartCount"] > restarts

        after_s = self.wait_until("healthy again", came_back)
        return Revival(after_s, self.container.attrs["RestartCount"] - restarts, 128 + signal.SIGKILL)

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Dead by SIGKILL inside the block, started again after it."""
        self.container.kill()
        self.container.wait(timeout=WAIT_S)
        try:
            yield
        finally:
            self.container.start()
            self.wait_healthy()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stopped in good order inside the block, started again after it."""
        self.container.stop(timeout=10)
        try:
            yield
        finally:
            self.container.start()
            self.wait_healthy()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Frozen: connections stay open and nothing answers."""
        self.container.pause()
        try:
            yield
        finally:
            self.container.unpause()
            self.wait_healthy()

    def restart(self) -> float:
        """Restart in good order; seconds until healthy."""
        started = time.monotonic()
        self.container.restart(timeout=10)
        self.wait_healthy()
        return time.monotonic() - started

    # -- networks -----------------------------------------------------------------------------------------------------

    @contextmanager
    def disconnected(self, network: str = "backend") -> Iterator[None]:
        """Off the network inside the block: its name does not resolve, open connections hang.

        It comes back under its aliases; without them nobody would find it by its service's name again.
        """
        name = f"{self.engine.project}_{network}"
        self.container.reload()
        held = self.container.attrs["NetworkSettings"]["Networks"].get(name)
        if held is None:
            raise Unsupported(f"{self.name} is not on the network {name}")
        wire = self.engine.api.networks.get(name)
        aliases = sorted({self.name, *(a for a in held["Aliases"] or () if a != self.container.short_id)})
        wire.disconnect(self.container)
        try:
            yield
        finally:
            wire.connect(self.container, aliases=aliases)
            self.wait_healthy()

    @contextmanager
    def shaped(self, rule: str) -> Iterator[None]:
        """What it sends goes through a queueing discipline of the kernel: ``netem delay 50ms``, ``tbf rate ...``.

        Unsupported where the kernel lacks it; ``faults.proxy`` does most of the same everywhere.
        """
        self._in_its_network(f"tc qdisc add dev $DEVICE root {rule}")
        try:
            yield
        finally:
            self._in_its_network("tc qdisc del dev $DEVICE root")

    @contextmanager
    def filtered(self, rule: str) -> Iterator[None]:
        """Its incoming packets meet one more rule of the packet filter: ``-p tcp --dport 6379 -j DROP``."""
        self._in_its_network(f"iptables -I INPUT {rule}")
        try:
            yield
        finally:
            self._in_its_network(f"iptables -D INPUT {rule}")

    def _in_its_network(self, command: str) -> None:
        # after a reconnection the device has another name
        find = "DEVICE=$(ip -o -4 addr show scope global | awk 'NR==1 {print $2}'); "
        try:
            self.engine.api.containers.run(
                _CHAOS_IMAGE,
                ["sh", "-c", find + command],
                network_mode=f"container:{self.container.id}",
                cap_drop=["ALL"],
                cap_add=["NET_ADMIN", "NET_RAW"],
                remove=True,
                stderr=True,
            )
        except ContainerError as error:
            said = bytes(error.stderr or b"").decode(errors="replace").strip()  # type: ignore[arg-type]
            raise Unsupported(f"{command}: {said}") from error
        except NotFound as error:
            raise Unavailable(f"the image {_CHAOS_IMAGE} is missing; docker compose build netfault") from error

    # -- resources ----------------------------------------------------------------------------------------------------

    @contextmanager
    def slowed(self, cpus: float) -> Iterator[None]:
        """At most this share of one CPU inside the block."""
        self.container.reload()
        before = self.container.attrs["HostConfig"]["NanoCpus"]
        self._update({"NanoCpus": int(cpus * 1e9)})
        try:
            yield
        finally:
            self._update({"NanoCpus": before or int((os.cpu_count() or 1) * 1e9)})

    @contextmanager
    def squeezed(self, memory_bytes: int) -> Iterator[None]:
        """Less memory inside the block: what needs more is killed by the kernel and restarted by the policy.

        Raises
        ------
        Unavailable : the container holds more than that already, and does not let go of it within seconds
        """
        self.container.reload()
        held = self.container.attrs["HostConfig"]
        before = {"Memory": held["Memory"], "MemorySwap": held["MemorySwap"]}
        self._squeeze(memory_bytes)
        try:
            yield
        finally:
            self._update(before)
            with suppress(Unavailable):
                self.wait_healthy(5)
            if not self.is_healthy():  # its data, replayed at the start, did not fit: start again with the old limit
                self.container.restart(timeout=5)
                self.wait_healthy()

    def _squeeze(self, memory_bytes: int) -> None:
        """The kernel refuses a limit below what is in use; a health check in flight is a few MB that will be gone."""
        until = time.monotonic() + _SQUEEZE_S
        while True:
            try:
                return self._update({"Memory": memory_bytes, "MemorySwap": memory_bytes})
            except APIError as error:
                if "unable to set memory limit" not in str(error):
                    raise
                if time.monotonic() > until:
                    said = " ".join(str(error.explanation).split())
                    raise Unavailable(f"{self.name} cannot be held to {memory_bytes} bytes: {said}") from error
            time.sleep(_POLL_S)

    def _update(self, limits: dict[str, int]) -> None:
        # the SDK's own update() does not know NanoCpus, and its cpu_quota is refused beside the `cpus` of Compose
        api: Any = self.engine.api.api
        api._result(api._post_json(api._url("/containers/{0}/update", self.container.id), data=limits))


@contextmanager
def small_disk(
    engine: Engine, image: str, command: list[str], *, size: str = "2m", at: str = "/small"
) -> Iterator[Service]:
    """A container of its own, without network, with a memory disk of that size at ``at``; removed afterwards."""
    container = engine.api.containers.run(
        image,
        command,
        detach=True,
        network_mode="none",
        tmpfs={at: f"size={size},mode=1777"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        user="999:999",
    )
    try:
        yield Service(engine, "small-disk", container)
    finally:
        with suppress(APIError):
            container.remove(force=True, v=True)


# -- inside Redis: these need no engine, only a client ----------------------------------------------------------------


@contextmanager
def small_memory(client: Any, maxmemory_bytes: int, policy: str = "allkeys-lru") -> Iterator[None]:
    """The server evicts by a policy under this much memory inside the block.

    Which keys go is drawn by the server, unseeded: two runs differ, so a trace made under it is not a baseline.
    """
    before = {name: client.config_get(name)[name] for name in ("maxmemory", "maxmemory-policy")}
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", maxmemory_bytes)
    try:
        yield
    finally:
        for name, value in before.items():
            client.config_set(name, value)


def flush(client: Any, namespace: str) -> int:
    """Every key below a namespace is gone at once, as after FLUSHALL by somebody else; returns how many were there."""
    escaped = "".join("\\" + c if c in "*?[]^\\" else c for c in namespace)
    names = sorted(client.scan_iter(match=escaped + "*", count=500))
    return int(client.unlink(*names)) if names else 0
