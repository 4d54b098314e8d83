"""Which revisions of a corpus happen during a run, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from testbed.core.ports import Corpus
from testbed.core.types import Query, Revision

REMOVED = "removed"  # drift of a revision that takes its document away
FIRST, LAST = 0.2, 0.75  # share of the asks before the first and before the last edit: each has a before and an after


def choose(corpus: Corpus, kinds: Sequence[str], limit: int | None, asked: Iterable[Query]) -> list[Revision]:
    """Revisions of these kinds of drift, in the order in which the corpus has them.

    ``"*"`` stands for all kinds; a corpus that knows none of the kinds is edited with whatever it has. Under a limit,
    documents are taken in the order of how often they are needed for what is asked: an edit that nobody asks about
    shows nothing.
    """
    if not kinds:
        return []
    known = {r.drift for r in corpus.revisions}
    wanted = known if "*" in kinds or not known & set(kinds) else known & set(kinds)
    found = [r for r in corpus.revisions if r.drift in wanted]
    if limit is None or limit >= len(found):
        return found
    needed = _needed(corpus, asked)
    ranked = sorted(range(len(found)), key=lambda i: (found[i].doc.version, -needed[found[i].doc.id], i))
    return [found[i] for i in sorted(ranked[:limit])]


def positions(n_edits: int, n_asks: int) -> list[int]:
    """Before which ask (0 to n_asks - 1) each edit happens: evenly spread over the middle of the stream."""
    if n_edits == 1:
        shares = [(FIRST + LAST) / 2]
    else:
        shares = [FIRST + (LAST - FIRST) * i / (n_edits - 1) for i in range(n_edits)]
    return [min(round(n_asks * share), n_asks - 1) for share in shares]


def _needed(corpus: Corpus, asked: Iterable[Query]) -> Counter[str]:
    """How many asks depend on a document: as the one to find, or as one that it refers to."""
    refs = {d.id: d.refs for d in corpus.docs}
    versions = {d.id: d.version for d in corpus.docs}
    relevant: dict[str, tuple[str, ...]] = {}
    count: Counter[str] = Counter()
    for query in asked:
        if query.id not in relevant:
            relevant[query.id] = tuple(corpus.gold(0, query, versions).relevant)
        for doc_id in relevant[query.id]:
            count.update((doc_id, *refs.get(doc_id, ())))
    return count
