"""The default workload: tenants side by side ask popular questions while documents are edited."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass

from testbed.core import seeds
from testbed.core.errors import InvalidInput
from testbed.core.ports import Corpus
from testbed.core.types import Doc, Op, Query, Upgrade, Verb
from testbed.workloads import edits as editing
from testbed.workloads.interleave import interleave
from testbed.workloads.zipf import Zipf

FIRST_WORDING = 0.6  # share of asks in the first wording; the others share the rest


@dataclass(frozen=True, slots=True)
class Stream:
    """Op 0 loads the first corpus; then ``n_asks`` asks, with edits and at most one upgrade as ops between them.

    Parameters
    ----------
    edits : kinds of drift to apply, in the order of the corpus; ``"*"`` for all; a removal is an op ``delete``
    max_edits : at most so many of them (those that touch what is asked most), None for all
    about : only ask questions with these topics; all questions where the corpus has none of them
    upgrade : encoder that is deployed at ``upgrade_at`` of the asks; "" for none
    zipf_s : exponent of the popularity of subjects; their order is the same at every tenant, so that
        word-identical questions of several tenants meet
    n_sessions : session ids are drawn from a pool of this size that all tenants share
    prompts : what the sessions ask for by name, in turn; "" the service's own prompt
    gap_s : logical seconds between ops
    """

    edits: tuple[str, ...] = ()
    max_edits: int | None = None
    about: tuple[str, ...] = ()
    upgrade: str = ""
    upgrade_at: float = 0.3
    zipf_s: float = 0.9
    n_sessions: int = 12
    prompts: tuple[str, ...] = ("",)
    gap_s: float = 1.0

    def ops(self, corpus: Corpus, seed: int, n_asks: int) -> tuple[Op, ...]:
        """The ops of a run.

        Raises
        ------
        InvalidInput : n_asks < 1, or the corpus has no questions.
        """
        if n_asks < 1:
            raise InvalidInput(f"n_asks={n_asks} must be >= 1 (QUERIES)")
        if not self.prompts or self.n_sessions < 1:
            raise InvalidInput(f"prompts={self.prompts} must not be empty, n_sessions={self.n_sessions} not below 1")
        asks = self._asks(corpus, seed, n_asks)
        before: dict[int, list[tuple[Verb, Doc | Upgrade]]] = defaultdict(list)
        if self.upgrade:
            before[min(round(n_asks * self.upgrade_at), n_asks - 1)].append(("upgrade", Upgrade(self.upgrade)))
        revisions = editing.choose(corpus, self.edits, self.max_edits, asks)
        for place, revision in zip(editing.positions(len(revisions), n_asks), revisions, strict=True):
            before[place].append(("delete" if revision.drift == editing.REMOVED else "upsert", revision.doc))
        ops = [Op(0, 0.0, "load", corpus.docs)]
        for place, query in enumerate(asks):
            for do, item in (*before[place], ("ask", query)):
                ops.append(Op(len(ops), len(ops) * self.gap_s, do, item))
        return tuple(ops)

    def _asks(self, corpus: Corpus, seed: int, n_asks: int) -> list[Query]:
        by_tenant = self._questions(corpus)
        ranks = _popularity(by_tenant, seed)
        laws = {t: Zipf(len(order), self.zipf_s) for t, order in ranks.items()}
        draw = {t: seeds.stream(seed, "workload", "asks", t) for t in ranks}
        sessions = seeds.stream(seed, "workload", "sessions")
        asks = []
        for tenant in interleave(sorted(ranks), n_asks, seeds.stream(seed, "workload", "tenants")):
            rng = draw[tenant]
            subject = ranks[tenant][laws[tenant].draw(rng)]
            wordings = by_tenant[tenant][subject]
            first = rng.random() < FIRST_WORDING or len(wordings) == 1
            query = wordings[0] if first else wordings[1 + int(rng.random() * (len(wordings) - 1))]
            session = sessions.randrange(self.n_sessions)
            prompt = self.prompts[session % len(self.prompts)]
            asks.append(dataclasses.replace(query, session=f"t-{session:02d}", prompt=prompt))
        return asks

    def _questions(self, corpus: Corpus) -> dict[str, dict[str, list[Query]]]:
        """By tenant and subject, the wordings in order of their ids."""
        wanted = set(self.about) & set(corpus.topics.values())
        found: dict[str, dict[str, list[Query]]] = defaultdict(lambda: defaultdict(list))
        for query in sorted(corpus.queries, key=lambda q: q.id):
            if not wanted or corpus.topics.get(query.id, "") in wanted:
                found[query.tenant][corpus.subjects.get(query.id, query.id)].append(query)
        if not found:
            raise InvalidInput(f"data set {corpus.name!r} has no questions; add rows to its queries file")
        return found


def _popularity(by_tenant: dict[str, dict[str, list[Query]]], seed: int) -> dict[str, list[str]]:
    """Subjects, most popular first: one order for all tenants, less those that a tenant has not."""
    subjects = sorted({s for questions in by_tenant.values() for s in questions})
    seeds.stream(seed, "workload", "popularity").shuffle(subjects)
    return {t: [s for s in subjects if s in questions] for t, questions in by_tenant.items()}
