"""The sandbox as Compose services: starts it, runs the harness in it, says what happened to it.

Standard library only, so that a machine with Docker and Python and nothing else can do
``python3 -m testbed.stacks.containers up``. Every wait is bounded.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from testbed.core.errors import HarnessError, InvalidInput, Unavailable

ROOT = Path(__file__).resolve().parents[2]
OLDEST_COMPOSE = (2, 26)  # the oldest that this project's tests have run with
SERVICES = ("redis", "redis-log", "chroma")  # what a run needs; the model runner is started by `up`
CONTAINER_USER = 10001
HARNESS_IMAGE = "rag-testbed/testbed:local"
QUIET_S = 20.0  # for a question to the engine
WAIT_S = 180.0  # for services to become healthy
BUILD_S = 3600.0  # the first build downloads torch
RUN_S = 4 * 3600.0
SETTLE_S = 20.0  # for a service that died in a run to come back before it is told about
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
        return self.env.get("COMPOSE_PROJECT_NAME", "rag-testbed")

    def path_of(self, variable: str, default: str) -> Path:
        """A folder that compose.yaml takes from the environment, relative to the root."""
        return (self.root / self.env.get(variable, default)).resolve()

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


def container_user(box: Sandbox) -> dict[str, str]:
    """Who the harness is inside its container: the caller, so that results belong to them; never root."""
    if os.getuid() != 0:
        return {"TESTBED_UID": str(os.getuid()), "TESTBED_GID": str(os.getgid())}
    results = box.path_of("RESULTS_DIR", "results")
    for folder in (results, *(p for p in results.glob("*") if p.is_dir() and p.name != "baselines")):
        os.chown(folder, CONTAINER_USER, CONTAINER_USER)
    return {"TESTBED_UID": str(CONTAINER_USER), "TESTBED_GID": str(CONTAINER_USER)}


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


def settled(box: Sandbox, limit_s: float = SETTLE_S) -> list[Container]:
    """The containers, once none is on its way up any more; or as they are when that takes too long."""
    deadline = time.monotonic() + limit_s
    while True:
        now = containers(box)
        if all(c.health != "starting" and c.state != "restarting" for c in now) or time.monotonic() > deadline:
            return now
        time.sleep(0.5)


def what_happened(before: Iterable[Container], after: Iterable[Container]) -> list[str]:
    """One line for each service that did not simply go on running."""
    now = {c.service: c for c in after}
    out = []
    for was in before:
        c = now.get(was.service)
        if c is None or c.id != was.id:
            out.append(f"{was.service}: its container was removed during the run")
        elif c.state != "running":
            cause = "out of memory" if c.out_of_memory else f"exit code {c.exit_code}{signal_name(c.exit_code)}"
            out.append(f"{was.service}: is {c.state} ({cause}); `make up` brings it back")
        elif c.started != was.started:
            how = "the restart policy" if c.restarts > was.restarts else "somebody"
            out.append(f"{was.service}: died during the run and was started again by {how}; it is {c.health or 'up'}")
        elif not c.is_healthy:
            out.append(f"{was.service}: is {c.health}")
    return out


def signal_name(exit_code: int) -> str:
    try:
        return f", {signal.Signals(exit_code - 128).name}"
    except ValueError:
        return ""


def log_of(box: Sandbox, container: str) -> str:
    said = box.docker("logs", "--tail", str(LOG_LINES), container)
    return "\n".join((said.stdout + said.stderr).strip().splitlines()[-LOG_LINES:])


def run_in_compose(argv: Sequence[str], box: Sandbox | None = None, *, limit_s: float = RUN_S) -> int:
    """Run ``testbed ARGV`` in its container against the services; its output passes through, its exit code comes back.

    Parameters
    ----------
    argv : as typed after ``testbed``; a ``--backend`` is left out and a folder given as ``--dataset`` is mounted
        read-only

    Raises
    ------
    Unavailable : no Compose, no engine, a service that does not get healthy, a container that was killed
    """
    box = box or Sandbox()
    check(box)
    ensure_password(box)
    if box.env.get("TESTBED_BUILD", "1") != "0":
        build(box, ("testbed", *SERVICES[2:]))
    up(box, SERVICES)
    before = containers(box)
    words, mounts = inside(argv)
    told = {**container_user(box), "TESTBED_IMAGES": json.dumps({**{c.service: c.image for c in before}, **own(box)})}
    try:
        return supervised(Sandbox(box.root, {**box.env, **told}), words, mounts, limit_s)
    finally:
        for line in what_happened(before, settled(box)):
            print(f"testbed: {line}", file=sys.stderr)


def own(box: Sandbox) -> dict[str, str]:
    """The image of the harness itself, by service."""
    return {"testbed": box.docker("image", "inspect", "--format", "{{.Id}}", HARNESS_IMAGE).stdout.strip()}


def inside(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments as the container must see them, and the options that mount what they point to."""
    words: list[str] = []
    mounts: list[str] = []
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in ("--backend", "--dataset"):
            words.append(word)
            continue
        value = value if equals else next(rest, "")
        if name == "--backend":
            continue
        folder = Path(value).expanduser()
        if value and folder.is_dir():
            target = f"/srv/data/{folder.resolve().name}"
            mounts += ["--volume", f"{folder.resolve()}:{target}:ro"]
            value = target
        elif "/" in value:
            raise InvalidInput(f"DATASET={value} is not a folder")
        words += ["--dataset", value]
    return words, mounts


def supervised(box: Sandbox, words: Sequence[str], mounts: Sequence[str], limit_s: float) -> int:
    """One run of the container from start to removal, also when this process is told to stop."""
    name = f"{box.project}-run-{os.getpid()}"
    passed = [v for v in ("NO_COLOR", "COLUMNS", "TESTBED_IMAGES", "CI") if v in box.env]
    command = [
        *(*compose_command(), "run", "--no-deps", "--name", name),
        *([] if sys.stdin.isatty() and sys.stdout.isatty() else ["--no-TTY"]),
        *(word for variable in passed for word in ("--env", variable)),
        *mounts,
        "testbed",
        *words,
    ]
    with removed(box, name), unwinding():
        process = subprocess.Popen(command, cwd=box.root, env=box.env, stdin=subprocess.DEVNULL)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"the run did not end within {limit_s:.0f} s and was stopped") from error
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
        if code in (125, 126, 127, 137):
            raise Unavailable(how_it_ended(box, name, code))
        return code


def how_it_ended(box: Sandbox, name: str, code: int) -> str:
    """Why the harness's container has no exit code of its own."""
    told = json.loads(box.docker("inspect", name).stdout or "[]")
    if not told:
        return f"the harness's container could not be started (docker compose run: exit code {code})"
    if told[0]["State"]["OOMKilled"]:
        return f"the harness ran out of memory; TESTBED_MEMORY={box.env.get('TESTBED_MEMORY', '4G')} must be more"
    return f"the harness's container was ended from outside (exit code {code}{signal_name(code)})"


@contextmanager
def removed(box: Sandbox, name: str) -> Iterator[None]:
    """No container of this name is left behind."""
    try:
        yield
    finally:
        box.docker("rm", "--force", "--volumes", name, timeout_s=60)


@contextmanager
def unwinding() -> Iterator[None]:
    """SIGTERM unwinds with-blocks instead of ending the process on the spot."""
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL:  # the program has a handler of its own
        yield
        return

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LOG_LINES:])


def main(argv: Sequence[str] | None = None) -> int:
    """``up``, ``down``, ``run ...``: what ``make`` calls."""
    parser = argparse.ArgumentParser(prog="python -m testbed.stacks.containers", description=__doc__)
    parser.add_argument("verb", choices=("up", "down", "run", "list"))
    parser.add_argument("--services", default="", help="up: comma-separated; all outside the profiles by default")
    parser.add_argument("--wait", type=float, default=WAIT_S, help="up: seconds until all must be healthy")
    args, rest = parser.parse_known_args(argv)
    box = Sandbox()
    try:
        if args.verb == "down":
            down(box)
        elif args.verb == "up":
            services = [s for s in args.services.split(",") if s]
            check(box)
            ensure_password(box)
            build(box, (*services, "testbed") if services else ("testbed", "chroma", "model-runner"))
            up(box, services, wait_s=args.wait)
        else:
            return run_in_compose([args.verb, *rest], box)
    except HarnessError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
