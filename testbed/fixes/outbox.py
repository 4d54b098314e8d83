"""Fixes of the dual write: other designs for bringing a vector and its text into their stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Context
from testbed.stacks import dual


@dataclass(frozen=True, slots=True)
class DualWrite:
    """Vectors and texts are written by another design (see ``stores.dual``).

    ``recoverable`` costs a second copy of each vector, a log entry per change and a sync per batch; ``commit-hook`` and
    ``one-script`` are the published repairs, which cost less and hold less.
    """

    design: str = "recoverable"
    needs: frozenset[str] = frozenset({"index", "layers.text", "redis"})

    @property
    def name(self) -> str:
        return f"{self.design}-dual-write"

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with dual.kept(stack, self.design) as stores:
            if stores.design != self.design:
                stores.redesign(self.design)
            yield
