"""Tenants side by side: whose turn it is to ask."""

from __future__ import annotations

import random
from collections.abc import Sequence


def interleave(tenants: Sequence[str], n: int, rng: random.Random) -> list[str]:
    """``n`` turns in rounds: each round holds every tenant once, in an order of its own.

    So no tenant runs ahead, and any two tenants meet within two rounds.
    """
    turns: list[str] = []
    while len(turns) < n:
        turns += rng.sample(tenants, len(tenants))
    return turns[:n]
