"""C3: does the three-line fix of ``_get_cache_key`` make keys stable?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from testbed.caches.keys import encode, published_after, published_before
from testbed.claims import data, plot
from testbed.claims.claim import ARTICLE, Claim, Findings, Limit, Row, Tier, interval
from testbed.claims.pairs import TEXTS
from testbed.core.errors import InvalidInput, Unavailable

Array: TypeAlias = NDArray[Any]
Builder: TypeAlias = Callable[[Array], Hashable]


class Scale(NamedTuple):
    seeds: tuple[int, ...]
    n: int


SCALES: Mapping[Tier, Scale] = {"small": Scale((1, 2, 3), 2000), "full": Scale(tuple(range(1, 11)), 20_000)}


def robust(array: Array) -> bytes | None:
    """The robust form; None where it refuses."""
    try:
        return encode(array)
    except InvalidInput:
        return None


BUILDERS: Mapping[str, Builder] = {"before": published_before, "after": published_after, "robust": robust}


def normalised(seed: int, n: int) -> Array:
    raw = np.random.default_rng(seed).normal(size=(n, 384)).astype(np.float32)
    rows: Array = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    return rows


def same_key(build: Builder, pairs: Sequence[tuple[Array, Array]]) -> Row:
    """Of pairs that hold the same vector in another form: same key, other key, refused."""
    keys = [(build(a), build(b)) for a, b in pairs]
    refused = sum(None in both for both in keys)
    same = sum(a == b and a is not None for a, b in keys)
    n = len(pairs)
    return {"same key": same / n, "another key": (n - refused - same) / n, "refused": refused / n}


def in_collision(build: Builder, arrays: Sequence[Array]) -> float:
    """Share of different arrays that share a key with another."""
    counts = Counter(build(array) for array in arrays)
    return sum(c for key, c in counts.items() if c > 1 and key is not None) / len(arrays)


def forms(vectors: Array) -> dict[str, list[tuple[Array, Array]]]:
    """The same vectors in another memory layout and in other dtypes, as a store or a device hands them back."""
    grids = vectors.reshape(len(vectors), 24, -1)
    return {
        "column-major": [(g, np.asfortranarray(g)) for g in grids],
        "strided view": [(v, np.repeat(v, 2)[::2]) for v in vectors],
        "float64": [(v, v.astype(np.float64)) for v in vectors],
        "float16 and back": [(v, v.astype(np.float16).astype(np.float32)) for v in vectors],
        "float16": [(v, v.astype(np.float16)) for v in vectors],
    }


def different(seed: int, n: int) -> dict[str, list[Array]]:
    """Arrays that all differ, of the kinds in which the first 16 values say little."""
    rng = np.random.default_rng(seed)
    shared = normalised(seed, 1)
    batches = [np.concatenate([shared, row[None]]) for row in normalised(seed + 1000, n)]
    hashed, sparse = [], []
    for _ in range(n):
        counts = np.zeros(4096, np.float32)
        np.add.at(counts, rng.integers(0, 4096, size=12), 1.0)
        hashed.append(counts)
        weights = np.zeros(30_522, np.float32)
        weights[rng.integers(0, 30_522, size=100)] = rng.random(100, dtype=np.float32)
        sparse.append(weights)
    return {
        "dense": list(normalised(seed, n)),
        "batches that share row 0": batches,
        "12 hashed words in 4,096 buckets": hashed,
        "100 of 30,522 weights": sparse,
    }


def measure(tier: Tier) -> Findings:
    scale = SCALES[tier]
    stable: list[Row] = []
    for form, pairs in forms(normalised(scale.seeds[0], scale.n)).items():
        stable += [
            {"vectors": "random", "form": form, "key": k} | dict(same_key(b, pairs)) for k, b in BUILDERS.items()
        ]
    try:
        for form, pairs in forms(data.vectors(TEXTS)).items():
            stable += [
                {"vectors": "MiniLM", "form": form, "key": k} | dict(same_key(b, pairs)) for k, b in BUILDERS.items()
            ]
    except Unavailable:
        pass  # random unit vectors show the same
    shared: dict[tuple[str, str], list[float]] = {}
    for seed in scale.seeds:
        for kind, arrays in different(seed, scale.n // 4).items():
            for key, build in BUILDERS.items():
                shared.setdefault((kind, key), []).append(in_collision(build, arrays))
    collisions = {at: interval(f"collisions of {at[0]}, key {at[1]}", values) for at, values in shared.items()}
    after = {(row["vectors"], row["form"]): float(row["same key"]) for row in stable if row["key"] == "after"}
    half = max(rate for (_, form), rate in after.items() if form == "float16 and back")
    layout = min(rate for (_, form), rate in after.items() if form in ("column-major", "strided view"))
    worst = {kind: ci.mean for (kind, key), ci in collisions.items() if key == "after"}
    why = (
        f"layout: {100 * layout:.0f} % keep their key; dtype: {100 * half:.1f} % do after a stay in float16; different "
        f"arrays that share a key with another: {100 * worst['batches that share row 0']:.0f} % of batches with one "
        f"row 0, {100 * worst['12 hashed words in 4,096 buckets']:.0f} % of hashed and "
        f"{100 * worst['100 of 30,522 weights']:.0f} % of sparse vectors; the robust key has no collision, keeps "
        "layouts and float64, refuses float16, and gives what came back from float16 a key of its own"
    )
    limits = [Limit(f"share, {ci.name}", ci.mean, 1.0) for ci in collisions.values()]
    limits += [
        Limit(f"collisions of the robust key: {kind}", ci.mean, 0.0)
        for (kind, k), ci in collisions.items()
        if k == "robust"
    ]
    return Findings(
        ruling="holds only if",
        why=why,
        seeds=scale.seeds,
        tables={
            "same vector, another form": stable,
            "different arrays": [{"arrays": a, "key": k, "share a key": ci.mean} for (a, k), ci in collisions.items()],
        },
        intervals=tuple(collisions.values()),
        limits=tuple(limits),
        plot=plot.bars(
            "Different arrays that share a key with another",
            "share",
            {kind.split()[0]: {key: collisions[kind, key].mean for key in BUILDERS} for kind, _ in collisions},
            y_max=1.0,
        ),
    )


C3 = Claim(
    id="C3",
    title="three-line key fix",
    statement=(
        "Bringing the embedding to float32 and contiguous memory and keying by (shape, first 16 values) makes the key "
        "stable across dtype and layout."
    ),
    source=ARTICLE,
    definitions=(
        "before: a digest of the embedding's bytes as they lie in memory (the unfixed code was not published)",
        "dtype: float64, float16, and float16 brought back to float32, each from the same float32 vector",
        "collision: an array that shares its key with a different one; batches, hashed and sparse vectors included",
    ),
    generator="random unit vectors of 384 dimensions by seed; MiniLM vectors of own questions where it is installed",
    tolerance="none: equality of keys is exact",
    limit="a share is at most 1; equal robust keys mean equal arrays, so its collisions are 0",
    measure=measure,
)
