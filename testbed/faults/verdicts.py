"""The evaluator's own cache: verdicts that outlive what they were about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Context
from testbed.core.types import Key
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class VerdictKey:
    """The judge's verdicts are cached by the entry alone, without the state of the documents that it was shown.

    A verdict "fresh" then outlives what it was about. The level is the share of questions whose verdicts lose it.
    """

    name: str = "verdict-without-context"
    needs: frozenset[str] = frozenset({"judgments"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def named(inner: Callable[..., str]) -> Callable[..., str]:
            def name_of(key: Key, read_from: Any, current: Any) -> str:
                return inner(key, read_from, () if ctx.affects(self.name, key.get("text")) else current)

            return name_of

        with wrapping.attribute(wrapping.part(stack, "judgments"), "name_of", named):
            yield
