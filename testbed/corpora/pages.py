"""Long pages with a few facts between much else: what a pruned KV cache loses. Each fact is one word of its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from testbed.core import digest, seeds
from testbed.core.types import Doc, Gold, Query, Revision

TENANTS = ("acme", "birch", "cedar")
KEYS = ("archive", "billing", "export", "gateway", "login", "mailer", "printer", "queue", "scheduler", "search")
VALUES = ("eight", "five", "forty", "four", "nine", "seven", "six", "sixty", "ten", "thirty", "three", "two")
WORDS = tuple(
    """
    after all and any are back before begin both call change check clear close each early end every fall few file
    find first follow for from give go half hand have hold in keep know last late leave line list log long look
    made many mark may meet more move much name near need next no note now of off old on once one open order other
    over own page part pass place plan put read rest run same say see set show side small so some start state
    still stop take tell than that the then they this time to turn two under until up use wait way week well what
    when where which while will with word work write year
    """.split()  # noqa: SIM905
)
LENGTH = 512


@dataclass(frozen=True)
class PageCorpus:
    """Implements ``core.ports.Corpus``: one page a tenant, every key in it once, at depths of the seed's choice."""

    name: str = "pages"
    revisions: tuple[Revision, ...] = ()
    glossary: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    canaries: Mapping[str, str] = field(default_factory=dict)
    lexicon: Mapping[str, Any] | None = None

    @cached_property
    def _facts(self) -> Mapping[str, Mapping[str, str]]:
        """Per tenant, the value of each key in the order in which the page has them."""
        out = {}
        for tenant in TENANTS:
            draw = seeds.stream(0, "pages", tenant)
            order = list(KEYS)
            draw.shuffle(order)
            out[tenant] = {key: VALUES[draw.randrange(len(VALUES))] for key in order}
        return out

    @cached_property
    def docs(self) -> tuple[Doc, ...]:
        found = []
        for tenant, facts in self._facts.items():
            draw = seeds.stream(0, "pages", "words", tenant)
            words = [WORDS[draw.randrange(len(WORDS))] for _ in range(LENGTH)]
            for place, (key, value) in enumerate(facts.items()):
                low, high = (LENGTH * (place + at) // len(KEYS) for at in (0, 1))
                words[draw.randrange(low, high)] = f"{key}={value}"
            found.append(Doc(f"{tenant}-page", " ".join(words), tenant, kind="page"))
        return tuple(sorted(found, key=lambda d: d.id))

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        return tuple(Query(f"{t}-{key}", f"what of {key}?", t) for t in TENANTS for key in KEYS)

    @cached_property
    def topics(self) -> Mapping[str, str]:
        """How deep in its page the fact lies, in tenths."""
        return {f"{t}-{k}": f"depth-{at}" for t, facts in self._facts.items() for at, k in enumerate(facts)}

    @cached_property
    def subjects(self) -> Mapping[str, str]:
        return {q.id: q.id for q in self.queries}

    @cached_property
    def digest(self) -> str:
        return digest.of_parts([*((d.id, d.text) for d in self.docs), *((q.id, q.text) for q in self.queries)])

    def gold(self, op: int, query: Query, versions: Mapping[str, int]) -> Gold:
        value = self._facts[query.tenant][query.id.partition("-")[2]]
        return Gold(op, query.id, query.tenant, query.id, {f"{query.tenant}-page": 1}, (value,))
