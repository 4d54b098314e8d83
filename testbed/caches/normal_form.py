"""The published second level: questions that share their stems, after synonyms, share an entry."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from testbed.core.errors import InvalidInput
from testbed.core.ports import Cache
from testbed.core.types import Key


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORD = re.compile(r"[a-z0-9]+(?:\.[0-9]+)*")
# The usual list of words that carry little in search; in a question some of them carry everything.
_STOP = _set(
    """a an the of to in on at by for from with and or is are was were be been am do does did has have had not no i you
    he she it we they my your our their this that these those what which who whom where when why how can could may
    might must shall should will would if as so than then there any some all"""
)
_SYNONYMS = {
    "purchase": "buy",
    "order": "buy",
    "book": "buy",
    "acquire": "buy",
    "cost": "price",
    "fee": "price",
    "charge": "price",
    "end": "cancel",
    "stop": "cancel",
    "terminate": "cancel",
    "begin": "start",
    "fix": "repair",
    "automobile": "car",
    "phone": "telephone",
    "mobile": "telephone",
    "maximum": "large",
    "size": "large",
}
_PHRASES = (("airline ticket", "flight"), ("plane ticket", "flight"), ("sign off", "approve"))
_ENDINGS = ("ations", "ation", "ings", "ing", "edly", "ed", "ies", "ers", "er", "es", "ly", "ment", "s")


def normal_form(text: str) -> str:
    """Lower case, phrases and synonyms replaced, stop words dropped, the rest cut to stems and sorted.

    What is lost on the way: word order, negation, and every ending. "enable" and "disable" stay apart, "include" and
    "do not include" do not.
    """
    low = text.lower()
    for phrase, word in _PHRASES:
        low = low.replace(phrase, word)
    words = [word for word in _WORD.findall(low) if word not in _STOP]
    return " ".join(sorted({stem(_SYNONYMS.get(word, _SYNONYMS.get(stem(word), word))) for word in words}))


def stem(word: str) -> str:
    """The word less the longest known ending that leaves three letters; numbers stay whole."""
    if not word.isalpha():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


class ClusterCache:
    """A cache whose entries serve every text of one normal form: the published L2 with its intent clusters.

    A cluster learns its texts as they are put, at most ``most`` of them: one more starts over with itself alone.
    ``put`` waits in a batch of ``batch`` before it reaches the cache inside (the published asynchronous merge);
    ``flush`` brings it there at once. ``delete`` of a text forgets its whole cluster.
    """

    def __init__(self, inner: Cache, *, most: int = 200, batch: int = 1) -> None:
        if most < 1 or batch < 1:
            raise InvalidInput(f"most={most}, batch={batch} must be >= 1 (ClusterCache)")
        self.inner = inner
        self._most = most
        self._batch = batch
        self._waiting: list[tuple[Key, Any, float | None]] = []
        self._texts: dict[Key, set[str]] = defaultdict(set)

    def get(self, key: Key) -> Any | None:
        return self.inner.get(self._shared(key))

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        # what is held for the cluster now is older than this value and may not be served after it
        self.inner.delete(self._shared(key))
        self._waiting.append((key, value, ttl_s))
        if len(self._waiting) >= self._batch:
            self.flush()

    def delete(self, key: Key) -> None:
        shared = self._shared(key)
        self._waiting = [item for item in self._waiting if self._shared(item[0]) != shared]
        self._texts.pop(shared, None)
        self.inner.delete(shared)

    def flush(self) -> None:
        """Merge what waits, in the order in which it came."""
        waiting, self._waiting = self._waiting, []
        for key, value, ttl_s in waiting:
            shared = self._shared(key)
            texts = self._texts[shared]
            texts.add(key.get("text"))
            if len(texts) > self._most:
                self._texts[shared] = {key.get("text")}
            self.inner.put(shared, value, ttl_s=ttl_s)

    def cluster(self, key: Key) -> tuple[str, ...]:
        """The texts that were merged under this key, sorted."""
        return tuple(sorted(self._texts.get(self._shared(key), ())))

    def fresh(self) -> ClusterCache:
        return ClusterCache(self.inner.fresh(), most=self._most, batch=self._batch)

    @staticmethod
    def _shared(key: Key) -> Key:
        return key.replace(text=normal_form(key.get("text")))
