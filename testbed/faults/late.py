"""The text of a document that arrives after its vector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Context
from testbed.stacks import dual
from testbed.stores.dual import Item


@dataclass(frozen=True, slots=True)
class LateText:
    """Vectors are written at once, their texts by a task that runs ``delay_s`` logical seconds later.

    In between the new vector leads to the old text. Only designs that write texts in a step of their own can be late
    (``stores.dual_published``). The level is the share of batches. The first load is never late.

    References
    ----------
    The brief, section 2: the text of an updated vector was served 3.2 s late. garrytan/gbrain #4246.
    """

    delay_s: float = 3.2
    name: str = "late-text"
    needs: frozenset[str] = frozenset({"index", "layers.text", "redis"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        if ctx.level == 0:
            yield
            return
        with dual.kept(stack) as stores:
            stores.deliver = Late(stores, ctx, self).deliver
            try:
                yield
            finally:
                stores.deliver = stores.write


class Late:
    """Counts the batches and delays the texts of those that the fault affects."""

    def __init__(self, stores: dual.DualStores, ctx: Context, fault: LateText) -> None:
        self._stores = stores
        self._ctx = ctx
        self._fault = fault
        self._number = 0

    def deliver(self, batch: list[Item]) -> None:
        number, self._number = self._number, self._number + 1
        writer: Any = self._stores.writer
        is_late = number > 0 and self._ctx.affects(self._fault.name, f"batch-{number}")
        if not is_late or not getattr(writer, "texts_come_later", False):
            self._stores.write(batch)
            return
        writer.write_vectors(batch)
        self._ctx.schedule(self._ctx.now() + self._fault.delay_s, lambda: writer.write_texts(batch))
