"""The sandbox as Compose services: starts it, stops it, tells how each container stands.

Standard library only, so that a machine with Docker and Python and nothing else can do it. Every wait is bounded.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.core.errors import Unavailable

ROOT = Path(__file__).resolve().parents[2]
OLDEST_COMPOSE = (2, 26)  # the oldest that this project's tests have run with
QUIET_S = 20.0  # for a question to the engine
WAIT_S = 180.0  # for services to become healthy
BUILD_S = 3600.0  # the first build downloads torch
LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One Compose project.

    Parameters
    ----------
    root : folder of compose.yaml
    env : environment of every call; its COMPOSE_PROJECT_NAME sets the project apart from others
    """

    root: Path = ROOT
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def project(self) -> str:
        return self.env.get("COMPOSE_PROJECT_NAME") or "rag-testbed"

    def path_of(self, variable: str, default: str) -> Path:
        """A folder that compose.yaml takes from the environment, relative to the root; empty is not set, as there."""
        return (self.root / (self.env.get(variable) or default)).resolve()

    def docker(self, *words: str, timeout_s: float = QUIET_S) -> subprocess.CompletedProcess[str]:
        """Run ``docker WORDS`` and give back what it said; Unavailable when it says nothing in time."""
        try:
            return subprocess.run(
                ["docker", *words], cwd=self.root, env=self.env, capture_output=True, text=True, timeout=timeout_s
            )
        except FileNotFoundError as error:
            raise Unavailable(
                "docker is not installed; BACKEND=compose needs Docker with Compose v2, BACKEND=embedded needs neither"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"`docker {' '.join(words[:4])}` did not end within {timeout_s:.0f} s") from error

    def compose(self, *words: str, timeout_s: float = QUIET_S) -> subprocess.CompletedProcess[str]:
        return self.docker(*compose_command()[1:], *words, timeout_s=timeout_s)


def compose_command() -> tuple[str, ...]:
    """``docker compose`` with plain output; see ``check`` for whether it is there."""
    return ("docker", "compose", "--progress", "plain")


def check(box: Sandbox) -> str:
    """The version of Compose, when it is new enough and an engine answers; Unavailable says what is missing."""
    said = box.docker("compose", "version", "--short")
    version = said.stdout.strip().removeprefix("v")
    if said.returncode != 0:
        raise Unavailable(
            "Docker Compose v2 is missing (`docker compose version` failed; docker-compose v1 does not do); "
            "install the Compose plugin of Docker"
        )
    if compose_version(version) < OLDEST_COMPOSE:
        wanted = ".".join(map(str, OLDEST_COMPOSE))
        raise Unavailable(f"Docker Compose {version} is too old; expected {wanted} or newer")
    engine = box.docker("version", "--format", "{{.Server.Version}}")
    if engine.returncode != 0:
        raise Unavailable(f"no Docker engine answers ({last_line(engine.stderr)}); start Docker, or see DOCKER_HOST")
    return version


def compose_version(text: str) -> tuple[int, int]:
    """Major and minor of ``2.26.1-4``; (0, 0) for what is not a version."""
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def ensure_password(box: Sandbox) -> Path:
    """The password file of Redis, made once at random.

    Readable by all, because the users inside the containers are not the user outside, in a folder that is not.
    """
    file = box.path_of("SECRETS_DIR", ".secrets") / "redis-password"
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (file.parent / ".gitignore").write_text("*\n")
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(secrets.token_hex(24))
        partial.chmod(0o444)
        try:
            os.link(partial, file)  # the first of two that race wins
        except FileExistsError:
            pass
        finally:
            partial.unlink()
    return file


def build(box: Sandbox, services: Iterable[str]) -> None:
    """Bring the images up to date with the code; seconds when only code changed."""
    done = box.compose("build", "--quiet", *services, timeout_s=BUILD_S)
    if done.returncode != 0:
        raise Unavailable(f"building the images failed: {last_line(done.stderr)}\n{tail(done.stderr or done.stdout)}")


def up(box: Sandbox, services: Sequence[str] = (), *, wait_s: float = WAIT_S) -> None:
    """Start services and wait until each is healthy; what did not get there is named, with its last log lines.

    Parameters
    ----------
    services : () is all that belong to no profile
    """
    check(box)
    ensure_password(box)
    box.path_of("RESULTS_DIR", "results").mkdir(parents=True, exist_ok=True)
    done = box.compose(
        "up", "--detach", "--no-build", "--wait", "--wait-timeout", f"{wait_s:.0f}", *services, timeout_s=wait_s + 60
    )
    if done.returncode != 0:
        raise Unavailable(why_not_up(box, done.stderr))


def why_not_up(box: Sandbox, said: str) -> str:
    """Which services are not healthy, how they stand, and the end of their logs."""
    bad = [c for c in containers(box) if not c.is_healthy]
    if not bad:
        return f"the services did not start: {last_line(said)}"
    stories = [f"{c.service} is {c.state}{f' ({c.health})' if c.health else ''}" for c in bad]
    logs = [f"-- {c.service}, last lines of its log:\n{log_of(box, c.id)}" for c in bad]
    return "; ".join(stories) + "; run: make logs\n" + "\n".join(logs)


def down(box: Sandbox, *, volumes: bool = True) -> None:
    """Stop and remove every container and network of the project, whatever its profile; by default its data too."""
    check(box)
    ensure_password(box)  # compose.yaml names the file
    extra = ["--volumes"] if volumes else []
    done = box.compose("--profile", "*", "down", "--remove-orphans", "--timeout", "5", *extra, timeout_s=120)
    if done.returncode != 0:
        raise Unavailable(f"the services could not be stopped: {last_line(done.stderr)}")


@dataclass(frozen=True, slots=True)
class Container:
    """How one service's container stands. ``image`` is the id (sha256) of what it really runs."""

    service: str
    id: str
    image: str
    state: str
    health: str
    exit_code: int
    started: str
    restarts: int
    out_of_memory: bool

    @property
    def is_healthy(self) -> bool:
        return self.state == "running" and self.health in ("healthy", "")


def containers(box: Sandbox) -> list[Container]:
    """The project's service containers, stopped ones too, by name of the service."""
    ids = box.compose("--profile", "*", "ps", "--all", "--quiet").stdout.split()
    if not ids:
        return []
    told = json.loads(box.docker("inspect", *ids).stdout or "[]")
    rows = [container_of(c) for c in told if c["Config"]["Labels"].get("com.docker.compose.oneoff") != "True"]
    return sorted(rows, key=lambda c: c.service)


def container_of(told: Mapping[str, Any]) -> Container:
    """From what ``docker inspect`` tells."""
    state = told["State"]
    return Container(
        service=told["Config"]["Labels"]["com.docker.compose.service"],
        id=told["Id"],
        image=told["Image"],
        state=state["Status"],
        health=(state.get("Health") or {}).get("Status", ""),
        exit_code=state["ExitCode"],
        started=state["StartedAt"],
        restarts=told["RestartCount"],
        out_of_memory=state["OOMKilled"],
    )


def log_of(box: Sandbox, container: str) -> str:
    said = box.docker("logs", "--tail", str(LOG_LINES), container)
    return "\n".join((said.stdout + said.stderr).strip().splitlines()[-LOG_LINES:])


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LOG_LINES:])
