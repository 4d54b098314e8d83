"""Fixes for the evaluator's own cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core import digest
from testbed.core.ports import Context
from testbed.core.types import Key
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class VerdictByInput:
    """Verdicts are cached by a digest of everything that the judge is shown.

    Costs a verdict made anew for each state of the documents.
    """

    name: str = "verdict-by-input"
    needs: frozenset[str] = frozenset({"judgments"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def named(inner: Callable[..., str]) -> Callable[..., str]:
            def name_of(key: Key, read_from: Any, current: Any) -> str:
                return f"{inner(key, read_from, current)}:{digest.of_json([list(read_from), list(current)])}"

            return name_of

        with wrapping.attribute(wrapping.part(stack, "judgments"), "name_of", named):
            yield
