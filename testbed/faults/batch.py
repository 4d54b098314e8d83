"""Vectors that go astray between an embedding service and the index, because they travel in batches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from testbed.core.ports import Context, Index, Row, Vectors
from testbed.stacks import wrapping

BATCH = 32  # texts that are sent at once


@dataclass(frozen=True, slots=True)
class BatchShift:
    """Vectors of a batch are put beside the wrong texts, or are not what they would have been alone.

    A batch of one is never touched. ``share`` of the documents are affected at level 1; the level scales it.

    Parameters
    ----------
    how : ``skipped``: a vector that cannot be used is left out and the rest move up by one; the last text of the batch,
        left without, is sent again alone. ``merged``: when documents are indexed again, what a cache had lost is
        computed, and the answer (computed first, cached after) is taken in the order of the request. ``zeroed-tail``:
        a buffer is reused too early, three quarters of a vector are zero. ``mixed``: a vector has some of the one
        before it in its batch

    References
    ----------
    skipped: langgenius/dify #41988. merged: BerriAI/litellm PR #41799. zeroed-tail: ollama/ollama #8713.
    mixed: ollama/ollama #6262, ddalcu/mlx-serve #403.
    """

    how: Literal["skipped", "merged", "zeroed-tail", "mixed"] = "skipped"
    share: float = 0.5
    needs: frozenset[str] = frozenset({"index"})

    @property
    def name(self) -> str:
        return f"batch-{self.how}"

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Batched(inner, ctx, self))


class Batched(wrapping.ForwardedIndex):
    """An index that gets its rows from a client that sends texts in batches."""

    def __init__(self, inner: Index, ctx: Context, fault: BatchShift) -> None:
        self._inner = inner
        self._ctx = ctx
        self._fault = fault
        self._cached: set[tuple[str, str]] = set()  # (encoder, text digest), as the client's own cache had them

    def upsert(self, rows: Sequence[Row]) -> None:
        out: list[Row] = []
        for start in range(0, len(rows), BATCH):
            batch = list(rows[start : start + BATCH])
            out += self._sent(batch) if len(batch) > 1 else batch
        self._cached.update((row.made_by, row.text_digest) for row in rows)
        self._inner.upsert(out)

    def _sent(self, batch: list[Row]) -> list[Row]:
        hit = [self._ctx.affects(self._fault.name, row.doc_id, share=self._fault.share) for row in batch]
        vectors = [row.vector for row in batch]
        match self._fault.how:
            case "skipped":
                vectors = [v for v, bad in zip(vectors, hit, strict=True) if not bad]
                vectors += [row.vector for row in batch[len(vectors) :]]
            case "merged":
                lost = [
                    bad or (r.made_by, r.text_digest) not in self._cached for r, bad in zip(batch, hit, strict=True)
                ]
                vectors = [v for v, gone in zip(vectors, lost, strict=True) if gone]
                vectors += [row.vector for row, gone in zip(batch, lost, strict=True) if not gone]
            case "zeroed-tail":
                vectors = [zeroed(v) if bad else v for v, bad in zip(vectors, hit, strict=True)]
            case "mixed":
                before = [vectors[-1], *vectors[:-1]]
                vectors = [unit(v + b) if bad else v for v, b, bad in zip(vectors, before, hit, strict=True)]
        return [row._replace(vector=vector) for row, vector in zip(batch, vectors, strict=True)]

    def fresh(self) -> Batched:
        return Batched(self._inner.fresh(), self._ctx, self._fault)


def zeroed(vector: Vectors) -> Vectors:
    """The first quarter of a vector, the rest zero."""
    out = vector.copy()
    out[len(out) // 4 :] = 0.0
    return out


def unit(vector: Vectors) -> Vectors:
    norm = float(np.linalg.norm(vector))
    return np.asarray(vector / norm if norm > 0 else vector, dtype=np.float32)
