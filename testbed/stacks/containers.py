"""The harness in its container, beside the services of the sandbox: runs it, and says what happened to them meanwhile.

Standard library only, so that a machine with Docker and Python and nothing else can do
``python3 -m testbed.stacks.containers up``. Every wait is bounded.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from testbed.core.errors import HarnessError, InvalidInput, Unavailable
from testbed.stacks.sandbox import (
    Container,
    Sandbox,
    build,
    check,
    compose_command,
    containers,
    down,
    ensure_password,
    up,
)

SERVICES = ("redis", "redis-log", "chroma")  # what a run needs; the model runner is started by `up`
CONTAINER_USER = 10001
HARNESS_IMAGE = "rag-testbed/testbed:local"
FIRST_UP_S = 600.0  # the model runner decodes its weights when it starts for the first time
RUN_S = 4 * 3600.0
SETTLE_S = 20.0  # for a service that died in a run to come back before it is told about


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


def container_user(box: Sandbox) -> dict[str, str]:
    """Who the harness is inside its container: the caller, so that results belong to them; never root."""
    if os.getuid() != 0:
        return {"TESTBED_UID": str(os.getuid()), "TESTBED_GID": str(os.getgid())}
    results = box.path_of("RESULTS_DIR", "results")
    for folder in (results, *(p for p in results.glob("*") if p.is_dir() and p.name != "baselines")):
        os.chown(folder, CONTAINER_USER, CONTAINER_USER)
    return {"TESTBED_UID": str(CONTAINER_USER), "TESTBED_GID": str(CONTAINER_USER)}


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
        if c == was:
            continue
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


def main(argv: Sequence[str] | None = None) -> int:
    """``up``, ``down``, ``run ...``: what ``make`` calls."""
    parser = argparse.ArgumentParser(prog="python -m testbed.stacks.containers", description=__doc__)
    parser.add_argument("verb", choices=("up", "down", "run", "list"))
    parser.add_argument("--services", default="", help="up: comma-separated; all outside the profiles by default")
    parser.add_argument("--wait", type=float, default=FIRST_UP_S, help="up: seconds until all must be healthy")
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
