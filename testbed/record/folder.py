"""One run on disk: the only code that writes or reads the files of a results folder.

    <scenario>/<UTC>-s<seed>-<digest8>/
        manifest.json           what was run, on what; digests of all other files
        ops.jsonl docs.jsonl gold.jsonl ledger.json     what every arm was fed, and the truth
        texts.jsonl             documents and questions, by their digest
        arms/<slug>/trace.jsonl     what happened, in order: no wall clock, no arm name
        arms/<slug>/texts.jsonl     texts that only the arm brought: answers
        arms/<slug>/timings.jsonl   how long it took
        arms/<slug>/held.json   bytes of the entries that the caches held at the end
        arms/<slug>/run.trec    rankings, one "query" an ask (op<index>); qrels.trec likewise
        scores.parquet          one row an arm and ask, one column a metric
        summary.json            what the report shows
        report.html             the same as a page, made from the rest at any time: no part of the run or its digest
        shrunk/<number>.json    the least that shows a violation, where somebody looked for it: likewise

It is built as ``<scenario>/.partial-.../`` and renamed once it is whole: a crash at any moment leaves a whole folder
or one that no reader takes for whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from testbed.core import digest
from testbed.core.errors import BrokenContract, HarnessError, InvalidInput, Unavailable
from testbed.core.evidence import DocRow, Evidence, OpRow
from testbed.core.types import Event, Gold
from testbed.record import durable, manifest, rows, scores, trec

PARTIAL = ".partial-"
HELD = "held.json"
WHOLE = "finished"


class Timing(NamedTuple):
    """Wall-clock duration of one call into a layer, in nanoseconds."""

    op: int
    layer: str
    kind: str
    ns: int


def slug(arm: str) -> str:
    """The folder name of an arm: safe on every file system and for artifact stores, distinct for distinct arms."""
    name = arm.replace(":", "=")  # a colon is refused by some file systems and by artifact stores
    plain = re.sub(r"[^A-Za-z0-9.+=_-]", "_", name)
    return plain if plain == name and "=" not in arm else f"{plain}.{digest.of_text(arm)[:8]}"


def run_digest(described: Mapping[str, Any], arms: Mapping[str, str]) -> str:
    """What two runs of the same experiment share: 64 hex digits over the question, the data and every arm's trace."""
    asked = {name: described[name] for name in ("scenario", "variant", "seed", "level")}
    return digest.of_json({**asked, "data": described["data"]["digest"], "arms": dict(arms)})


class _Lines:
    """A file of JSON lines that only grows, and the digest of what was written to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hash = hashlib.blake2b(digest_size=32)
        with durable.saying(path):
            self._file: IO[bytes] = path.open("xb", buffering=1 << 20)

    def add(self, line: bytes) -> None:
        self._hash.update(line)
        try:
            self._file.write(line)
        except OSError as error:
            raise durable.cannot_write(self.path, error) from error

    def digest(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        if self._file.closed:
            return
        with durable.saying(self.path), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())

    def abandon(self) -> None:
        """Close whatever happens: what could not be written is lost, and the run with it."""
        with suppress(OSError):
            self._file.close()


class ArmWriter:
    """Takes the events, texts and timings of one arm. A context manager; ``digest`` is known once it is closed.

    Needs no ``RunWriter``, so that a worker process can record an arm into a run that its parent writes.

    Parameters
    ----------
    run : the partial folder
    known : digests of texts that the run's own ``texts.jsonl`` holds
    """

    def __init__(self, run: Path, arm: str, known: Set[str]) -> None:
        folder = run / "arms" / slug(arm)
        try:
            with durable.saying(folder):
                folder.mkdir(parents=True)
        except Unavailable as error:
            if folder.is_dir():
                raise BrokenContract(f"arm={arm!r} was recorded twice") from error
            raise
        self._folder = folder
        self._texts = TextWriter(folder / "texts.jsonl", known)
        self._trace = _Lines(folder / "trace.jsonl")
        self._timings = _Lines(folder / "timings.jsonl")
        self._rankings: list[tuple[int, list[str]]] = []
        self._closed = False

    @property
    def digest(self) -> str:
        return self._trace.digest()

    def event(self, event: Event) -> None:
        self._trace.add(rows.line(rows.of_event(event)))
        if event.kind == "answer":
            ranking = event.data.get("ranking", ())
            assert isinstance(ranking, list | tuple)
            self._rankings.append((event.op, [str(doc) for doc in ranking]))

    def text(self, name: str, text: str) -> None:
        self._texts.text(name, text)

    def timing(self, op: int, layer: str, kind: str, ns: int) -> None:
        self._timings.add(b'["%s","%s",%d,%d]\n' % (layer.encode(), kind.encode(), op, ns))

    def held(self, size_bytes: int) -> None:
        """What the caches hold at the end: beside the trace, because older runs were recorded without it."""
        durable.write_bytes(self._folder / HELD, rows.line({"cache_bytes": size_bytes}))

    def abandon(self) -> None:
        self._trace.abandon()
        self._timings.abandon()
        self._texts.abandon()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._texts.close()
        self._trace.close()
        self._timings.close()
        durable.write_bytes(self._folder / "run.trec", trec.run(self._rankings))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class TextWriter:
    """``texts.jsonl``: each text once, in the order in which it was first seen."""

    def __init__(self, path: Path, known: Set[str] = frozenset()) -> None:
        self._lines = _Lines(path)
        self._known = set(known)

    def text(self, name: str, text: str) -> None:
        if name not in self._known:
            self._known.add(name)
            self._lines.add(rows.line({"digest": name, "text": text}))

    def close(self) -> None:
        self._lines.close()

    def abandon(self) -> None:
        self._lines.abandon()


class RunWriter:
    """Writes one run, in order: ``start``, ``write_inputs``, each ``arm``, ``finish``.

    A context manager: left by an exception, the partial folder keeps a ``log.txt`` and says in its manifest how the
    run ended.
    """

    def __init__(self, folder: Path, described: dict[str, Any]) -> None:
        self.folder = folder
        self._manifest = described
        self._arms: dict[str, str] = {}
        self._write_json("manifest.json", described)
        self._texts = TextWriter(folder / "texts.jsonl")

    @classmethod
    def start(cls, results: Path, described: Mapping[str, Any]) -> RunWriter:
        """Make the partial folder and write the manifest first of all. ``described``: see ``manifest.describe``."""
        name = f"{PARTIAL}{described['started']}-s{described['seed']}"
        return cls(durable.make_unique(results / str(described["scenario"]) / name), dict(described))

    def write_inputs(
        self,
        *,
        ops: Iterable[OpRow],
        docs: Iterable[DocRow],
        gold: Iterable[Gold],
        texts: Iterable[str] = (),
        canaries: Mapping[str, str] | None = None,
        lexicon: Mapping[str, Any] | None = None,
    ) -> None:
        """What every arm is fed and the truth it is held to. ``texts``: of documents and questions; arms add theirs."""
        truth = list(gold)
        for text in texts:
            self._texts.text(digest.of_text(text), text)
        self._texts.close()
        self._write_lines("ops.jsonl", map(rows.of_op, ops))
        self._write_lines("docs.jsonl", map(rows.of_doc, docs))
        self._write_lines("gold.jsonl", map(rows.of_gold, truth))
        self._write_json("ledger.json", {"canaries": dict(canaries or {}), "lexicon": lexicon})
        durable.write_bytes(self.folder / "qrels.trec", trec.qrels(truth))

    def recorded(self, arm: str, arm_digest: str) -> None:
        """An arm is complete: its ``ArmWriter`` is closed, here or in a worker. Call in the order of the arms."""
        if arm in self._arms:
            raise BrokenContract(f"arm={arm!r} was recorded twice")
        self._arms[arm] = arm_digest

    def arm_digests(self) -> dict[str, str]:
        """Digest of each arm's trace so far, by arm."""
        return dict(self._arms)

    def digest(self) -> str:
        """Digest of the run, once all arms are written."""
        return run_digest(self._manifest, self.arm_digests())

    def finish(self, summary: Mapping[str, Any], score_rows: Sequence[Mapping[str, Any]]) -> Path:
        """Complete the run; the path of the whole folder. NaN in the summary becomes null: unscored."""
        self._texts.close()
        self._write_json("summary.json", _without_nan(summary))
        durable.write_bytes(self.folder / "scores.parquet", scores.to_parquet(score_rows))
        files = {path.relative_to(self.folder).as_posix(): path for path in _files(self.folder)}
        self._manifest |= {
            "status": WHOLE,
            "finished": manifest.utc_now(),
            "arms": list(self._arms),
            "arm_digests": self.arm_digests(),
            "digest": self.digest(),
            "files": {name: digest.of_bytes(path.read_bytes()) for name, path in files.items()},
        }
        self._write_json("manifest.json", self._manifest)
        name = f"{self._manifest['started']}-s{self._manifest['seed']}-{self._manifest['digest'][:8]}"
        whole = durable.rename_unique(self.folder, self.folder.parent / name)
        with suppress(HarnessError):  # a convenience for people: no reader follows it, some file systems have no links
            durable.link(whole.parent / "latest", whole.name)
        self.folder = whole
        return whole

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._texts.abandon()
        if error is None or self._manifest["status"] == WHOLE:
            return
        with suppress(HarnessError):  # a full disk must not hide the error that ends the run
            log = "".join(traceback.format_exception(kind, error, trace))
            durable.write_bytes(self.folder / "log.txt", log.encode("utf-8", "backslashreplace"))
            ended = {"status": "failed" if isinstance(error, Exception) else "interrupted"}
            self._write_json("manifest.json", self._manifest | ended | {"error": manifest.shareable(str(error))})

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
        durable.write_bytes(self.folder / name, (text + "\n").encode("utf-8", "surrogatepass"))

    def _write_lines(self, name: str, values: Iterable[Any]) -> None:
        durable.write_bytes(self.folder / name, b"".join(map(rows.line, values)))


class RunReader:
    """Reads one whole run; InvalidInput, with the file and what is wrong with it, for anything else.

    ``unfinished``: the run is still being written, by us; what is read of it has been closed.
    """

    def __init__(self, folder: Path, *, unfinished: bool = False) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise InvalidInput(f"no results folder at {folder}; `testbed list --runs` shows what is there")
        self.manifest: dict[str, Any] = self._json("manifest.json", None)
        status, found = self.manifest.get("status"), self.manifest.get("format")
        if found != manifest.FORMAT:
            path = folder / "manifest.json"
            raise InvalidInput(f"{path}: format={found!r}, but this version reads format {manifest.FORMAT} only")
        if not unfinished and (status != WHOLE or folder.name.startswith(PARTIAL)):
            raise InvalidInput(f"{folder}: half a run (status={status!r} must be {WHOLE!r}); run it again")
        self._digests: dict[str, str] = self.manifest.get("files", {})

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(self.manifest["arms"])

    @property
    def digest(self) -> str:
        return str(self.manifest["digest"])

    @cached_property
    def summary(self) -> dict[str, Any]:
        return dict(self._json("summary.json", self._digests))

    def evidence(self, arm: str) -> Evidence:
        """Everything that may be known of an arm when it is judged."""
        events = tuple(self._lines(f"arms/{slug(arm)}/trace.jsonl", rows.to_event))
        own = {row["digest"]: row["text"] for row in self._lines(f"arms/{slug(arm)}/texts.jsonl", dict)}
        return Evidence(arm=arm, events=events, **{**self._shared, "texts": {**self._shared["texts"], **own}})

    def timings(self, arm: str) -> list[Timing]:
        return list(self._lines(f"arms/{slug(arm)}/timings.jsonl", lambda row: Timing(row[2], row[0], row[1], row[3])))

    def held_bytes(self, arm: str) -> int | None:
        """Bytes of the cache entries at the arm's end; None for a run that was recorded without."""
        name = f"arms/{slug(arm)}/{HELD}"
        return int(self._json(name, self._digests)["cache_bytes"]) if (self.folder / name).is_file() else None

    def scores(self, *arms: str) -> list[dict[str, Any]]:
        """One dict an arm and ask: ``arm op query tenant`` and a float for each metric, NaN where it is unscored.

        Of the ``arms`` named, or of all.
        """
        return scores.from_parquet(self._bytes("scores.parquet"), self.folder / "scores.parquet", arms)

    def lines(self, name: str) -> Iterator[Any]:
        """The parsed rows of one of the run's files of JSON lines, checked against its digest."""
        return self._lines(name, lambda row: row)

    def verify(self) -> None:
        """Read every file of the run and compare it with its digest."""
        for name in self._digests:
            self._bytes(name)
        if self.digest != (now := run_digest(self.manifest, self.manifest["arm_digests"])):
            raise InvalidInput(f"{self.folder / 'manifest.json'}: digest={self.digest[:8]} should be {now[:8]}")

    @property
    def ops(self) -> tuple[OpRow, ...]:
        return self._shared["ops"]  # type: ignore[no-any-return]

    @property
    def gold(self) -> Mapping[int, Gold]:
        """What each ask should have been served, by op."""
        return self._shared["gold"]  # type: ignore[no-any-return]

    @cached_property
    def _shared(self) -> dict[str, Any]:
        ledger = self._json("ledger.json", self._digests)
        docs = [rows.to_doc(row) for row in self._lines("docs.jsonl", dict)]
        return {
            "ops": tuple(self._lines("ops.jsonl", rows.to_op)),
            "gold": {gold.op: gold for gold in self._lines("gold.jsonl", rows.to_gold)},
            "docs": {(doc.doc_id, doc.version): doc for doc in docs},
            "texts": {row["digest"]: row["text"] for row in self._lines("texts.jsonl", dict)},
            "canaries": ledger["canaries"],
            "lexicon": ledger["lexicon"],
        }

    def _bytes(self, name: str) -> bytes:
        path = self.folder / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror}; the run is not whole, run it again") from error
        expected = self._digests.get(name)
        if self._digests and expected is None:
            raise InvalidInput(f"{path}: not a file of this run (its manifest does not name it)")
        if expected is not None and digest.of_bytes(data) != expected:
            raise InvalidInput(f"{path}: changed since the run was recorded (its digest differs from the manifest's)")
        return data

    def _json(self, name: str, digests: Mapping[str, str] | None) -> Any:
        try:
            raw = (self.folder / name).read_bytes() if digests is None else self._bytes(name)
            return json.loads(raw.decode("utf-8", "surrogatepass"))
        except OSError as error:
            raise InvalidInput(f"{self.folder / name}: {error.strerror}; not a results folder") from error
        except ValueError as error:
            raise InvalidInput(f"{self.folder / name}: not JSON: {error}") from error

    def _lines(self, name: str, make: Any) -> Iterator[Any]:
        data = self._bytes(name)
        if data and not data.endswith(b"\n"):
            raise InvalidInput(f"{self.folder / name}: the last line is cut off")
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            try:
                yield make(rows.parsed(line))
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise InvalidInput(f"{self.folder / name}:{number}: not a row of this file: {error}") from error


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / "manifest.json")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {name: _without_nan(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return value
