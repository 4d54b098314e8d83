"""Keys that are not the same twice, or the same for two values. A finished key (``sealed``) is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from testbed.caches.keys import blake3_bytes, encode, published_before
from testbed.caches.rekeyed import Rekeyed
from testbed.caches.signature import signature
from testbed.core import digest
from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.stacks import wrapping

Turns = Literal["process", "modified", "release", "dtype", "request"]


def _is_open(key: Key) -> bool:
    """Whether the key builder below still has something to build."""
    return not key.get("sealed")


def _embedded(stack: Any, text: str) -> Any:
    """(dim,) float32, as the encoder in force makes it of a bare question."""
    return stack.encoder.encode([text], "query")[0]


@dataclass(frozen=True, slots=True)
class KeyTurns:
    """A part of the key changes though nothing that the value depends on has: the entry is there and is not found.

    - ``process``: a built-in hash, salted per process; requests go round ``n`` workers
    - ``modified``: a time stamp of the request, a file or a page
    - ``release``: the wording of the prompt, touched up every ``n`` seconds
    - ``request``: a hash of the whole request, put before the search for near ones, which then has nothing to search in
    - ``dtype``: the bytes of the question's vector, which one of two workers holds in half precision

    References
    ----------
    litellm #29086 (a hash of the request as a filter), LMCache #2979 (hash of None per process), llama_index PR #21462
    (last_modified in the hash), daimon #367 (the wording of a prompt), langgraph #8009 and agent-framework PR #8629
    (bytes of an array without their dtype).
    """

    turns: Turns
    layer: str = "answer"
    n: int = 8

    @property
    def name(self) -> str:
        return f"key-turns-with-{self.turns}@{self.layer}"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({f"layers.{self.layer}"}) | ({"encoder"} if self.turns == "dtype" else set())

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def turned(key: Key) -> Key:
            second = int(ctx.now())
            if self.turns == "process":
                return key.replace(process=str(second % self.n))
            if self.turns == "modified":
                return key.replace(modified=str(second))
            if self.turns == "release":
                return key.replace(prompt=f"{key.get('prompt')}, release {second // self.n}")
            if self.turns == "request":
                return key.replace(request=digest.of_text(key.get("text")))
            vector = _embedded(stack, key.get("text"))
            return key.replace(vector=published_before(vector.astype(np.float16 if second % 2 else np.float32)))

        def rekey(key: Key) -> Key:
            return turned(key) if _is_open(key) and ctx.affects(self.name, key.get("text")) else key

        return wrapping.cache(stack, self.layer, lambda inner: Rekeyed(inner, rekey))


@dataclass(frozen=True, slots=True)
class WeakHash:
    """The key is a hash that is cut to so few bits that two of them meet.

    ``bits`` is the knob: n entries meet about n * n / 2 ** (bits + 1) times. The published reports cut at 32 and 64,
    where it takes an attacker or a large cache; 8 bits show on a few hundred entries what they do on billions.

    References
    ----------
    mastra #17900 (32 bits), drift #431 (64 bits), vllm GHSA-rm76-4mrf-v9r8 (a hash that can be predicted).
    """

    bits: int = 8
    layer: str = "answer"

    @property
    def name(self) -> str:
        return f"hash-of-{self.bits}-bits@{self.layer}"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({f"layers.{self.layer}"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def rekey(key: Key) -> Key:
            if not _is_open(key) or not ctx.affects(self.name, key.get("text")):
                return key
            whole = int.from_bytes(blake3_bytes(encode(dict(key.parts)), 8), "big")
            return Key.of(text="", hash=str(whole >> (64 - self.bits)))

        return wrapping.cache(stack, self.layer, lambda inner: Rekeyed(inner, rekey))


@dataclass(frozen=True, slots=True)
class RawTextKey:
    """The text goes into the store's key as it is; the store refuses a key that is too long, and nobody looks.

    References
    ----------
    langchain #29496: keys that are not hashed are invalid for some texts.
    """

    layer: str = "answer"
    limit_bytes: int = 48

    @property
    def name(self) -> str:
        return f"raw-text-key@{self.layer}"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({f"layers.{self.layer}"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def refused(key: Key) -> bool:
            too_long = len(key.get("text").encode("utf-8", "surrogatepass")) > self.limit_bytes
            return too_long and _is_open(key) and ctx.affects(self.name, key.get("text"))

        return wrapping.cache(stack, self.layer, lambda inner: _Refusing(inner, refused))


class _Refusing:
    def __init__(self, inner: Cache, refused: Callable[[Key], bool]) -> None:
        self._inner = inner
        self._refused = refused

    def get(self, key: Key) -> Any | None:
        return None if self._refused(key) else self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        if not self._refused(key):
            self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> _Refusing:
        return _Refusing(self._inner.fresh(), self._refused)


@dataclass(frozen=True, slots=True)
class PublishedSignature:
    """The key is the published signature: norm of the question's vector, BLAKE3 of the text, whole seconds as salt.

    The salt makes every key new after at most a second; ``salted`` False leaves it out, and what is left says neither
    who asks nor in which state the corpus is.

    References
    ----------
    ``caches.signature``; the published scheme of incremental signatures.
    """

    salted: bool = True
    layer: str = "answer"
    needs: frozenset[str] = frozenset({"layers.answer", "encoder"})

    @property
    def name(self) -> str:
        return "published-signature" if self.salted else "published-signature-without-salt"

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def rekey(key: Key) -> Key:
            text = key.get("text")
            if not _is_open(key) or not ctx.affects(self.name, text):
                return key
            now_s = ctx.now() if self.salted else 0.0
            return Key.of(text="", signature=signature(_embedded(stack, text), text, now_s))

        return wrapping.cache(stack, self.layer, lambda inner: Rekeyed(inner, rekey))
