"""Which KV cache serves a request: ``full``, ``sliding_sparse``, ``sliding``, ``offload`` or ``quantized``."""

from __future__ import annotations

from typing import Any, Literal, get_args

from testbed.core.errors import unknown

Strategy = Literal["full", "sliding_sparse", "sliding", "offload", "quantized"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)


def build(strategy: str, model: Any) -> Any:
    """An empty cache for one sequence."""
    from transformers import DynamicCache

    if strategy not in STRATEGIES:
        raise unknown("kv cache strategy", strategy, STRATEGIES)
    return DynamicCache(config=model.config)
