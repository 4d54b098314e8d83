"""Several fixes at once, for what one alone does not mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Change, Context


@dataclass(frozen=True, slots=True)
class Together:
    """Each fix around those before it. Costs what they cost."""

    fixes: tuple[Change, ...]

    @property
    def name(self) -> str:
        return "-with-".join(fix.name for fix in self.fixes)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(need for fix in self.fixes for need in fix.needs)

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with ExitStack() as undo:
            for fix in self.fixes:
                undo.enter_context(fix.applied(stack, ctx))
            yield
