"""Exact search in Faiss: one flat inner-product index per tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import faiss
import numpy as np

from testbed.core.errors import InvalidInput
from testbed.core.ports import Hit, Row, RowInfo, Vectors
from testbed.stores.exact import admitted, best, check_dim, info, stacked

faiss.omp_set_num_threads(1)  # a search among hundreds of rows is over before a second thread has started
_MARGIN = 1e-4  # far above what float32 sums can be off, far below what separates documents
_EXTRA = 32  # candidates fetched beyond k at first
_REBUILD_SHARE = 0.5
_REBUILD_AT = 64


class FaissIndex:
    """Partitioned by tenant, so that no filter stands between a tenant and another's rows.

    Removing from a flat index moves every later row (96 ms at a million rows): rows are only ever appended, replaced
    and deleted ones stay as tombstones that a search passes over, and a partition is built anew when they are half of
    it. Faiss finds the candidates in float32; their scores are summed again in float64, as ``ExactIndex`` does.
    Not thread-safe.
    """

    def __init__(self) -> None:
        self._home: dict[str, str] = {}  # doc id -> tenant
        self._partitions: dict[str, _Partition] = {}

    def upsert(self, rows: Sequence[Row]) -> None:
        latest = admitted(rows, next((p.dim for p in self._partitions.values()), None))
        self.delete(list(latest))
        by_tenant: dict[str, list[Row]] = {}
        for row in latest.values():
            by_tenant.setdefault(row.tenant, []).append(row)
            self._home[row.doc_id] = row.tenant
        for tenant, added in by_tenant.items():
            self._partitions.setdefault(tenant, _Partition(added[0].vector.size)).add(added)

    def delete(self, ids: Sequence[str]) -> None:
        for doc_id in ids:
            tenant = self._home.pop(doc_id, None)
            if tenant is not None:
                self._partitions[tenant].remove(doc_id)
                if not self._partitions[tenant].live:
                    del self._partitions[tenant]

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        if k < 1:
            raise InvalidInput(f"k={k} must be >= 1 (search of an index)")
        tenants = sorted(self._partitions) if tenant is None else [tenant]
        found = [c for t in tenants if t in self._partitions for c in self._partitions[t].candidates(vector, k)]
        return best(*stacked(sorted(found, key=lambda c: c[0])), vector, k)

    def rows(self) -> Mapping[str, RowInfo]:
        return {doc_id: info(self._partitions[tenant].live[doc_id][1]) for doc_id, tenant in sorted(self._home.items())}

    def fresh(self) -> FaissIndex:
        return FaissIndex()


class _Partition:
    """One tenant's rows. ``live`` tells for a document which label (position in the Faiss index) is in force."""

    def __init__(self, dim: int) -> None:
        self.live: dict[str, tuple[int, Row]] = {}
        self.dim = dim
        self._ids: list[str] = []  # by label, tombstones included
        self._flat = faiss.IndexFlatIP(dim)

    def add(self, rows: Sequence[Row]) -> None:
        self._flat.add(np.stack([r.vector for r in rows]))
        for row in rows:
            self.live[row.doc_id] = (len(self._ids), row)
            self._ids.append(row.doc_id)

    def remove(self, doc_id: str) -> None:
        del self.live[doc_id]
        n_dead = len(self._ids) - len(self.live)
        if self.live and n_dead >= _REBUILD_AT and n_dead >= _REBUILD_SHARE * len(self._ids):
            rows = [row for _, row in self.live.values()]
            self.live, self._ids, self._flat = {}, [], faiss.IndexFlatIP(self.dim)
            self.add(rows)

    def candidates(self, vector: Vectors, k: int) -> list[tuple[str, Vectors]]:
        """Every live row that can be among the k best after exact scoring, and some more."""
        check_dim(vector, self.dim)
        n_fetched = min(len(self._ids), k + _EXTRA)
        while True:
            scores, labels = self._flat.search(vector.reshape(1, -1), n_fetched)
            kept = [(s, i) for s, i in zip(scores[0].tolist(), labels[0].tolist(), strict=True) if self._is_live(i)]
            # Done when what was not fetched is worse than the k-th live one by more than rounding can hide.
            if n_fetched == len(self._ids) or (len(kept) >= k and kept[k - 1][0] - scores[0][-1] > _MARGIN):
                return [(self._ids[i], self.live[self._ids[i]][1].vector) for _, i in kept]
            n_fetched = min(len(self._ids), 2 * n_fetched)

    def _is_live(self, label: int) -> bool:
        held = self.live.get(self._ids[label])
        return held is not None and held[0] == label
