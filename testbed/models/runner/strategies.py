"""Which KV cache serves a request: ``full``, ``sliding_sparse``, ``sliding``, ``offload`` or ``quantized``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from testbed.core.errors import InvalidInput, Unavailable, Unsupported, unknown
from testbed.models.runner.policy import Policy

if TYPE_CHECKING:
    from testbed.models.runner.fixed import Arena
    from testbed.models.runner.generate import Steps
    from testbed.models.runner.graphs import Capture

Strategy = Literal["full", "sliding_sparse", "sliding", "offload", "quantized"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
SPARSE = ("sliding_sparse", "sliding")  # those of kv.py


class Usage(NamedTuple):
    """Bytes of a cache: rows in use, most at one time, in host memory; and rows kept over tokens seen."""

    live_bytes: int
    peak_bytes: int
    host_bytes: int
    keep_ratio: float


@dataclass(frozen=True, slots=True)
class Caches:
    """Makes empty caches of one strategy for one model.

    ``full`` keeps every row. ``sliding_sparse`` follows ``policy``; ``sliding`` keeps its sinks and window alone.
    ``offload`` keeps every row in host memory and moves one layer at a time (needs a GPU). ``quantized`` keeps rows
    of full-attention layers in 8-bit floating point, with one scale a layer, frozen by the first chunk.

    With ``capture`` (``graphs.cuda_graph``), decoded tokens are replayed steps; ``must_capture`` makes it an error if
    they cannot be. All caches then lie in one arena: one sequence at a time, and a new one takes the last one's place.
    """

    model: Any
    strategy: str = "full"
    policy: Policy = field(default_factory=Policy)
    capture: Capture | None = None
    must_capture: bool = False
    _arena: Arena | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise unknown("kv cache strategy", self.strategy, STRATEGIES)
        if self.capture is not None:
            if self.strategy not in SPARSE:
                raise InvalidInput(f"graphs need the strategy {' or '.join(SPARSE)}, not {self.strategy}")
            from testbed.models.runner.kv import arena_for

            object.__setattr__(self, "_arena", arena_for(self.model, self._policy))
        if self.strategy == "offload" and self.model.device.type != "cuda":
            raise Unavailable(f"strategy offload needs a GPU; the model is on device={self.model.device.type}")

    @contextmanager
    def ready(self) -> Iterator[None]:
        """The model as this strategy needs it, inside the with-block."""
        if self.strategy not in SPARSE:
            yield
            return
        from testbed.models.runner.kv import attached

        with attached(self.model):
            yield

    def new(self) -> Any:
        """An empty cache for one sequence."""
        from transformers import DynamicCache

        if self.strategy == "quantized":
            return _quantized(self.model)
        if self.strategy in SPARSE:
            from testbed.models.runner.kv import SlidingSparseCache

            return SlidingSparseCache(self.model, self._policy, self._arena)
        return DynamicCache(config=self.model.config, offloading=self.strategy == "offload")

    def steps(self) -> Steps:
        """How these caches are decoded with."""
        if self.capture is None:
            from testbed.models.runner.generate import steps_of

            return steps_of(self.model)
        from testbed.models.runner.graphs import GraphedSteps

        return GraphedSteps(self.model, self.capture, must_capture=self.must_capture)

    @property
    def _policy(self) -> Policy:
        return replace(self.policy, max_blocks=0, host_blocks=0) if self.strategy == "sliding" else self.policy


def usage(cache: Any) -> Usage:
    """What a cache holds now. Peak is known for the sliding-sparse one; the others only grow."""
    if hasattr(cache, "live_bytes"):
        return Usage(cache.live_bytes, cache.peak_bytes, cache.host_bytes, cache.keep_ratio)
    live = sum(_layer_bytes(layer) for layer in cache.layers)
    on_host = any(layer.keys is not None and layer.keys.device.type == "cpu" for layer in cache.layers)
    return Usage(live, live, live if cache.offloading and on_host else 0, 1.0)


def _layer_bytes(layer: Any) -> int:
    """Storage really held: a slice that keeps a larger buffer alive counts whole."""
    tensors = [layer.keys, layer.values]
    for name in ("_quantized_keys", "_quantized_values"):
        tensors += list(getattr(layer, name, None) or ())
    return sum(int(t.untyped_storage().nbytes()) for t in tensors if t is not None and hasattr(t, "untyped_storage"))


def _quantized(model: Any) -> Any:
    """8-bit floating point for full-attention layers; layers with a window of their own are small and stay as they are.

    (transformers' own QuantizedCache takes models with full-attention layers only.)
    """
    from transformers.cache_utils import (
        Cache,
        DynamicSlidingWindowLayer,
        Fp8QuantizedLayer,
        get_layer_types_and_kwargs,
    )

    types, settings = get_layer_types_and_kwargs(model.config.get_text_config(decoder=True))
    kinds = {"full_attention": Fp8QuantizedLayer, "sliding_attention": DynamicSlidingWindowLayer}
    if set(types) - set(kinds):
        raise Unsupported(f"a quantized cache needs full or sliding attention layers, not {sorted(set(types))}")
    return Cache(layers=[kinds[t](**s) for t, s in zip(types, settings, strict=True)])
