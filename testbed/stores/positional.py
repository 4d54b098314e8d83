"""A flat Faiss index with a side map from position to document, kept as services keep it by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np

from testbed.core.ports import Row, Vectors


class SideMap:
    """One flat index and the map that says which document stands at which of its positions.

    Faiss closes the gap when a vector is removed: every later vector moves down by one. ``forget`` takes the document
    out of the map and, unless it ``compacts``, leaves the other positions as they were: each of them then names the
    document before the one whose vector is there.

    Parameters
    ----------
    counts_map : places of new vectors are counted from the end of the map instead of that of the index
    """

    def __init__(self, dim: int, *, counts_map: bool) -> None:
        self._flat: Any = faiss.IndexFlatIP(dim)
        self._counts_map = counts_map
        self.at: dict[int, str] = {}  # position -> document

    def add(self, rows: Sequence[Row]) -> None:
        start = self._size() if not self._counts_map else (max(self.at) + 1 if self.at else 0)
        self._flat.add(np.stack([r.vector for r in rows]))
        self.at.update((start + n, row.doc_id) for n, row in enumerate(rows))

    def add_unmapped(self, row: Row) -> None:
        """The vector is in, and then something raised before the map was brought up to date."""
        self._flat.add(row.vector.reshape(1, -1))

    def forget(self, doc_id: str, *, compacts: bool) -> None:
        place = next((p for p, held in self.at.items() if held == doc_id), None)
        if place is None:
            return
        del self.at[place]
        if place < self._size():
            self._flat.remove_ids(np.array([place], dtype=np.int64))
        if compacts:
            self.at = {p - (p > place): doc for p, doc in self.at.items()}

    def resolved(self) -> dict[str, Vectors]:
        """By document, the vector that a search would find it by: that of the position which the map gives it."""
        return {doc: self._flat.reconstruct(p) for p, doc in sorted(self.at.items()) if p < self._size()}

    def _size(self) -> int:
        return int(self._flat.ntotal)
