"""Rankings and relevance in the TREC form, so that any retrieval tool can score a run again.

The "query" of a line is the ask, ``op<index>``: the same question asked twice may have another truth the second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from testbed.core.types import Gold


def run(rankings: Iterable[tuple[int, Sequence[str]]]) -> bytes:
    """``op<index> Q0 <document> <rank> <score> rag-testbed``; the score only falls with the rank."""
    lines = [
        f"op{op} Q0 {word(doc)} {rank} {len(ranking) - rank + 1} rag-testbed\n"
        for op, ranking in rankings
        for rank, doc in enumerate(ranking, start=1)
    ]
    return "".join(lines).encode("utf-8", "backslashreplace")


def qrels(gold: Iterable[Gold]) -> bytes:
    """``op<index> 0 <document> <grade>``."""
    lines = [f"op{g.op} 0 {word(doc)} {grade}\n" for g in gold for doc, grade in sorted(g.relevant.items())]
    return "".join(lines).encode("utf-8", "backslashreplace")


def word(doc_id: str) -> str:
    """The id without white space, which separates the columns: percent-encoded where there is any."""
    return re.sub(r"[\s%]", lambda found: quote(found[0]), doc_id)
