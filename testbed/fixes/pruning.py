"""Fixes for a KV cache that prunes: keep what was pruned where a question can still find it, or do not prune."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from testbed.core.ports import Context
from testbed.stacks import wrapping

NEEDS = frozenset({"policy_of"})


@dataclass(frozen=True, slots=True)
class HostTier:
    """Pruned blocks move to host memory, and the question brings the best ones back, with their neighbours.

    Costs host memory for what is pruned, and a look at its keys per turn.
    """

    recall: int = 2
    name: str = "host-tier"
    needs: frozenset[str] = NEEDS

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        host = {"host_blocks": 1024, "recall": self.recall}
        return wrapping.attribute(stack, "policy_of", lambda inner: lambda query: replace(inner(query), **host))


@dataclass(frozen=True, slots=True)
class LargerWindow:
    """A window of twice the size: what helps when nobody knows what was lost. Costs its rows."""

    name: str = "larger-window"
    needs: frozenset[str] = NEEDS

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def wider(policy: Any) -> Any:
            return replace(policy, window=2 * policy.window)

        return wrapping.attribute(stack, "policy_of", lambda inner: lambda query: wider(inner(query)))
