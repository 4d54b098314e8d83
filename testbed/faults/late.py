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
    garrytan/gbrain #4246: the text changed, its embedding did not, and every count said that all was well.
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

            def late(batch: list[Item], number: int) -> None:
                writer: Any = stores.writer
                if not getattr(writer, "texts_come_later", False):
                    stores.write(batch)
                    return
                writer.write_vectors(batch)
                ctx.schedule(ctx.now() + self.delay_s, lambda: writer.write_texts(batch))

            with dual.struck(stores, ctx, self.name, late):
                yield
