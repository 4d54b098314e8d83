"""The vector index on disk: one file that is whole or is not believed.

Form: a line of JSON (format, cursor, incarnation, dim, one row of names per vector), the vectors as little-endian
float32, and 32 bytes of BLAKE2b over all before them. Faiss's own ``write_index`` has no checksum, replaces the file in
place and knows neither ids nor a cursor; the index is built anew from the vectors here (0.1 s for 100,000).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from testbed.core.errors import BrokenContract
from testbed.core.ports import Row
from testbed.stores.dual import At, undisturbed

FORMAT = 1
_CHECKSUM = 32


class Snapshot(NamedTuple):
    """The rows of an index, and up to which change of which life of the log they go."""

    rows: tuple[Row, ...]
    cursor: str = ""
    incarnation: str = ""


def packed(snapshot: Snapshot) -> bytes:
    rows = snapshot.rows
    head = {
        "format": FORMAT,
        "cursor": snapshot.cursor,
        "incarnation": snapshot.incarnation,
        "dim": rows[0].vector.size if rows else 0,
        "rows": [[r.doc_id, r.version, r.tenant, r.made_by, r.text_digest] for r in rows],
    }
    body = json.dumps(head, separators=(",", ":")).encode() + b"\n"
    if rows:
        body += np.stack([r.vector for r in rows]).astype("<f4").tobytes()
    return body + checksum(body)


def unpacked(data: bytes, where: str) -> Snapshot:
    """BrokenContract when the bytes are not a whole snapshot."""
    body, told = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if len(data) <= _CHECKSUM or checksum(body) != told:
        raise BrokenContract(f"snapshot {where} is torn: {len(data)} bytes that do not match their checksum")
    line, _, raw = body.partition(b"\n")
    head = json.loads(line)
    if head["format"] != FORMAT:
        raise BrokenContract(f"snapshot {where} has format={head['format']}; expected {FORMAT}")
    vectors = np.frombuffer(raw, dtype="<f4").astype(np.float32).reshape(len(head["rows"]), head["dim"])
    names = zip(head["rows"], vectors, strict=True)
    rows = tuple(Row(doc_id, n, tenant, v, made_by, text) for (doc_id, n, tenant, made_by, text), v in names)
    return Snapshot(rows, head["cursor"], head["incarnation"])


def checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM).digest()


def read(path: Path) -> Snapshot:
    """FileNotFoundError when there is none, BrokenContract when it is torn."""
    return unpacked(path.read_bytes(), path.name)


def write(path: Path, snapshot: Snapshot, at: At = undisturbed) -> None:
    """Into a temporary file, synced, renamed, the folder synced: after a crash ``path`` is the old one or the new.

    Passes ``snapshot-torn``, ``snapshot-written`` and ``snapshot-renamed``.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        _in_halves(file.fileno(), packed(snapshot), at, "snapshot-torn")
        os.fsync(file.fileno())
    at("snapshot-written")
    temporary.replace(path)
    at("snapshot-renamed")
    sync_folder(path.parent)


def write_in_place(path: Path, snapshot: Snapshot, at: At = undisturbed) -> None:
    """Over the old file, as most programs do: a crash in the middle leaves neither. Passes ``index-torn``."""
    with path.open("wb") as file:
        _in_halves(file.fileno(), packed(snapshot), at, "index-torn")


def _in_halves(file: int, data: bytes, at: At, step: str) -> None:
    """A moment in the middle at which the process can die, as it can in any write that is larger than a page."""
    half = len(data) // 2
    _write_all(file, data[:half])
    at(step)
    _write_all(file, data[half:])


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path, keep: Iterable[str]) -> None:
    """Remove snapshots that are not in force, and what dead writers left unfinished."""
    kept = set(keep)
    for path in sorted(folder.iterdir()):
        if path.name.lstrip(".").startswith("snapshot-") and path.name not in kept:
            path.unlink(missing_ok=True)
