"""Fixes for an index that holds vectors of more than one encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.core.ports import Context, Encoder, Hit, Index, Row, RowInfo, Vectors
from testbed.core.types import Doc
from testbed.stacks import wrapping
from testbed.stacks.pipeline import rows_of


class Watched:
    """An index that knows which of its rows another encoder made than the one that asks.

    ``repair(index, ids, made_by)`` is called once per change of the encoder or of the rows, with the ids that differ.
    """

    def __init__(self, inner: Index, repair: Callable[[Index, list[str], str], None]) -> None:
        self.inner = inner
        self._repair = repair
        self._checked_for = ""

    def upsert(self, rows: Sequence[Row]) -> None:
        self._checked_for = ""
        self.inner.upsert(rows)

    def delete(self, ids: Sequence[str]) -> None:
        self.inner.delete(ids)

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        if self._checked_for != made_by:
            differ = [i for i, row in self.inner.rows().items() if row.made_by != made_by]
            if differ:
                self._repair(self.inner, differ, made_by)
            self._checked_for = made_by
        return self.inner.search(vector, tenant=tenant, k=k, made_by=made_by)

    def rows(self) -> Mapping[str, RowInfo]:
        return self.inner.rows()

    def fresh(self) -> Watched:
        return Watched(self.inner.fresh(), self._repair)


@dataclass(frozen=True, slots=True)
class ReEmbed:
    """Rows that another encoder made are embedded again by the one in force, before the first search meets them.

    Costs one encoding per stale document, once per deployment.
    """

    name: str = "re-embed"
    needs: frozenset[str] = frozenset({"index", "encoder", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def repair(index: Index, ids: list[str], made_by: str) -> None:
            docs = [d for i in ids if (d := stack.source.find(i)) is not None]
            vectors = stack.encoder.encode([d.text for d in docs], "document")
            index.delete(ids)
            index.upsert(rows_of(docs, vectors, stack.encoder))

        with wrapping.index(stack, lambda inner: Watched(inner, repair)):
            yield


@dataclass(frozen=True, slots=True)
class ManifestAssertion:
    """Rows carry the fingerprint of what made them; a row of another encoder than the asker's is refused.

    Detects, and refuses to serve nonsense, but does not bring back the documents: availability pays until the index
    is made anew.
    """

    name: str = "manifest-assertion"
    needs: frozenset[str] = frozenset({"index"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with wrapping.index(stack, lambda inner: Watched(inner, lambda index, ids, made_by: index.delete(ids))):
            yield


@dataclass(frozen=True, slots=True)
class Adapter:
    """A linear map from the old space to the new one, learnt on a sample, applied to the rows that were left behind.

    Ridge regression on ``sample`` documents embedded by both encoders. Costs ``sample`` encodings instead of one per
    document; how much ranking it recovers is what the run measures.

    Parameters
    ----------
    sample : documents embedded anew to learn the map
    ridge : weight of the penalty, relative to the mean squared norm (1 for unit vectors)
    """

    sample: int = 200
    ridge: float = 0.1
    name: str = "adapter"
    needs: frozenset[str] = frozenset({"index", "encoder", "source"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Adapted(inner, stack, self))


class Adapted(Watched):
    """Keeps the vectors it was given, per encoder, so that the old ones can be mapped when the encoder changes."""

    def __init__(self, inner: Index, stack: Any, fix: Adapter) -> None:
        super().__init__(inner, self._map)
        self._stack = stack
        self._fix = fix
        self._given: dict[tuple[str, str], Row] = {}

    def upsert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._given[row.doc_id, row.made_by] = row
        super().upsert(rows)

    def _map(self, index: Index, ids: list[str], made_by: str) -> None:
        held = index.rows()
        old = [row for i in ids if (row := self._given.get((i, held[i].made_by))) is not None]
        docs: list[Doc] = [d for r in old[: self._fix.sample] if (d := self._stack.source.find(r.doc_id)) is not None]
        known = {d.id for d in docs}
        encoder: Encoder = self._stack.encoder
        target = np.asarray(encoder.encode([d.text for d in docs], "document"), dtype=np.float64)
        start = np.stack([r.vector for r in old if r.doc_id in known]).astype(np.float64)
        gram = start.T @ start + self._fix.ridge * np.eye(start.shape[1])
        matrix = np.linalg.solve(gram, start.T @ target)
        index.delete([r.doc_id for r in old])
        index.upsert([row._replace(vector=_unit(row.vector @ matrix), made_by=made_by) for row in old])

    def fresh(self) -> Adapted:
        return Adapted(self.inner.fresh(), self._stack, self._fix)


def _unit(vector: Any) -> Vectors:
    norm = float(np.linalg.norm(vector))
    return np.asarray(vector / norm if norm > 0 else vector, dtype=np.float32)
