"""Per-ask scores as a Parquet table: JSON has no NaN, and an unscored ask must not become a zero."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from testbed.core.errors import InvalidInput

LABELS = {"arm": pa.string(), "op": pa.int32(), "query": pa.string(), "tenant": pa.string()}


def to_parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """``rows`` have the labels ``arm op query tenant`` and a float or None for each metric; a missing one is NaN."""
    metrics = list(dict.fromkeys(name for row in rows for name in row if name not in LABELS))
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in LABELS.items()}
    for name in metrics:
        columns[name] = pa.array([_number(row.get(name)) for row in rows], pa.float64())
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue()


def from_parquet(data: bytes, path: Path, arms: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows of ``arms``, or of all where none is named."""
    chosen = [("arm", "in", list(arms))] if arms else None
    try:
        rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(data), filters=chosen).to_pylist()
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"{path}: not a Parquet table: {error}") from error
    return rows


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
