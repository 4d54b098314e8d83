"""Pages that are made empty and filled later, as in every wiki."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from testbed.core import seeds
from testbed.core.ports import Corpus
from testbed.core.types import Doc, Op, Query
from testbed.workloads.stream import Stream

STUB = "This page is being written."


@dataclass(frozen=True, slots=True)
class Stubs:
    """The ops of a stream; ``share`` of the pages that will be asked for are loaded as stubs and filled at once.

    A stub is version 0. All are filled before the first question, so there is one truth for the whole run.
    """

    inner: Stream
    share: float = 0.4

    def ops(self, corpus: Corpus, seed: int, n_asks: int) -> tuple[Op, ...]:
        first, *rest = self.inner.ops(corpus, seed, n_asks)
        versions = {d.id: d.version for d in corpus.docs}
        asked = dict.fromkeys(op.item for op in rest if isinstance(op.item, Query))
        needed = sorted({doc_id for query in asked for doc_id in corpus.gold(0, query, versions).relevant})
        rng = seeds.stream(seed, "workload", "stubs")
        chosen = frozenset(rng.sample(needed, round(len(needed) * self.share)))
        load = tuple(dataclasses.replace(d, text=STUB, version=0) if d.id in chosen else d for d in corpus.docs)
        filled: list[Doc] = [d for d in corpus.docs if d.id in chosen]
        out = [dataclasses.replace(first, item=load), *(Op(0, 0.0, "upsert", d) for d in filled), *rest]
        gap_s = self.inner.gap_s
        return tuple(dataclasses.replace(op, index=n, at_s=n * gap_s) if n else op for n, op in enumerate(out))
