"""The reference index: every row is compared, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.core.errors import InvalidInput
from testbed.core.ports import Hit, Row, RowInfo, Vectors

DECIMALS = 6  # scores are compared and recorded to 1e-6: below that, float32 vectors are noise


class ExactIndex:
    """Brute force over the rows of a tenant. What other indexes are measured against."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._stacked: dict[str | None, tuple[list[str], NDArray[np.float64]]] = {}

    def upsert(self, rows: Sequence[Row]) -> None:
        self._rows |= admitted(rows, self._dim())
        self._stacked.clear()

    def _dim(self) -> int | None:
        return next((row.vector.size for row in self._rows.values()), None)

    def delete(self, ids: Sequence[str]) -> None:
        for doc_id in ids:
            self._rows.pop(doc_id, None)
        self._stacked.clear()

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        if tenant not in self._stacked:
            rows = sorted(self._rows.items())
            self._stacked[tenant] = stacked([(i, r.vector) for i, r in rows if tenant is None or r.tenant == tenant])
        return best(*self._stacked[tenant], vector, k)

    def rows(self) -> Mapping[str, RowInfo]:
        return {doc_id: info(row) for doc_id, row in sorted(self._rows.items())}

    def fresh(self) -> ExactIndex:
        return ExactIndex()


def admitted(rows: Sequence[Row], dim: int | None) -> dict[str, Row]:
    """The rows by id, the last of several under one id, with vectors that nobody else can change.

    Parameters
    ----------
    dim : dimension of what the index holds; None when it is empty

    Raises
    ------
    InvalidInput : a vector is not (dim,) float32. Nothing has been written then.
    """
    out: dict[str, Row] = {}
    for row in rows:
        dim = row.vector.size if dim is None else dim
        if row.vector.dtype != np.float32 or row.vector.shape != (dim,):
            raise InvalidInput(
                f"row {row.doc_id!r} has a vector of shape={row.vector.shape} dtype={row.vector.dtype}; "
                f"expected ({dim},) float32"
            )
        out[row.doc_id] = row._replace(vector=row.vector.copy())
    return out


def info(row: Row) -> RowInfo:
    return RowInfo(row.version, row.tenant, row.made_by, row.text_digest)


def stacked(held: Sequence[tuple[str, Vectors]]) -> tuple[list[str], NDArray[np.float64]]:
    """Ids, and their vectors as rows of one float64 matrix, in the order given."""
    if not held:
        return [], np.empty((0, 0), dtype=np.float64)
    return [i for i, _ in held], np.stack([v for _, v in held]).astype(np.float64)


def best(ids: Sequence[str], matrix: NDArray[np.float64], vector: Vectors, k: int) -> list[Hit]:
    """The k best rows by inner product, rounded; ties by id.

    Every index ends here, with all of its rows or with candidates enough: the same sum, in the same order, over one
    row at a time, so that a score is the same bits whatever else is held.

    Parameters
    ----------
    ids : sorted, one per row
    matrix : (n_rows, dim), float64
    """
    if k < 1:
        raise InvalidInput(f"k={k} must be >= 1 (search of an index)")
    if not ids:
        return []
    check_dim(vector, matrix.shape[1])
    scores = np.round((matrix * vector.astype(np.float64)).sum(axis=1), DECIMALS) + 0.0  # no -0.0 in a trace
    order = np.argsort(-scores, kind="stable")[:k]  # stable over sorted ids: ties fall to the smaller id
    return [Hit(ids[i], float(scores[i])) for i in order.tolist()]


def check_dim(vector: Vectors, dim: int) -> None:
    if vector.shape != (dim,):
        raise InvalidInput(f"vector of shape={vector.shape} does not fit an index of dim={dim}")
