"""``testbed compile-report``: torch.compile's caches seen on a toy model, as text or JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from typing import Any

from testbed.core.errors import InvalidInput, Unavailable


def text(*, storm: bool = False, twice: bool = False, as_json: bool = False) -> str:
    """The report of the toy model, of drifting shapes (``storm``), or of two fresh processes on one cache (``twice``).

    Raises
    ------
    Unavailable : torch is not installed, or there is no C++ compiler for it.
    """
    if storm and twice:
        raise InvalidInput("--storm and --twice exclude each other: a storm generates no code that could be kept")
    if twice:
        return _twice(as_json=as_json)
    try:
        from testbed.models.runner import compiling
    except ImportError as error:
        raise Unavailable(f"compile-report needs {error.name}; pip install 'rag-testbed[runner]'") from error
    if storm:
        storms = compiling.storm()
        return _json([s._asdict() for s in storms]) if as_json else compiling.render_storm(storms)
    _needs_compiler()
    report = compiling.toy()
    return _json(asdict(report) | {"recompiles": report.recompiles}) if as_json else compiling.render(report)


def _twice(*, as_json: bool) -> str:
    """What the disk caches did in a first process, and in a second one on the same folder."""
    _needs_compiler()
    found: dict[str, Any] = {}
    command = [sys.executable, "-m", "testbed", "compile-report", "--json"]
    with tempfile.TemporaryDirectory(prefix="rag-testbed-compile-") as folder:
        for name in ("first process", "second process"):
            env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
                raise Unavailable(f"{name}: exit code {done.returncode}: {last[0].removeprefix('testbed: ')}")
            found[name] = json.loads(done.stdout)
    if as_json:
        return _json(found)
    lines = []
    for name, report in found.items():
        seconds = sum(g["compile_s"] for g in report["graphs"])
        counts = ", ".join(f"{counter} {n}" for counter, n in report["counts"].items())
        lines.append(f"{name:<15} {len(report['graphs'])} graphs in {seconds:.1f} s: {counts}")
    return "\n".join(lines)


def _needs_compiler() -> None:
    wanted = os.environ.get("CXX") or "g++"
    if shutil.which(wanted) is None and shutil.which("clang++") is None:
        raise Unavailable(f"torch.compile needs a C++ compiler, and {wanted} is not there; install g++ or set CXX")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True)
