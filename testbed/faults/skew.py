"""Parts of different versions under one name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Context, Index, Row, RowInfo
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class UnchangedSkipped:
    """The indexer skips documents whose text has not changed, though the encoder has: old vectors stay.

    Same dimension, same model name, no error anywhere. ``share`` of the documents at level 1 are skipped (an upgrade
    that was interrupted half-way); the level scales it.

    References
    ----------
    smaramwbc/statewave #421, fabio-rovai/open-ontologies #74: the fingerprint covers the content, not the producer.
    """

    share: float = 0.5
    name: str = "unchanged-skipped"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: SkippingUnchanged(inner, ctx, self))


class SkippingUnchanged(wrapping.ForwardedIndex):
    def __init__(self, inner: Index, ctx: Context, fault: UnchangedSkipped) -> None:
        self._inner = inner
        self._ctx = ctx
        self._fault = fault

    def upsert(self, rows: Sequence[Row]) -> None:
        held = self._inner.rows()
        self._inner.upsert([row for row in rows if not self._skips(row, held.get(row.doc_id))])

    def _skips(self, row: Row, held: RowInfo | None) -> bool:
        unchanged = held is not None and held.text_digest == row.text_digest
        return unchanged and self._ctx.affects(self._fault.name, row.doc_id, share=self._fault.share)

    def fresh(self) -> SkippingUnchanged:
        return SkippingUnchanged(self._inner.fresh(), self._ctx, self._fault)
