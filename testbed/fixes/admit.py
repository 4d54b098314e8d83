"""Fixes that look at a value before a cache may keep it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.stacks import wrapping

_WORD = re.compile(r"\w{4,}")
_LEAST_READ = 0.5  # share of an answer's words that its sources must have
_FEW = 3  # an answer of fewer words is not judged by them


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """Only complete, successful answers are admitted, and what is served is looked at once more.

    An answer must say something, in whole sentences, in words of what it was read from. Costs one pass over the answer
    and its sources at each admission and each hit, and the hits of right answers that look unfinished.
    """

    name: str = "admission-check"
    needs: frozenset[str] = frozenset({"layers.answer"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.cache(stack, "answer", lambda inner: Admitting(inner, ctx))


class Admitting:
    def __init__(self, inner: Cache, ctx: Context) -> None:
        self._inner = inner
        self._ctx = ctx

    def get(self, key: Key) -> Any | None:
        value = self._inner.get(key)
        why = "" if value is None else flaw(value)
        if not why:
            return value
        self._ctx.reject("answer", key, why)
        self._inner.delete(key)
        return None

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        if flaw(value):
            self._inner.delete(key)  # and not what stood there before
        else:
            self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> Admitting:
        return Admitting(self._inner.fresh(), self._ctx)


def flaw(value: Mapping[str, Any]) -> str:
    """Why an answer must not be kept; "" when it may."""
    text = str(value["text"]).strip()
    if value["abstained"]:
        return ""
    if not text:
        return "it is empty"
    words = _WORD.findall(text.lower())
    read = set(_WORD.findall(" ".join(str(s[2]) for s in value["sources"]).lower()))
    if len(words) >= _FEW and sum(w in read for w in words) < _LEAST_READ * len(words):
        return "it was not read from its sources"
    return "" if text[-1] in ".!?…\"')]" else "it stops in the middle of a sentence"
