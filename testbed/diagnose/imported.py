"""What the spans of a real service tell: hit rates, suspicious answers, ranking and staleness.

No fault was injected and no arm replayed, so nothing here is proof: a suspicion names the requests to look at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any, NamedTuple

from testbed.metrics.ranking import reciprocal_rank
from testbed.record.spans import Span

TENANTS = ("tenant.id", "tenant", "tenant_id", "user.id", "session.id")  # the first that a trace has
SHORT = 24  # characters: "Yes." or "I do not know." of two users is no suspicion
_CACHE = re.compile(r"(^|[._])cache([._]hit|[._]status|hit)$|(^|[._])cached$", re.IGNORECASE)
_DOCUMENT = re.compile(r"retrieval\.documents\.(\d+)\.document\.(id|content)$")
# What each kind of suspicion means, in the order of how much it should worry.
KINDS = {
    "shared": "one answer, word for word, to several tenants who asked the same and for whom nothing was retrieved",
    "old": "an answer repeated after a document that it was read from had changed",
    "unsure": "one question of one tenant with several answers, though nothing it retrieved has changed",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One trace: who asked what and got what, and what was retrieved for it."""

    where: str
    trace: str
    start_ns: int
    tenant: str
    question: str
    answer: str
    ranking: tuple[str, ...]
    contents: Mapping[str, str]
    kinds: frozenset[str]
    caches: tuple[tuple[str, bool], ...]


class Suspicion(NamedTuple):
    """``kind`` as in ``KINDS``; ``requests`` are the traces, oldest first."""

    kind: str
    story: str
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What to hold the spans against: texts by document, and relevance by question text."""

    texts: Mapping[str, str] = field(default_factory=dict)
    relevant: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """
    Parameters
    ----------
    hits : by layer, (hits, lookups), where spans carry an attribute such as ``cache.hit``
    without_model, without_retrieval : requests that were answered without an LLM or a RETRIEVER span; None where no
        request has one, so that nothing follows from its absence
    mrr : MRR@5 over the requests whose question the corpus knows (``ranked``); NaN without a corpus
    stale : of ``compared`` retrieved passages, those that are not (a part of) the document's text now
    """

    requests: int
    spans: int
    tenants: int
    hits: Mapping[str, tuple[int, int]]
    without_model: int | None
    without_retrieval: int | None
    suspicions: tuple[Suspicion, ...]
    mrr: float = nan
    ranked: int = 0
    stale: int = 0
    compared: int = 0
    unknown: int = 0


def read_requests(spans: Sequence[Span], tenant: str = "") -> list[Request]:
    """One request a trace, oldest first. ``tenant``: the attribute that says who asks, else one of ``TENANTS``."""
    by_trace: dict[str, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace, []).append(span)
    found = [_request(sorted(group, key=lambda s: s.start_ns), tenant) for group in by_trace.values()]
    return sorted((r for r in found if r is not None), key=lambda r: (r.start_ns, r.trace))


def judge(requests: Sequence[Request], n_spans: int, corpus: Corpus | None = None) -> Imported:
    hits: dict[str, tuple[int, int]] = {}
    for request in requests:
        for layer, hit in request.caches:
            before = hits.get(layer, (0, 0))
            hits[layer] = before[0] + hit, before[1] + 1
    suspicions = [*_shared(requests), *_old(requests), *_unsure(requests)]
    held = {} if corpus is None else _against(requests, corpus)
    return Imported(
        requests=len(requests),
        spans=n_spans,
        tenants=len({r.tenant for r in requests if r.tenant}),
        hits=dict(sorted(hits.items())),
        without_model=_without(requests, "LLM"),
        without_retrieval=_without(requests, "RETRIEVER"),
        suspicions=tuple(suspicions),
        **held,
    )


def _request(spans: Sequence[Span], tenant: str) -> Request | None:
    if all(span.kind == "EMBEDDING" for span in spans):
        return None  # a document that was indexed
    ids = {span.span for span in spans}
    roots = [s for s in spans if s.parent not in ids and s.text("input.value")]
    root = next(iter(roots), None) or next((s for s in spans if s.text("input.value")), None)
    if root is None:
        return None
    ranking: list[str] = []
    contents: dict[str, str] = {}
    for span in spans:
        if span.kind in ("RETRIEVER", ""):
            for doc_id, content in _documents(span):
                if doc_id not in ranking:
                    ranking.append(doc_id)
                contents[doc_id] = content
    return Request(
        where=root.where,
        trace=root.trace,
        start_ns=spans[0].start_ns,
        tenant=_tenant(spans, tenant),
        question=_plain(root.text("input.value")),
        answer=_plain(root.text("output.value")),
        ranking=tuple(ranking),
        contents=contents,
        kinds=frozenset(span.kind for span in spans),
        caches=tuple(found for span in spans for found in _caches(span)),
    )


def _documents(span: Span) -> list[tuple[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for name, value in span.attributes.items():
        if match := _DOCUMENT.match(name):
            found.setdefault(int(match[1]), {})[match[2]] = str(value)
    return [(doc["id"], doc.get("content", "")) for _, doc in sorted(found.items()) if "id" in doc]


def _tenant(spans: Sequence[Span], asked: str) -> str:
    for name in (asked,) if asked else TENANTS:
        for span in spans:
            value = span.attributes.get(name, _metadata(span).get(name))
            if value not in (None, ""):
                return str(value)
    return ""


def _metadata(span: Span) -> Mapping[str, Any]:
    """OpenInference keeps a user's own fields as JSON text under ``metadata``."""
    try:
        found = json.loads(span.text("metadata") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _plain(text: str) -> str:
    """The words of an input or output that was recorded as JSON, where one field of it is plainly the text."""
    if text[:1] == "{":
        try:
            value = json.loads(text)
        except ValueError:
            return text
        for name in ("query", "query_str", "question", "input", "answer", "result", "response", "output", "text"):
            if isinstance(value, dict) and isinstance(value.get(name), str):
                return str(value[name])
    return text


def _caches(span: Span) -> Iterable[tuple[str, bool]]:
    for name, value in span.attributes.items():
        if _CACHE.search(name):
            layer = (span.kind or span.name or "cache").lower()
            yield layer, value is True or str(value).lower() in ("true", "hit", "1")


def _without(requests: Sequence[Request], kind: str) -> int | None:
    lacking = sum(kind not in r.kinds for r in requests)
    return lacking if lacking < len(requests) else None


# -- suspicions --------------------------------------------------------------------------------------------------------


def _shared(requests: Sequence[Request]) -> list[Suspicion]:
    groups: dict[tuple[str, str], list[Request]] = {}
    for r in requests:
        if r.tenant and len(r.answer) >= SHORT:
            groups.setdefault((_same(r.question), r.answer), []).append(r)
    out = []
    for (_, answer), group in groups.items():
        first = group[0]
        later = [r for r in group[1:] if r.tenant != first.tenant and not r.ranking]
        if later:
            names = ", ".join(dict.fromkeys(r.tenant for r in later))
            story = (
                f"{_short(first.question)} of {names} was answered, without a retrieval, with the answer that "
                f"{first.tenant} had got before: {_short(answer)}"
            )
            out.append(Suspicion("shared", story, (first.trace, *(r.trace for r in later))))
    return out


def _old(requests: Sequence[Request]) -> list[Suspicion]:
    seen: dict[str, tuple[str, int]] = {}  # by document, its newest content and since when it was seen
    made: dict[tuple[str, str, str], Request] = {}
    out: dict[tuple[str, str, str], Suspicion] = {}
    for r in requests:
        for doc_id, content in r.contents.items():
            if content and seen.get(doc_id, ("", 0))[0] != content:
                seen[doc_id] = content, r.start_ns
        key = r.tenant, _same(r.question), r.answer
        origin = made.get(key)
        if r.ranking:
            made[key] = r
        elif origin is not None:
            changed = [i for i, text in origin.contents.items() if text and seen[i][0] != text]
            if changed and key not in out:
                story = f"{_short(r.question)} got the answer read from {', '.join(changed)} before it changed: "
                out[key] = Suspicion("old", story + _short(r.answer), (origin.trace, r.trace))
    return list(out.values())


def _unsure(requests: Sequence[Request]) -> list[Suspicion]:
    groups: dict[tuple[str, str], list[Request]] = {}
    for r in requests:
        if r.answer:
            groups.setdefault((r.tenant, _same(r.question)), []).append(r)
    out = []
    for (tenant, _), group in groups.items():
        answers = dict.fromkeys(r.answer for r in group)
        texts: dict[str, set[str]] = {}
        for r in group:
            for doc_id, content in r.contents.items():
                texts.setdefault(doc_id, set()).add(content)
        if len(answers) > 1 and all(len(found) == 1 for found in texts.values()):
            whose = f" of {tenant}" if tenant else ""
            story = f"{_short(group[0].question)}{whose} has {len(answers)} answers: "
            story += " and ".join(_short(a, 40) for a in list(answers)[:2])
            out.append(Suspicion("unsure", story, tuple(r.trace for r in group)))
    return out


# -- with the corpus ---------------------------------------------------------------------------------------------------


def _against(requests: Sequence[Request], corpus: Corpus) -> dict[str, Any]:
    known = {_same(question): relevant for question, relevant in corpus.relevant.items()}
    gains, stale, compared, unknown = [], 0, 0, 0
    for r in requests:
        relevant = known.get(_same(r.question))
        if relevant is not None and r.ranking:
            gains.append(reciprocal_rank(r.ranking, relevant, 5))
        for doc_id, content in r.contents.items():
            if doc_id not in corpus.texts:
                unknown += 1
            elif content:
                compared += 1
                stale += _same(content) not in _same(corpus.texts[doc_id])
    mrr = sum(gains) / len(gains) if gains else nan
    return {"mrr": mrr, "ranked": len(gains), "stale": stale, "compared": compared, "unknown": unknown}


def _same(text: str) -> str:
    return " ".join(text.split()).casefold()


def _short(text: str, limit: int = 70) -> str:
    line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return '"' + (line if len(line) <= limit else line[: limit - 1] + "…") + '"'
