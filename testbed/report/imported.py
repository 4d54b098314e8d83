"""What the spans of a real service tell, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from testbed.diagnose.imported import KINDS, Corpus, Imported, judge, read_requests
from testbed.diagnose.judge import plain
from testbed.report.catalogue import print_json
from testbed.report.columns import number, percent
from testbed.run.imports import read_corpus, read_spans

MARGIN, SHOWN = 12, 5


def print_imported(
    files: Sequence[Path], corpus: str, qrels: str, tenant: str, console: Console, *, as_json: bool
) -> int:
    """Read, judge, print. Exit code 0: a suspicion is not a verdict."""
    spans = read_spans(files)
    held = Corpus(*read_corpus(corpus, qrels)) if corpus else None
    found = judge(read_requests(spans, tenant), len(spans), held)
    if as_json:
        print_json(plain({**asdict(found), "suspicions": [s._asdict() for s in found.suspicions]}))
        return 0
    console.print(f"{found.requests} requests of {found.tenants} tenants, {found.spans} spans", style="bold")
    _line("hits", _hits(found), console)
    if held is not None:
        told = f"MRR@5 {number(found.mrr)} over {found.ranked} requests whose question the corpus knows"
        _line("ranking", told if found.ranked else "no request asks what the corpus knows", console)
        stale = f"{found.stale} of {found.compared} retrieved passages are not the document's text now"
        more = f"; {found.unknown} are of documents that the corpus does not hold" if found.unknown else ""
        _line("staleness", stale + more, console)
    _suspicions(found, console)
    return 0


def _hits(found: Imported) -> str:
    told = [f"cache of {layer} spans {percent(hits / of)} of {of}" for layer, (hits, of) in found.hits.items()]
    for what, lacking in (("a model call", found.without_model), ("a retrieval", found.without_retrieval)):
        if lacking is not None:
            told.append(f"{lacking} of {found.requests} requests were answered without {what}")
    return "; ".join(told) or "the spans do not tell: no attribute such as cache.hit, no model or retriever span"


def _suspicions(found: Imported, console: Console) -> None:
    if not found.suspicions:
        _line("suspicious", "nothing found", console)
    for kind, meaning in KINDS.items():
        some = [s for s in found.suspicions if s.kind == kind]
        if some:
            _line(kind, f"{'once' if len(some) == 1 else f'{len(some)} times'}: {meaning}", console)
            for suspicion in some[:SHOWN]:
                _line("", f"{suspicion.story} (trace {', '.join(t[:8] for t in suspicion.requests[:2])})", console)
            if len(some) > SHOWN:
                _line("", f"and {len(some) - SHOWN} more (--json shows all)", console)


def _line(name: str, text: str, console: Console) -> None:
    for place, line in enumerate(Text(text).wrap(console, max(20, console.width - MARGIN))):
        console.print(Text.assemble((("" if place else name).ljust(MARGIN), "bold"), line.plain.rstrip()))
