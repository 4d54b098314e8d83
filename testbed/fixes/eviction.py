"""Another policy for a full cache."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Context
from testbed.fixes.given import POLICIES
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class RightPolicy:
    """The bounded cache is kept by a policy of this package, checked against a model of itself.

    Costs what the policy does: a list (``lru``, ``lfu``), a bit an entry (``sieve``), ghosts (``s3-fifo``) or a sketch
    (``w-tinylfu``).
    """

    policy: str = "lru"
    needs: frozenset[str] = frozenset({"bounded"})

    @property
    def name(self) -> str:
        return f"right-{self.policy}"

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        bounded = wrapping.part(stack, "bounded")
        make = POLICIES[self.policy]
        return wrapping.attribute(bounded, "policy", lambda inner: make(inner.capacity, on_evict=bounded.drop))
