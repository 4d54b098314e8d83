"""Is a cached entry still true? Four ways to decide: by age, by version, by events, and by asking a language model."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from testbed.core import digest
from testbed.core.errors import HarnessError, InvalidInput


@dataclass(frozen=True, slots=True)
class Entry:
    """What a check may know of a cache entry. Times in seconds of the run's clock.

    ``sources`` are the documents and versions that the value was made from, {} where nobody kept them.
    ``changes_per_h`` is how often data of this kind changed lately, as measured by whoever runs the cache.
    """

    key: str
    written_at_s: float
    read_at_s: float
    sources: Mapping[str, int] = field(default_factory=dict)
    data_type: str = ""
    changes_per_h: float = 0.0


class Judgment(NamedTuple):
    """``reason`` is for people; a check that cannot tell says not fresh."""

    fresh: bool
    reason: str


class Check(Protocol):
    """Decides about one entry at one moment."""

    @property
    def name(self) -> str: ...
    def judge(self, entry: Entry, now_s: float) -> Judgment: ...


@dataclass(frozen=True, slots=True)
class Ttl:
    """Fresh for ``ttl_s`` after the write, or, when ``sliding``, after the last read."""

    ttl_s: float
    sliding: bool = False

    @property
    def name(self) -> str:
        return f"ttl({'sliding' if self.sliding else 'absolute'}, {self.ttl_s:g} s)"

    def judge(self, entry: Entry, now_s: float) -> Judgment:
        age_s = now_s - (entry.read_at_s if self.sliding else entry.written_at_s)
        return Judgment(age_s < self.ttl_s, f"age {age_s:g} s of {self.ttl_s:g} s")


@dataclass(frozen=True, slots=True)
class VersionCheck:
    """Fresh while every source still has the version it was read at. Exact; costs a look at the source per read.

    ``current`` gives the version of a document now, None when it is gone. An entry without sources is not fresh.
    """

    current: Callable[[str], int | None]
    name: str = "version-check"

    def judge(self, entry: Entry, now_s: float) -> Judgment:
        if not entry.sources:
            return Judgment(False, "no provenance")
        for doc_id, version in sorted(entry.sources.items()):
            now = self.current(doc_id)
            if now != version:
                return Judgment(False, f"{doc_id} is at {now}, was read at {version}")
        return Judgment(True, "all sources unchanged")


class ProvenanceEvents:
    """Fresh until an event says that a source changed: no look at the source, and wrong for as long as events lag."""

    name = "provenance-events"

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}

    def changed(self, doc_id: str, version: int) -> None:
        """An event arrived; late and repeated ones do no harm."""
        self._latest[doc_id] = max(version, self._latest.get(doc_id, version))

    def judge(self, entry: Entry, now_s: float) -> Judgment:
        if not entry.sources:
            return Judgment(False, "no provenance")
        for doc_id, version in sorted(entry.sources.items()):
            if self._latest.get(doc_id, version) > version:
                return Judgment(False, f"{doc_id} changed to {self._latest[doc_id]}")
        return Judgment(True, "no event for any source")


class _Said(Protocol):
    @property
    def text(self) -> str: ...


class Chat(Protocol):
    """A chat endpoint (``models.llm.LlmClient`` is one); its errors are HarnessErrors. Called from several threads."""

    def chat(self, messages: Sequence[tuple[str, str]], *, max_tokens: int = ...) -> _Said: ...


_SYSTEM = (
    "You decide whether a cached value may still be served. "
    'Answer with one JSON object and nothing else: {"fresh": true or false, "reason": "one short sentence"}'
)
_NOT_YET = Judgment(False, "not judged yet")


class LlmJudge:
    """The published judge: key, last update, now, kind of data, recent change rate; ``{"fresh": bool, "reason": str}``.

    What does not come back as exactly that object (no answer, prose, a code fence, a third field, a number for a
    bool) is not fresh. Judgments are cached by everything the model was shown; ``now`` is shown in steps of ``step_s``
    so that a cached one can be found again, which makes a judgment up to that much older than the read. Failures are
    not cached.

    ``judge`` waits for the model. ``judge_later`` never does: it answers from the cache or says not fresh, and
    remembers the question for ``settle``.
    """

    def __init__(
        self, chat: Chat, model: str, *, step_s: float = 60.0, keep: int = 10_000, n_parallel: int = 4
    ) -> None:
        if step_s <= 0 or keep < 1 or n_parallel < 1:
            raise InvalidInput(f"step_s={step_s}, keep={keep}, n_parallel={n_parallel} must be > 0 (LlmJudge)")
        self.name = f"llm-judge({model})"
        self.n_asked = 0
        self.n_failed = 0
        self.why_failed = ""  # the first time
        self._chat = chat
        self._model = model
        self._step_s = step_s
        self._keep = keep
        self._n_parallel = n_parallel
        self._known: OrderedDict[str, Judgment] = OrderedDict()
        self._waiting: dict[str, str] = {}

    def judge(self, entry: Entry, now_s: float) -> Judgment:
        name, prompt = self._question(entry, now_s)
        if name not in self._known:
            self.n_asked += 1
            answer = self._ask(prompt)
            if isinstance(answer, Judgment):
                self._learn(name, answer)
                return answer
            self.n_failed += 1
            self.why_failed = self.why_failed or answer
            return Judgment(False, f"the judge failed: {answer}")
        self._known.move_to_end(name)
        return self._known[name]

    def judge_later(self, entry: Entry, now_s: float) -> Judgment:
        name, prompt = self._question(entry, now_s)
        if name in self._known:
            self._known.move_to_end(name)
            return self._known[name]
        self._waiting[name] = prompt
        return _NOT_YET

    def settle(self) -> int:
        """Ask everything that waits, several at a time; how many of them could be judged."""
        waiting, self._waiting = self._waiting, {}
        self.n_asked += len(waiting)
        with ThreadPoolExecutor(self._n_parallel) as pool:
            answers = list(pool.map(self._ask, waiting.values()))
        judged = [(n, a) for n, a in zip(waiting, answers, strict=True) if isinstance(a, Judgment)]
        for name, answer in judged:
            self._learn(name, answer)
        self.n_failed += len(waiting) - len(judged)
        return len(judged)

    def _question(self, entry: Entry, now_s: float) -> tuple[str, str]:
        prompt = prompt_for(entry, now_s - now_s % self._step_s)
        return digest.of_json([self._model, _SYSTEM, prompt]), prompt

    def _learn(self, name: str, answer: Judgment) -> None:
        self._known[name] = answer
        if len(self._known) > self._keep:
            self._known.popitem(last=False)

    def _ask(self, prompt: str) -> Judgment | str:
        """The judgment, or why there is none. Called from several threads: it counts nothing."""
        try:
            said = self._chat.chat([("system", _SYSTEM), ("user", prompt)], max_tokens=96)
        except HarnessError as error:
            return f"{type(error).__name__}: {error}"
        return parse_judgment(said.text) or f"no such object: {said.text[:80]!r}"


def prompt_for(entry: Entry, now_s: float) -> str:
    """What the model is shown of an entry: not the value, and not the source."""
    return "\n".join(
        (
            f"Key: {json.dumps(entry.key, ensure_ascii=False)}",
            f"Last update: {_moment(entry.written_at_s)}",
            f"Now: {_moment(now_s)}",
            f"Data type: {entry.data_type or 'unknown'}",
            f"Recent change rate: {entry.changes_per_h:g} per hour",
        )
    )


def parse_judgment(text: str) -> Judgment | None:
    """The one JSON object asked for, or None."""
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    if not isinstance(answer, dict) or answer.keys() != {"fresh", "reason"}:
        return None
    fresh, reason = answer["fresh"], answer["reason"]
    return Judgment(fresh, reason) if isinstance(fresh, bool) and isinstance(reason, str) else None


class Score(NamedTuple):
    """How a check did on entries whose staleness is known. NaN where there was nothing to count.

    ``recall`` is the share of stale entries called stale; ``false_stale`` that of fresh entries called stale.
    """

    n_stale: int
    n_fresh: int
    caught: int
    false_alarms: int

    @property
    def recall(self) -> float:
        return self.caught / self.n_stale if self.n_stale else float("nan")

    @property
    def false_stale(self) -> float:
        return self.false_alarms / self.n_fresh if self.n_fresh else float("nan")


class Case(NamedTuple):
    """An entry at a moment, and the truth."""

    entry: Entry
    now_s: float
    is_stale: bool


def score(check: Check, cases: Iterable[Case]) -> Score:
    """Put every case before the check."""
    told = [(case.is_stale, check.judge(case.entry, case.now_s).fresh) for case in cases]
    n_stale = sum(stale for stale, _ in told)
    caught = sum(stale and not fresh for stale, fresh in told)
    alarms = sum(not stale and not fresh for stale, fresh in told)
    return Score(n_stale, len(told) - n_stale, caught, alarms)


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
