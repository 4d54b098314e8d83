"""Prompts that share their beginnings: tenants with the same handbook and pages, one adapter, and an experiment on it.

The texts are the same for all tenants, word for word, which is when a prefix cache shares. What may differ is who asks
and which weights answer. What the right answer is, only a model can say that reads the whole prompt anew: ``answer``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from testbed.core import digest
from testbed.core.types import Doc, Gold, Query, Revision

ADAPTER = "sales"
ADAPTER_DOC = f"adapter-{ADAPTER}"
RELOADED = "reload"  # drift of a revision of the adapter: new weights under the old name


class Client(NamedTuple):
    """What a tenant's requests carry: a cache salt, and in which sessions the adapter is asked for."""

    salt: str
    uses_adapter: Callable[[str], bool]


def _odd(session: str) -> bool:
    return session[-1:] in "13579"


# ``sales`` is a tenant, and the name of an adapter. ``cedar`` sends no salt. The other two try the adapter out: half of
# their sessions are answered by it.
CLIENTS: Mapping[str, Client] = {
    "acme": Client("acme", _odd),
    "birch": Client("birch", _odd),
    "cedar": Client("", lambda session: True),
    "sales": Client("sales", lambda session: False),
}
HANDBOOK = (
    "You answer for the support desk. Use the page below and nothing else. Say the value first, then where it stands "
    "in the page. What it does not say, you do not say."
)
PAGE = (
    "The {thing} waits {wait} seconds for an answer and then tries {tries} times more. After the last one it tells "
    "{who} and writes a line to the {log} log. Its owner is {owner}."
)
QUESTIONS = ("How long does the {thing} wait for an answer?", "What does the {thing} do after the last one?")
THINGS = (
    ("gateway", "ten", "three", "nobody", "access", "the network team"),
    ("mailer", "sixty", "nine", "the sender", "mail", "the office team"),
    ("printer", "five", "two", "the user", "print", "the office team"),
    ("scheduler", "thirty", "one", "the operator", "job", "the platform team"),
    ("archive", "ninety", "four", "the operator", "backup", "the storage team"),
    ("billing", "twenty", "six", "the accountant", "audit", "the finance team"),
    ("login", "eight", "five", "the user", "access", "the security team"),
    ("search", "two", "three", "nobody", "query", "the platform team"),
    ("export", "forty", "two", "the sender", "job", "the finance team"),
    ("queue", "seven", "eight", "the operator", "job", "the storage team"),
)
_FIELDS = ("thing", "wait", "tries", "who", "log", "owner")
_ADAPTER_TEXTS = ("sales adapter, first weights", "sales adapter, second weights", "sales adapter, third weights")


@dataclass(frozen=True)
class PromptCorpus:
    """Implements ``core.ports.Corpus``. ``answer(query, versions)`` is what the model says without any cache."""

    answer: Callable[[Query, Mapping[str, int]], str]
    name: str = "prompts"
    topics: Mapping[str, str] = field(default_factory=dict)
    glossary: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    canaries: Mapping[str, str] = field(default_factory=dict)
    lexicon: Mapping[str, Any] | None = None

    @cached_property
    def docs(self) -> tuple[Doc, ...]:
        found = [Doc(ADAPTER_DOC, _ADAPTER_TEXTS[0], kind="adapter", title=ADAPTER)]
        for tenant in CLIENTS:
            found.append(Doc(f"{tenant}-handbook", HANDBOOK, tenant, kind="handbook"))
            for row in THINGS:
                text = PAGE.format(**dict(zip(_FIELDS, row, strict=True)))
                found.append(Doc(f"{tenant}-{row[0]}", text, tenant, kind="page", title=row[0]))
        return tuple(sorted(found, key=lambda d: d.id))

    @cached_property
    def revisions(self) -> tuple[Revision, ...]:
        return tuple(
            Revision(Doc(ADAPTER_DOC, text, version=version, kind="adapter", title=ADAPTER), RELOADED)
            for version, text in enumerate(_ADAPTER_TEXTS[1:], start=2)
        )

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        return tuple(
            Query(f"{tenant}-{row[0]}-{n}", text.format(thing=row[0]), tenant)
            for tenant in CLIENTS
            for row in THINGS
            for n, text in enumerate(QUESTIONS)
        )

    @cached_property
    def subjects(self) -> Mapping[str, str]:
        return {q.id: q.id.partition("-")[2] for q in self.queries}

    @cached_property
    def digest(self) -> str:
        docs = (*self.docs, *(r.doc for r in self.revisions))
        return digest.of_parts(
            [*((f"{d.id}@{d.version}", d.text) for d in docs), *((q.id, q.text) for q in self.queries)]
        )

    def gold(self, op: int, query: Query, versions: Mapping[str, int]) -> Gold:
        page = page_of(query.text)
        accept = (self.answer(query, versions),)
        return Gold(op, query.id, query.tenant, self.subjects[query.id], {f"{query.tenant}-{page}": 1}, accept)


def page_of(question: str) -> str:
    """The page that a question is about: the thing that it names."""
    words = question.lower().replace("?", "").split()
    return next((row[0] for row in THINGS if row[0] in words), "")


def texts() -> list[str]:
    """Everything that a prompt can hold."""
    rows = [dict(zip(_FIELDS, row, strict=True)) for row in THINGS]
    return [HANDBOOK, *(PAGE.format(**r) for r in rows), *(q.format(**r) for q in QUESTIONS for r in rows)]


def adapter_text(version: int) -> str:
    """The weights of the adapter's revision, as its document says them."""
    return _ADAPTER_TEXTS[version - 1]
