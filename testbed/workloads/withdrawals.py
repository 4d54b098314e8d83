"""Pages that are taken away while people ask: what a delete is for."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.core.ports import Corpus
from testbed.core.types import Doc, Op, Query
from testbed.workloads.edits import positions
from testbed.workloads.stream import Stream

_WORD = re.compile(r"\w{4,}")
COPY = "-copy"  # what the id of a copy ends with


@dataclass(frozen=True, slots=True)
class Withdrawals:
    """The ops of a stream, and ``n_deletes`` pages deleted in ``n_waves`` waves over its middle.

    Those are taken of which most asks could be answered wrongly: pages of the kinds that nobody asks for, by how many
    words they share with the questions. Between the deletes of a wave nobody asks.

    Parameters
    ----------
    kinds : kinds of pages that are withdrawn
    copies : each of these pages has a second one of the same text (``<id>-copy``), loaded before the first question and
        withdrawn together with it
    """

    inner: Stream
    n_deletes: int = 60
    n_waves: int = 3
    kinds: tuple[str, ...] = ("note",)
    copies: bool = False

    def ops(self, corpus: Corpus, seed: int, n_asks: int) -> tuple[Op, ...]:
        first, *rest = self.inner.ops(corpus, seed, n_asks)
        gone = self._chosen(corpus, [op.item for op in rest if isinstance(op.item, Query)])
        places = positions(self.n_waves, len(rest)) if gone else []
        out = [first]
        if self.copies:
            out += [Op(0, 0.0, "upsert", copy_of(doc)) for doc in gone]
        for place, op in enumerate(rest):
            for wave in (w for w, at in enumerate(places) if at == place):
                share = len(gone) / self.n_waves
                for doc in gone[round(wave * share) : round((wave + 1) * share)]:
                    out += [Op(0, 0.0, "delete", d) for d in ([doc, copy_of(doc)] if self.copies else [doc])]
            out.append(op)
        gap_s = self.inner.gap_s
        return tuple(dataclasses.replace(op, index=n, at_s=n * gap_s) if n else op for n, op in enumerate(out))

    def _chosen(self, corpus: Corpus, asked: Iterable[Query]) -> list[Doc]:
        """The pages to withdraw, those that stand nearest to what is asked first."""
        weight: dict[str, Counter[str]] = {}
        for query in asked:
            weight.setdefault(query.tenant, Counter()).update(words_of(query.text))
        able = [d for d in corpus.docs if d.kind in self.kinds]
        rated = {d.id: sum(weight.get(d.tenant, Counter())[w] for w in words_of(d.text)) for d in able}
        return sorted(able, key=lambda d: (-rated[d.id], d.id))[: self.n_deletes]


def copy_of(doc: Doc) -> Doc:
    """A page of the same text under another id."""
    return dataclasses.replace(doc, id=doc.id + COPY)


def words_of(text: str) -> frozenset[str]:
    """The words of a text that are long enough to mean something."""
    return frozenset(_WORD.findall(text.lower()))
