"""A KV cache that throws away rows which a later question needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from testbed.core.ports import Context
from testbed.core.types import Query
from testbed.models.runner.policy import Policy
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class RowsDropped:
    """What the policy does not keep is gone: no host tier. The level is the share of questions answered so.

    Before a question exists nothing draws attention to what it will need, so no score can keep that.

    Parameters
    ----------
    window, max_blocks, threshold : as ``models.runner.policy.Policy``; None leaves the stack's own

    References
    ----------
    The published methods that prune by attention before the question is known; measured in docs/kv.md.
    """

    label: str
    window: int | None = None
    max_blocks: int | None = None
    threshold: float | None = None
    needs: frozenset[str] = frozenset({"policy_of"})

    @property
    def name(self) -> str:
        return f"{self.label}@kv"

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        changed: dict[str, Any] = {"window": self.window, "max_blocks": self.max_blocks, "threshold": self.threshold}
        given = {name: value for name, value in changed.items() if value is not None}

        def pruned(inner: Callable[[Query], Policy]) -> Callable[[Query], Policy]:
            def policy_of(query: Query) -> Policy:
                policy = inner(query)
                return replace(policy, host_blocks=0, **given) if ctx.affects(self.name, query.id) else policy

            return policy_of

        return wrapping.attribute(stack, "policy_of", pruned)
