"""Streams of cache keys for the eviction policies: popularity, drift, and what pollutes a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from testbed.core import seeds
from testbed.core.errors import InvalidInput
from testbed.workloads.zipf import Zipf

Pollution: TypeAlias = Literal["scan", "one-hit", "k-touch"]
POLLUTIONS: tuple[Pollution, ...] = ("scan", "one-hit", "k-touch")


def zipf(n_keys: int, s: float, n_requests: int, *, seed: int) -> list[int]:
    """Keys 0..n_keys-1 asked independently; key i with probability proportional to 1 / (i + 1) ** s."""
    rng, law = seeds.stream(seed, "keystream", "zipf"), Zipf(n_keys, s)
    return [law.draw(rng) for _ in range(n_requests)]


def drifting(n_keys: int, s: float, n_requests: int, *, seed: int, every: int, by: int) -> list[int]:
    """Zipf whose hot spot moves: after each ``every`` requests, each rank belongs to the key ``by`` further on."""
    ranks = zipf(n_keys, s, n_requests, seed=seed)
    return [(rank + by * (at // every)) % n_keys for at, rank in enumerate(ranks)]


def polluted(stream: Sequence[int], kind: Pollution, share: float, *, seed: int, k: int = 3) -> list[int]:
    """The stream with foreign keys in between, about ``share`` of all requests; foreign keys are negative.

    - ``scan``: runs of 500 keys, each new, one after the other
    - ``one-hit``: single new keys at random places
    - ``k-touch``: new keys asked for ``k`` times within some 200 requests, then never again
    """
    if not 0 <= share < 1:
        raise InvalidInput(f"share={share} must be in [0, 1) (keystreams.polluted)")
    foreign = round(len(stream) * share / (1 - share))
    rng = seeds.stream(seed, "keystream", kind)
    places: list[tuple[float, int]] = []
    if kind == "scan":
        for run in range(foreign // 500):
            start = rng.random() * len(stream)
            places += [(start, -1 - run * 500 - i) for i in range(500)]
    elif kind == "one-hit":
        places = [(rng.random() * len(stream), -1 - i) for i in range(foreign)]
    else:
        for i in range(foreign // k):
            start = rng.random() * len(stream)
            places += [(start + rng.random() * 200, -1 - i) for _ in range(k)]
    places.sort(key=lambda place: place[0])  # stable: a run stays in order
    out: list[int] = []
    done = 0
    for start, key in places:
        out += stream[done : int(start)]
        done = max(done, int(start))
        out.append(key)
    return out + list(stream[done:])
