"""A bad value that is taken for a good one, and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from testbed.core.ports import Cache, Context, Passage, Reader
from testbed.core.types import Answer, Key, Query
from testbed.stacks import wrapping

ERROR_PAGE = "upstream connect error or disconnect/reset before headers"  # as a proxy says it
_SHOWN = 0.4  # share of an answer that arrives before the connection breaks


@dataclass(frozen=True, slots=True)
class FailedCallCached:
    """The first call of the reader for a question fails; the caller sees it and asks again, and the cache answers.

    The status of the failed call is not stored with its body, so the caller takes what comes back for an answer. The
    ``share`` of the questions have a first call that fails at level 1; the level scales it.

    Parameters
    ----------
    how : ``error``: the body is an error page. ``truncated``: the connection broke and the body is the first part

    References
    ----------
    vllm-project/semantic-router #2130: a non-2xx response is cached and replayed as 200.
    """

    how: Literal["error", "truncated"] = "error"
    share: float = 0.4
    needs: frozenset[str] = frozenset({"layers.answer", "reader", "ask"})

    @property
    def name(self) -> str:
        return f"failed-call-cached@{self.how}"

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with wrapping.attribute(stack, "reader", lambda inner: Failing(inner, ctx, self)):

            def again(ask: Callable[[Query], Answer]) -> Callable[[Query], Answer]:
                def asked(query: Query) -> Answer:
                    stack.reader.failed = False
                    answer = ask(query)
                    return ask(query) if stack.reader.failed else answer

                return asked

            with wrapping.attribute(stack, "ask", again):
                yield


class Failing:
    """A reader whose first call for some questions fails. ``failed`` is what the status line says."""

    def __init__(self, inner: Reader, ctx: Context, fault: FailedCallCached) -> None:
        self._inner = inner
        self._ctx = ctx
        self._fault = fault
        self._called: set[tuple[str, str]] = set()
        self.failed = False

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, question: str, passages: Sequence[Passage], linked: Mapping[str, Passage]) -> Answer:
        answer = self._inner.read(question, passages, linked)
        asker = self._ctx.asker()
        called = ("" if asker is None else asker.tenant, question)
        if called in self._called or not self._ctx.affects(self._fault.name, ":".join(called), share=self._fault.share):
            return answer
        self._called.add(called)
        self.failed = True
        if self._fault.how == "error":
            return replace(answer, text=ERROR_PAGE, abstained=False)
        return answer if answer.abstained else replace(answer, text=cut(answer.text))


def cut(text: str) -> str:
    """The first words of a text, as far as they came."""
    words = text.split()
    return " ".join(words[: max(1, round(len(words) * _SHOWN))])


@dataclass(frozen=True, slots=True)
class DrainedStream:
    """What is cached is the stream of an answer and not its text: who asked first has drained it.

    The first asker gets the answer, everybody after gets nothing. The level is the share of questions.

    References
    ----------
    ajndkr/lanarky #146: the second request for a streamed response is empty.
    """

    name: str = "drained-stream"
    needs: frozenset[str] = frozenset({"layers.answer"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def drained(key: Key) -> bool:
            return ctx.affects(self.name, key.get("text"))

        return wrapping.cache(stack, "answer", lambda inner: Drained(inner, drained))


class Drained:
    def __init__(self, inner: Cache, drained: Callable[[Key], bool]) -> None:
        self._inner = inner
        self._drained = drained

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, {**value, "text": ""} if self._drained(key) else value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> Drained:
        return Drained(self._inner.fresh(), self._drained)
