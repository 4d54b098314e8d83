"""The sliding-sparse KV cache, on transformers' public extension points: no model code is changed.

1. The model's ``rotary_emb`` is replaced by ``DeferredRotary``: keys reach the cache without positions.
2. An attention function is registered. The cache's ``update`` hands out its layer instead of tensors, and the attention
   function asks that layer to ``attend``: positions are applied there.
3. A mask function is registered with it. Without one, transformers drops the padding mask of a custom attention.

    with attached(model):
        cache = SlidingSparseCache(model, Policy(window=1024, threshold=0.15, max_blocks=128))
        logits = generate.prefill(model, ids, cache, chunk=1024)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, get_layer_types_and_kwargs

from testbed.core.errors import InvalidInput, Unsupported
from testbed.models.runner.copies import Copies, SideStream
from testbed.models.runner.fixed import Arena, rounded
from testbed.models.runner.host import SCORED_AT_ONCE
from testbed.models.runner.layer import SlidingSparseLayer
from testbed.models.runner.meter import Meter
from testbed.models.runner.policy import Policy
from testbed.models.runner.rotary import DeferredRotary, check_rotation

NAME = "sliding_sparse"
_MARK = "_runner_rotary"  # on each attention module: (rotary, layer type)
CHECKED_TOKENS = 24
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


class SlidingSparseCache(Cache):
    """One layer each; made for a model that is ``attached``. In an ``arena``, its rows never move (see ``graphs``)."""

    def __init__(
        self, model: Any, policy: Policy | None = None, arena: Arena | None = None, copies: Copies | None = None
    ) -> None:
        self.policy = policy or Policy()
        self.arena = arena
        if copies is None and self.policy.host_blocks and model.device.type == "cuda":
            copies = SideStream(model.device)
        self.meter = Meter()
        rotary = _decoder(model).rotary_emb
        if not isinstance(rotary, DeferredRotary):
            raise InvalidInput("the model is not attached; make the cache inside `with attached(model)`")
        if not rotary.is_static and self.policy.host_blocks:
            raise InvalidInput(
                "host_blocks needs positions that do not change with the length (dynamic rope, longrope)"
            )
        if arena is not None and not rotary.is_static:
            raise InvalidInput("an arena needs positions that do not change with the length (dynamic rope, longrope)")
        self._rotary = rotary
        layers = _layers_of(model)
        if arena is not None and (arena.policy, arena.windows) != (self.policy, [local for _, local in layers]):
            raise InvalidInput("an arena serves caches of the policy and the model that it was made for")
        fixed = [None] * len(layers) if arena is None else arena.layers
        self.own = [
            SlidingSparseLayer(self.policy, rotary, kind, local, self.meter, rows, copies)
            for (kind, local), rows in zip(layers, fixed, strict=True)
        ]
        super().__init__(layers=list(self.own))

    @property
    def live_bytes(self) -> int:
        """Bytes of the rows in use."""
        parts = [layer.rows.live for layer in self.own if layer.rows is not None]
        return sum(p.k.numel() * p.k.element_size() + p.v.numel() * p.v.element_size() for p in parts)

    @property
    def held_bytes(self) -> int:
        """Bytes on the device, free rows and rotated keys included."""
        return self.meter.now

    @property
    def peak_bytes(self) -> int:
        """Most bytes on the device at one time, the layer at work included."""
        return self.meter.peak

    @property
    def host_bytes(self) -> int:
        return sum(layer.host.held_bytes for layer in self.own)

    @property
    def keep_ratio(self) -> float:
        """Rows kept over tokens seen, full-attention layers only; 1.0 before the first token."""
        layers = [layer for layer in self.own if layer.local is None]
        seen = sum(layer.seen for layer in layers)
        return sum(layer.rows.n for layer in layers if layer.rows is not None) / seen if seen else 1.0

    @property
    def is_quiet(self) -> bool:
        """Whether the next token is only read and added, in every layer (only in an arena)."""
        return all(layer.is_quiet for layer in self.own)

    @property
    def is_settled(self) -> bool:
        """Whether the arena holds this cache as it is, so that steps may follow which touch the device alone."""
        return all(layer.is_settled for layer in self.own)

    @property
    def addresses(self) -> tuple[object, ...]:
        """Another one, when such a step has to read or write elsewhere: what it reads lives as long as this does."""
        assert self.arena is not None
        return self.arena, self._rotary, self.arena.moves, self._rotary.moves

    def settle(self) -> None:
        """Make ready for such steps."""
        assert self.arena is not None
        for layer in self.own:
            layer.settle()
        self.arena.position.fill_(self.get_seq_length())

    def count_one(self) -> None:
        """One such step was taken."""
        for layer in self.own:
            layer.count_one()

    def fork(self) -> SlidingSparseCache:
        """A cache that continues from here on its own: a second question on one context."""
        other = object.__new__(SlidingSparseCache)
        other.policy, other.meter, other.arena, other._rotary = self.policy, Meter(), None, self._rotary
        other.own = [layer.fork(other.meter) for layer in self.own]
        Cache.__init__(other, layers=list(other.own))
        return other

    def __deepcopy__(self, memo: Any) -> SlidingSparseCache:
        return self.fork()


def arena_for(model: Any, policy: Policy, *, room: int | None = None) -> Arena:
    """Rows that never move, for caches of this policy and one sequence at a time.

    ``room`` is the most rows of a layer that ``policy`` does not bound; without it, they grow and then do move. If its
    caches are used under ``torch.inference_mode``, then always.

    Raises
    ------
    InvalidInput : positions are renumbered, or rotated keys are not kept
    """
    return Arena(policy, [local for _, local in _layers_of(model)], model.device, room=room)


def bytes_bound(model: Any, policy: Policy, chunk: int, *, batch: int = 1, is_in_arena: bool = False) -> int | None:
    """Most bytes that a cache of this policy ever holds on the device; None without ``max_blocks``.

    All layers at their row bound with rotated keys, and one layer at work: on a chunk (its rows joined, and rotated; or
    beside those that are stored of them), on an exchange, or on the keys of the host tier.
    """
    rows, passing = policy.rows_bound(), policy.transient_rows(chunk)
    if rows is None or passing is None:
        return None
    back = policy.recall_at_once(policy.decode_recall) * policy.block
    scored = min(max(SCORED_AT_ONCE, policy.block), policy.host_blocks * policy.block)
    working = max(3 * passing, 2 * passing + 2 * rows, 4 * rows + 4 * back, rows + 2 * scored)
    config = model.config.get_text_config(decoder=True)
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    row_bytes = batch * config.num_key_value_heads * dim * model.dtype.itemsize  # one key, or one value
    held, most = 0, 0
    for _, local in _layers_of(model):
        kept = rows if local is None else local + 2 * policy.block
        kept = rounded(kept) if is_in_arena else kept
        held += kept * (3 if policy.memo else 2)
        most = max(most, working if local is None else max(3 * (kept + chunk), 4 * kept + 2 * chunk))
    if is_in_arena:  # the queries that are kept
        groups = config.num_attention_heads // config.num_key_value_heads
        held += sum(local is None for _, local in _layers_of(model)) * policy.observe * groups
    return int((held + most) * row_bytes)


@contextmanager
def attached(model: Any, *, check: bool = True) -> Iterator[None]:
    """Route a model through the sliding-sparse attention; on exit everything is as it was, bit for bit.

    Raises
    ------
    Unsupported : the model rotates or attends in a way that this cache does not know (MLA, interleaved rotary,
        soft-capped scores, attention sinks, layers without positions); found by comparing with the model itself,
        not by its name
    """
    decoder = _decoder(model)
    if not hasattr(decoder, "rotary_emb"):
        raise Unsupported(f"{type(model).__name__} has no rotary positions in one place")
    if isinstance(decoder.rotary_emb, DeferredRotary):
        raise InvalidInput("the model is attached already")
    real, implementation = decoder.rotary_emb, model.config._attn_implementation
    expected = _probe(model) if check else None
    rotary = DeferredRotary(real)
    marks = _mark(decoder, rotary, _layers_of(model))
    decoder.rotary_emb = rotary
    try:
        model.set_attn_implementation(NAME)
        if expected is not None:
            _compare(model, expected)
        yield
    finally:
        decoder.rotary_emb = real
        model.set_attn_implementation(implementation)
        for module in marks:
            del module.__dict__[_MARK]


def _mark(decoder: Any, rotary: DeferredRotary, layers: list[tuple[str | None, int | None]]) -> list[Any]:
    """Tell each attention module its rotary, after checking that its rotation is the one known here."""
    modules = [getattr(layer, "self_attn", None) for layer in decoder.layers]
    for module, (kind, _) in zip(modules, layers, strict=True):
        if module is None or not hasattr(module, "head_dim"):
            raise Unsupported(f"{type(decoder).__name__} has a layer without attention of the usual kind")
        check_rotation(module, rotary, kind)
    for module, (kind, _) in zip(modules, layers, strict=True):
        module.__dict__[_MARK] = (rotary, kind)
    return modules


def _layers_of(model: Any) -> list[tuple[str | None, int | None]]:
    """(layer type for the rotary, own sliding window) of each layer."""
    config = model.config.get_text_config(decoder=True)
    types, settings = get_layer_types_and_kwargs(config)
    strange = set(types) - {"full_attention", "sliding_attention"}
    if strange:
        raise Unsupported(f"{type(model).__name__} has layers of type {', '.join(sorted(strange))}")
    by_type = getattr(config, "layer_types", None) is not None
    return [(t if by_type else None, s.get("sliding_window")) for t, s in zip(types, settings, strict=True)]


def _decoder(model: Any) -> Any:
    return model.get_decoder() if hasattr(model, "get_decoder") else model.model


@torch.inference_mode()
def _probe(model: Any, *, cache: Any = None) -> torch.Tensor:
    """Logits (1, n, vocabulary) of a fixed prompt, in one pass, or through a cache in two passes and one step."""
    size = model.get_input_embeddings().num_embeddings
    ids = torch.arange(1, CHECKED_TOKENS + 1, device=model.device).mul(7919).remainder(size)[None]
    if cache is None:
        logits: torch.Tensor = model(ids, use_cache=False).logits
        return logits.float()
    parts = torch.tensor_split(ids, (CHECKED_TOKENS // 2, CHECKED_TOKENS - 1), dim=1)
    return torch.cat([model(part, cache=cache, use_cache=True).logits for part in parts], 1).float()


def _compare(model: Any, expected: torch.Tensor) -> None:
    """The attached model must say what it said before; else it does something that was not foreseen."""
    lossless = Policy(threshold=0.0, max_blocks=None, window=CHECKED_TOKENS)
    try:
        found = _probe(model, cache=SlidingSparseCache(model, lossless))
    except (RuntimeError, TypeError, AttributeError, ValueError) as e:
        raise Unsupported(f"{type(model).__name__} does not run with this cache: {type(e).__name__}: {e}") from e
    error = float((found - expected).abs().max() / expected.abs().max().clamp_min(1.0))
    if not error <= TOLERANCE.get(model.dtype, 1e-1):
        raise Unsupported(
            f"{type(model).__name__} computes attention in a way that this cache does not know: logits differ by "
            f"{error:.1e} of their range"
        )


def _attention(
    module: Any,
    query: torch.Tensor,
    key: Any,
    value: Any,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The registered attention function; without a cache, a lossless layer serves for this one call."""
    for name in ("softcap", "s_aux"):
        if kwargs.get(name) is not None:
            raise Unsupported(f"{type(module).__name__} uses {name}, which this cache does not know")
    if attention_mask is not None and attention_mask.dim() != 2:
        raise InvalidInput("the sliding-sparse cache takes a padding mask (batch, tokens), not one per query")
    layer = key
    if not isinstance(layer, SlidingSparseLayer):
        if key.shape[2] != query.shape[2]:
            raise InvalidInput(
                "this model is attached to the sliding-sparse cache; another cache has no positions here"
            )
        rotary, kind = getattr(module, _MARK)
        lossless = Policy(threshold=0.0, max_blocks=None)
        layer = SlidingSparseLayer(lossless, rotary, kind, kwargs.get("sliding_window"), Meter())
        layer.update(key, value, kwargs=kwargs)
    return layer.attend(query, module.head_dim**-0.5 if scaling is None else scaling, attention_mask), None


def _mask(*_: Any, attention_mask: torch.Tensor | None = None, **__: Any) -> torch.Tensor | None:
    """The 2-D padding mask as it is; None when nothing is padded (one look per forward pass, not per layer)."""
    return None if attention_mask is None or bool(attention_mask.all()) else attention_mask.bool()


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
