"""C2: is the published signature (norm, chunk digest, second) a good cache key?"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.caches.signature import signature
from testbed.claims import data, plot
from testbed.claims.claim import ARTICLE, Claim, Findings, Limit, Row, Tier, interval
from testbed.claims.pairs import TEXTS
from testbed.core import seeds
from testbed.core.errors import Unavailable
from testbed.workloads.zipf import Zipf

N_QUESTIONS = 1000
RATES_PER_S = (1.0, 10.0, 100.0, 1000.0)


class Scale(NamedTuple):
    seeds: tuple[int, ...]
    n_requests: int


SCALES: Mapping[Tier, Scale] = {"small": Scale((1, 2, 3), 20_000), "full": Scale(tuple(range(1, 11)), 200_000)}


def bits(parts: Sequence[str]) -> float:
    """Entropy of what was seen, in bits: how much this part of the key can tell apart."""
    counts = Counter(parts)
    n = len(parts)
    return max(0.0, -math.fsum(c / n * math.log2(c / n) for c in counts.values()))


def norm_parts(vectors: NDArray[Any]) -> list[str]:
    return [signature(v, "", 0.0).split("_")[0] for v in vectors]


def random_vectors(seed: int, n: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 384)).astype(np.float32)


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    scaled: NDArray[Any] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


class Replay(NamedTuple):
    plain: float  # hit rate when the key is the question
    salted: float  # when it is the signature
    most: float  # of any key that ends with the second: one miss for each question in each second
    least_misses: float


def hit_rates(seed: int, rate_per_s: float, n_requests: int) -> Replay:
    """An unbounded cache under Poisson arrivals of Zipf questions that never change."""
    rng, law = seeds.stream(seed, "c2", f"{rate_per_s:g}"), Zipf(N_QUESTIONS, 1.0)
    one = np.ones(1, dtype=np.float32)
    asked: set[int] = set()
    keys: set[str] = set()
    seconds: set[tuple[int, int]] = set()
    hits = [0, 0]
    now_s = 0.0
    for _ in range(n_requests):
        now_s += rng.expovariate(rate_per_s)
        question = law.draw(rng)
        key = signature(one, str(question), now_s)
        hits[0] += question in asked
        hits[1] += key in keys
        asked.add(question)
        keys.add(key)
        seconds.add((question, math.floor(now_s)))
    n = n_requests
    return Replay(hits[0] / n, hits[1] / n, 1 - len(seconds) / n, 1 - len(asked) / n)


def unseen_updates(seed: int, updates_per_s: float, n: int = 5000) -> float:
    """Share of re-embeddings of one chunk that get the signature of the one before (the norm stays)."""
    rng = seeds.stream(seed, "c2", "updates", f"{updates_per_s:g}")
    times = [0.0]
    for _ in range(n):
        times.append(times[-1] + rng.expovariate(updates_per_s))
    one = np.ones(1, dtype=np.float32)
    signed = [signature(one, "chunk", t) for t in times]
    return sum(a == b for a, b in itertools.pairwise(signed)) / n


def new_key_share(delta: float, seed: int, n: int = 2000) -> float:
    """Share of vectors whose signature changes when their norm changes by ``delta``."""
    rng = np.random.default_rng(seed)
    norms = rng.uniform(0.5, 20.0, size=n)
    pairs = [(signature(np.array([x]), "", 0), signature(np.array([x + delta]), "", 0)) for x in norms]
    return sum(a != b for a, b in pairs) / n


def norm_table(seed: int) -> list[Row]:
    raw = random_vectors(seed, 2000)
    rows: list[Row] = [
        {"embeddings": "random, as they are", "bits of the norm": bits(norm_parts(raw)), "most": math.log2(len(raw))},
        {
            "embeddings": "random, normalised",
            "bits of the norm": bits(norm_parts(unit(raw))),
            "most": math.log2(len(raw)),
        },
    ]
    try:
        vectors = data.vectors(TEXTS)
        rows.append(
            {"embeddings": "MiniLM", "bits of the norm": bits(norm_parts(vectors)), "most": math.log2(len(vectors))}
        )
    except Unavailable:
        pass  # the two rows above say it too; the encoder's own contract is norm 1
    return rows


def measure(tier: Tier) -> Findings:
    scale = SCALES[tier]
    by_rate = {rate: [hit_rates(seed, rate, scale.n_requests) for seed in scale.seeds] for rate in RATES_PER_S}
    salted = {
        r: interval(f"hit rate with the signature at {r:g} req/s", [x.salted for x in xs]) for r, xs in by_rate.items()
    }
    plain = {
        r: interval(f"hit rate with the question at {r:g} req/s", [x.plain for x in xs]) for r, xs in by_rate.items()
    }
    norms = norm_table(scale.seeds[0])
    normalised = max(float(row["bits of the norm"]) for row in norms[1:])
    raw = float(norms[0]["bits of the norm"])
    steps: list[Row] = [
        {"change of the norm": d, "new key": new_key_share(d, scale.seeds[0])} for d in (1e-4, 5e-4, 1e-3)
    ]
    updates = [
        interval(f"updates not seen at {r:g}/s", [unseen_updates(s, r) for s in scale.seeds]) for r in (0.1, 1.0, 10.0)
    ]
    limits = [
        limit
        for rate, xs in by_rate.items()
        for seed, x in zip(scale.seeds, xs, strict=True)
        for limit in (
            Limit(f"signature, {rate:g} req/s, seed {seed}", x.salted, x.most),
            Limit(f"question, {rate:g} req/s, seed {seed}", x.plain, x.least_misses),
        )
    ]
    limits += [Limit(f"bits, {row['embeddings']}", float(row["bits of the norm"]), float(row["most"])) for row in norms]
    why = (
        f"the norm carries {normalised:.2f} bits once embeddings are normalised ({raw:.1f} when they are not), so it "
        "changes a key only for unnormalised ones; the second always does, a lifetime of at most 1 s: hit rate "
        f"{100 * plain[100.0].mean:.1f} -> {100 * salted[100.0].mean:.1f} % at 100 req/s, {100 * plain[10.0].mean:.1f} "
        f"-> {100 * salted[10.0].mean:.1f} % at 10; of updates that come once a second on average, "
        f"{100 * updates[1].mean:.0f} % share the signature of the one before"
    )
    return Findings(
        ruling="holds only if",
        why=why,
        seeds=scale.seeds,
        tables={
            "bits of the norm": norms,
            "change of the norm": steps,
            "hit rates": [
                {"req/s": rate, "question": plain[rate].mean, "signature": salted[rate].mean} for rate in RATES_PER_S
            ],
        },
        intervals=(*plain.values(), *salted.values(), *updates),
        limits=tuple(limits),
        plot=plot.bars(
            "Hit rate by key and load",
            "hit rate",
            {f"{r:g} req/s": {"question": plain[r].mean, "signature": salted[r].mean} for r in RATES_PER_S},
            y_max=1.0,
        ),
    )


C2 = Claim(
    id="C2",
    title="signature with a time salt",
    statement=(
        "The key is the L2 norm of the query embedding (3 decimals), BLAKE3 of the chunk (first 8 bytes) and the time "
        "in whole seconds; a change of the norm by 0.001 gives a new key, a second boundary always does."
    ),
    source=ARTICLE,
    definitions=(
        "norm part: embeddings as they are, and normalised as sentence encoders give them",
        "hit rate: unbounded cache, 1,000 questions with Zipf 1.0 popularity, Poisson arrivals, nothing ever changes",
        "update not seen: re-embedding of an unchanged chunk within the second of the one before",
    ),
    generator="core.seeds streams for arrivals and questions; numpy's default generator for random vectors",
    tolerance="none needed: the two mechanisms are exact; hit rates are those of this generator",
    limit="one miss for each question in each second (signature), or at all (plain); entropy <= log2 of the sample",
    measure=measure,
)
