"""How many bytes the cache entries of a stack take: what a fix costs in memory.

Counted as names, values and vectors, not as the memory of a process, which differs from one run to the next. What a
cache or a server needs to keep them in order is not counted, nor is the index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.caches import redis


def held_bytes(stack: Any, client: Any, namespace: str) -> int:
    """Bytes of the entries that the stack's caches hold now, in this process and on the server below ``namespace``.

    Attributes of the layers are followed to every part that says how many bytes it holds: a wrapper that had to pass
    the question on, and did not, would hide what is behind it.
    """
    seen, waiting = {id(stack)}, [*stack.layers.values()]
    total = redis.held_bytes(client, namespace)
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
        elif type(part).__module__.startswith("testbed."):
            if hasattr(part, "held_bytes"):
                total += part.held_bytes
            else:
                waiting += getattr(part, "__dict__", {}).values()
    return total
