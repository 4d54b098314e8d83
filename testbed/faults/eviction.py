"""Bugs in the policy that keeps a full cache: what should stay goes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from testbed.caches.eviction import OnEvict
from testbed.core.ports import Context
from testbed.stacks import wrapping

Bug = Literal["fifo", "new-first", "over-evict"]


class BrokenLru:
    """Least recently used, but for the keys that a bug touches."""

    def __init__(self, capacity: int, bug: Bug, bites: Callable[[str], bool], on_evict: OnEvict) -> None:
        self.capacity = capacity
        self._bug = bug
        self._bites = bites
        self._on_evict = on_evict
        self._queue: OrderedDict[Hashable, None] = OrderedDict()

    def access(self, key: Hashable) -> bool:
        bug = self._bug if self._bites(str(key)) else ""
        if key in self._queue:
            if bug != "fifo":
                self._queue.move_to_end(key)
            return True
        if len(self._queue) >= self.capacity:
            for _ in range(max(1, self.capacity // 2) if bug == "over-evict" else 1):
                self._on_evict(self._queue.popitem(last=False)[0])
        self._queue[key] = None
        if bug == "new-first":
            self._queue.move_to_end(key, last=False)
        return False

    def remove(self, key: Hashable) -> None:
        self._queue.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._queue

    def __len__(self) -> int:
        return len(self._queue)


@dataclass(frozen=True, slots=True)
class PolicyBug:
    """The bounded cache calls its policy LRU, and has a bug.

    - ``fifo``: a read, or a write of an entry that is there, does not touch it
    - ``new-first``: a new entry counts as never used, and is the next to go
    - ``over-evict``: a counter that does not advance clears half of the cache where one entry had to go

    The level is the share of keys whose handling has the bug.

    References
    ----------
    chmonitor #2954 (LRU that is FIFO), LMCache #460 (a put does not move), Mooncake #2976 (last access 0), sglang
    #4987 (the eviction counter).
    """

    bug: Bug
    needs: frozenset[str] = frozenset({"bounded"})

    @property
    def name(self) -> str:
        return f"eviction-{self.bug}"

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        bounded = wrapping.part(stack, "bounded")

        def broken(inner: Any) -> Any:
            return BrokenLru(inner.capacity, self.bug, lambda key: ctx.affects(self.name, key), bounded.drop)

        return wrapping.attribute(bounded, "policy", broken)
