"""C8: does a version number in the key keep tokenizer, model and index together?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from testbed.claims import data, plot
from testbed.claims.claim import ARTICLE, Claim, Findings, Limit, Row, Tier
from testbed.claims.pairs import PAIRS
from testbed.core.ports import Encoder, Role, Vectors

PARTIES = ("tokenizer", "model", "index")
SWAPS = ("minilm-cased", "lsa-384")  # another tokenizer, another model; name and dimension stay
CUT = 5


class Scale(NamedTuple):
    n_pairs: int


SCALES: Mapping[Tier, Scale] = {"small": Scale(120), "full": Scale(990)}


@dataclass(frozen=True, slots=True)
class Deployment:
    """The version of each party, and the number that the cache puts into its keys."""

    parts: tuple[str, str, str]
    number: str


def detection() -> list[Row]:
    """Every way to change some of the three parties, with the number raised and not: who notices?"""
    old = Deployment(("tokenizer v2.0", "model v2.1", "index v1.2"), "v2")
    rows: list[Row] = []
    for changed in itertools.product((False, True), repeat=3):
        for raised in (False, True):
            parts = tuple(f"{part}'" if new else part for part, new in zip(old.parts, changed, strict=True))
            new = Deployment((parts[0], parts[1], parts[2]), "v3" if raised else "v2")
            rows.append(
                {
                    "changed": ", ".join(p for p, is_new in zip(PARTIES, changed, strict=True) if is_new) or "nothing",
                    "number raised": raised,
                    "number notices": new.number != old.number,
                    "manifest notices": new.parts != old.parts,
                }
            )
    return rows


def caught(rows: Sequence[Row], who: str, *, raised: bool) -> str:
    """Of the changes with the number raised (or not), how many were noticed."""
    some = [row for row in rows if row["changed"] != "nothing" and row["number raised"] is raised]
    return f"{sum(bool(row[who]) for row in some)}/{len(some)}"


def mrr(documents: Vectors, queries: Vectors) -> float:
    """MRR@5 where query i is about document i; ties by position."""
    scores = np.round(queries @ documents.T, 6)
    total = 0.0
    for i, row in enumerate(scores):
        rank = int((row > row[i]).sum() + (row[:i] == row[i]).sum()) + 1
        total += 1 / rank if rank <= CUT else 0.0
    return total / len(scores)


def encoded(encoder: Encoder, texts: Sequence[str], role: Role) -> Vectors:
    return encoder.encode(texts, role)


def mismatches(name: str, documents: Sequence[str], queries: Sequence[str]) -> list[Row]:
    """MRR@5 when the index was built under one encoder and is asked under another of the same name and size."""
    base = data.encoder("minilm")
    docs = {"minilm": encoded(base, documents, "document")}
    rows: list[Row] = []
    for other in ("minilm", *SWAPS):
        encoder = data.encoder(other, tuple(documents))
        asked = encoded(encoder, queries, "query")
        docs[other] = encoded(encoder, documents, "document")
        half = docs["minilm"].copy()
        half[::2] = docs[other][::2]
        rows.append(
            {
                "pairs": name,
                "asked under": other,
                "all under it too": mrr(docs[other], asked),
                "index under minilm": mrr(docs["minilm"], asked),
                "half of the index under each": mrr(half, asked),
                "same name": encoder.name == base.name,
                "same dimension": encoder.dim == base.dim,
                "manifest notices": encoder.fingerprint != base.fingerprint,
            }
        )
    return rows


def measure(tier: Tier) -> Findings:
    found = detection()
    own = [pair for pair in PAIRS if pair.same]
    others = [text for pair in PAIRS if not pair.same for text in (pair.first, pair.second)]
    rows = mismatches("own", [*(p.first for p in own), *others], [p.second for p in own])
    if public := data.public_pairs("gptcache_mock", SCALES[tier].n_pairs):
        rows += mismatches("gptcache_mock", [p.first for p in public], [p.second for p in public])
    at = {(row["pairs"], row["asked under"]): row for row in rows}
    name = "gptcache_mock" if ("gptcache_mock", "minilm") in at else "own"
    before = float(at[name, "minilm"]["index under minilm"])
    swapped = float(at[name, "lsa-384"]["index under minilm"])
    noticed = all(bool(row["manifest notices"]) == (row["asked under"] != "minilm") for row in rows)
    why = (
        f"a number notices {caught(found, 'number notices', raised=True)} changes when somebody raises it and "
        f"{caught(found, 'number notices', raised=False)} when nobody does, a manifest of fingerprints "
        f"{caught(found, 'manifest notices', raised=False)} either way; a model swapped under the same name and "
        f"dimension raises no error and takes MRR@5 from {before:.2f} to {swapped:.2f} ({name}); the encoders' "
        f"fingerprints {'tell all swaps apart' if noticed else 'MISS a swap'}"
    )
    return Findings(
        ruling="holds only if" if noticed else "refuted",
        why=why,
        seeds=(),
        tables={"who notices": found, "MRR@5": rows},
        limits=tuple(
            Limit(f"MRR@5, {row['pairs']}, {row['asked under']}, {column}", float(row[column]), 1.0)
            for row in rows
            for column in ("all under it too", "index under minilm", "half of the index under each")
        ),
        plot=plot.bars(
            f"MRR@5 by the encoder that asks ({name})",
            "MRR@5",
            {
                under: {
                    "index under it": float(at[name, under]["all under it too"]),
                    "index under minilm": float(at[name, under]["index under minilm"]),
                    "half and half": float(at[name, under]["half of the index under each"]),
                }
                for under in ("minilm", *SWAPS)
            },
            y_max=1.0,
        ),
    )


C8 = Claim(
    id="C8",
    title="version in the key",
    statement=(
        "Tokenizer v2.0, embedding model v2.1 and inverted index v1.2 under one cache version number in the key: the "
        "mismatch is prevented."
    ),
    source=ARTICLE,
    definitions=(
        "number: part of the key, raised by hand; manifest: the fingerprint of each party (weights, files, settings)",
        "swap: the encoder is replaced under its old name, at the same dimension; the index stays as it was",
        "MRR@5 of the one document that a question is a paraphrase of, exact search",
    ),
    generator="own pairs and gptcache_mock where it is; no random draw",
    tolerance="none: detection is exact",
    limit="MRR is at most 1",
    measure=measure,
)
