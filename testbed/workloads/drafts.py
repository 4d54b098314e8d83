"""Authors who look first whether there is a page like theirs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from testbed.core import seeds
from testbed.core.ports import Corpus
from testbed.core.types import Op, Query
from testbed.workloads.stream import Stream


@dataclass(frozen=True, slots=True)
class Drafts:
    """The ops of a stream; ``share`` of the pages that will be asked for are added by their authors before it begins.

    An author first pastes the text of the new page into the search box, and adds the page when nothing is like it. The
    question has the id of one that the page will answer: nothing is relevant to it yet.
    """

    inner: Stream
    share: float = 0.3

    def ops(self, corpus: Corpus, seed: int, n_asks: int) -> tuple[Op, ...]:
        first, *rest = self.inner.ops(corpus, seed, n_asks)
        versions = {d.id: d.version for d in corpus.docs}
        about: dict[str, Query] = {}
        for op in rest:
            if isinstance(op.item, Query):
                about.update(dict.fromkeys(corpus.gold(0, op.item, versions).relevant, op.item))
        needed = sorted(about)
        drafts = frozenset(seeds.stream(seed, "workload", "drafts").sample(needed, round(len(needed) * self.share)))
        out = [dataclasses.replace(first, item=tuple(d for d in corpus.docs if d.id not in drafts))]
        for doc in (d for d in corpus.docs if d.id in drafts):
            pasted = dataclasses.replace(about[doc.id], text=doc.text)
            out += [Op(0, 0.0, "ask", pasted), Op(0, 0.0, "upsert", doc)]
        out += rest
        gap_s = self.inner.gap_s
        return tuple(dataclasses.replace(op, index=n, at_s=n * gap_s) if n else op for n, op in enumerate(out))
