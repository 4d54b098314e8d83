"""What was embedded once is not embedded again: vectors on disk, and the encoder that asks there first.

The memo is a cache of the harness, never part of a stack under test. Its key is the digest of everything a vector
depends on, so a fault in a stack cannot reach it, and a run with a warm memo equals one with a cold memo.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from testbed.core import digest
from testbed.core.names import ValueNames
from testbed.core.ports import Encoder, Role, Vectors

_log = logging.getLogger("testbed")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, stamp TEXT NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID;
"""
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_AT_ONCE = 500  # SQLite allows 999 parameters in its oldest builds
_WAIT_S = 30.0
_RETRY_S = 0.01
_CHUNK = 64  # texts encoded between two writes: what a killed run loses at most


def default_dir() -> Path:
    """``TESTBED_CACHE_DIR``, else ``rag-testbed`` in the user's cache folder."""
    own = os.environ.get("TESTBED_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rag-testbed"


class Memo:
    """Vectors by 32-byte key in one SQLite file; safe with several processes and when one is killed.

    Each row carries a checksum: a row that was damaged counts as missing, a file that is no database any more is set
    aside. Where the folder cannot be used at all the memo is empty and says so once: slower, never wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "embeddings.sqlite3"
        self._db: sqlite3.Connection | None = None
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._off = False

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        """The vectors that are there, whole, by key."""
        out: dict[bytes, Vectors] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            marks = ",".join("?" * len(some))
            rows = self._run(f"SELECT key, vector, checksum FROM vectors WHERE key IN ({marks})", [some])
            out |= {k: np.frombuffer(v, "<f4").astype(np.float32) for k, v, c in rows if c == _checksum(k, v)}
        return out

    def keep(self, vectors: Mapping[bytes, Vectors]) -> None:
        """Store vectors; all of them or, when the process dies, none."""
        raw = [(k, v.astype("<f4", copy=False).tobytes()) for k, v in vectors.items()]
        self._run("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", [(k, v, _checksum(k, v)) for k, v in raw])

    def file_digest(self, path: Path) -> str:
        """Digest of a file's bytes; read again only when its size or modification time changed."""
        state = path.stat()
        name, stamp = str(path.resolve()), f"{state.st_size} {state.st_mtime_ns}"
        for (known,) in self._run("SELECT digest FROM files WHERE path = ? AND stamp = ?", [(name, stamp)]):
            return str(known)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
        self._run("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", [(name, stamp, found)])
        return found

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _run(self, statement: str, rows: Sequence[Sequence[object]]) -> list[tuple[Any, ...]]:
        """Run a statement (a read with one row of parameters, a write with any number), once more on a new file."""
        with self._lock:
            for _ in range(2):
                if self._off:
                    return []
                try:
                    return self._attempt(statement, rows)
                except (sqlite3.DatabaseError, OSError) as error:
                    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BROKEN:
                        self._set_aside()
                    else:
                        self._give_up(error)
            return []

    def _attempt(self, statement: str, rows: Sequence[Sequence[object]]) -> list[tuple[Any, ...]]:
        if self._db is None or self._owner != os.getpid():  # a connection must not be used across a fork
            self._db, self._owner = self._opened(), os.getpid()
        if statement.startswith("SELECT"):
            return self._db.execute(statement, rows[0]).fetchall()
        with self._db:
            self._db.executemany(statement, rows)
        return []

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=_WAIT_S, check_same_thread=False)
        try:
            _use_wal(db)
            db.execute("PRAGMA synchronous = NORMAL")
            db.executescript(_SCHEMA)
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def _set_aside(self) -> None:
        self.close()
        n = 1
        while (aside := self.path.with_name(f"{self.path.name}.broken-{n}")).exists():
            n += 1
        _log.warning("the embedding memo %s is damaged; set aside as %s and made anew", self.path, aside.name)
        with suppress(FileNotFoundError):  # another process was faster
            self.path.rename(aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _give_up(self, error: Exception) -> None:
        self.close()
        self._off = True
        _log.warning("the embedding memo %s cannot be used (%s); this run embeds without it", self.path, error)


class MemoEncoder:
    """An encoder that remembers, in memory and on disk, and tells ``names`` what every vector is.

    Parameters
    ----------
    on_progress : called with (done, total) while texts that nobody embedded before are embedded
    """

    def __init__(
        self,
        inner: Encoder,
        memo: Memo,
        names: ValueNames,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._inner = inner
        self._memo = memo
        self._names = names
        self._on_progress = on_progress
        self._held: dict[tuple[str, str], Vectors] = {}

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    @property
    def tokenizer(self) -> str:
        return self._inner.tokenizer

    @property
    def dim(self) -> int:
        return self._inner.dim

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        missing = {text: self._key(text, role) for text in texts if (role, text) not in self._held}
        if missing:
            self._load(missing, role)
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        for row, text in enumerate(texts):
            vector = out[row] = self._held[role, text]
            # At every hand-out, not once: where two encoders agree to the bit, the one that gave it last counts.
            self._names.learn(vector, self.fingerprint, digest.of_text(text))
        return out

    def _key(self, text: str, role: Role) -> bytes:
        return hashlib.blake2b(digest.canonical([self.fingerprint, role, text]), digest_size=32).digest()

    def _load(self, missing: Mapping[str, bytes], role: Role) -> None:
        found = self._memo.find(list(missing.values()))
        self._hold(((text, found[key]) for text, key in missing.items() if key in found), role)
        unknown = [text for text, key in missing.items() if key not in found]
        for start in range(0, len(unknown), _CHUNK):
            some = unknown[start : start + _CHUNK]
            vectors = self._inner.encode(some, role)
            self._memo.keep({missing[text]: vectors[row] for row, text in enumerate(some)})
            self._hold(zip(some, vectors, strict=True), role)
            if self._on_progress is not None:
                self._on_progress(start + len(some), len(unknown))

    def _hold(self, made: Iterable[tuple[str, Vectors]], role: Role) -> None:
        for text, vector in made:
            self._held[role, text] = vector


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; of several processes that do so on a new file, SQLite lets only one wait."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def _checksum(key: bytes, vector: bytes) -> bytes:
    return hashlib.blake2b(key + vector, digest_size=8).digest()
