"""What a stack is built from. A user's own ``build(parts) -> Stack`` gets the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.core.clock import Clock
from testbed.core.ports import Cache, Encoder, Index


@dataclass(frozen=True, slots=True)
class Parts:
    """Services and settings of one arm; the names in it are this arm's alone.

    Parameters
    ----------
    redis : client of a Redis-protocol server (bytes in, bytes out)
    namespace : prefix of every key that the stack may write, ends with ":"
    clock : logical time
    encoder : name of the encoder that is in force at the start
    build_encoder : name -> encoder
    new_index : an empty index of the store that was asked for
    glossary : per tenant, what its words stand for
    learn : (array, what made it, what it was made of): how the trace calls an array of the stack's own making
    traced : wraps one tier of a cache so that the trace shows which tier served
    """

    redis: Any
    namespace: str
    clock: Clock
    encoder: str
    build_encoder: Callable[[str], Encoder]
    new_index: Callable[[], Index]
    glossary: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    traced: Callable[[str, Cache], Cache] = lambda layer, cache: cache
    learn: Callable[[Any, str, str], None] = lambda array, made_by, made_of: None
