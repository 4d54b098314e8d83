"""KV blocks kept from one request to the next, under names that say everything they depend on.

A prompt is read in steps of exactly one block, at the same borders whether or not its beginning was found here. A hit
and a miss therefore run the same matrix products on the same shapes, and give the same bits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer, get_layer_types_and_kwargs

from testbed.core.errors import InvalidInput, Unsupported
from testbed.models.runner.chain import Identity, KeyScheme, TypedKeys
from testbed.models.runner.steps import KeyValues, SteppedModel


@dataclass(slots=True)
class _Block:
    """``proof`` names the text and identity soundly, whatever scheme the cache is keyed by."""

    tokens: tuple[int, ...]
    proof: bytes
    outer: bytes
    slot: int


class Rows(NamedTuple):
    """One block as it is handed out: its keys and values, and what was said of them when they were put."""

    layers: KeyValues  # per layer: (kv_heads, block, d)
    label: Any = None


class Prefixes(Protocol):
    """What the engine asks of a prefix cache."""

    @property
    def block(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    def find(self, identity: Identity, ids: Sequence[int]) -> tuple[int, KeyValues]: ...
    def put(self, identity: Identity, ids: Sequence[int], layers: KeyValues) -> None: ...


class _Step(NamedTuple):
    """One block of a prompt with its names: in this cache, in the outer tier, and the sound one."""

    tokens: tuple[int, ...]
    key: bytes
    outer: bytes
    proof: bytes


class PrefixCache:
    """At most ``max_bytes`` of KV blocks of ``block`` tokens, the least recently used ones go first.

    With ``outer_bytes``, evicted blocks move to a second tier and are loaded back on demand.

    What keeps answers apart is spelled out, so that each can be taken away by itself:
    ``keys`` and ``outer_keys`` name the blocks of the two tiers; ``checks_hits`` compares a found block's tokens and
    identity before it is used; ``pins`` keeps the blocks of a prompt in place while the rest of it is loaded back.
    """

    def __init__(self, max_bytes: int, *, block: int = 256, outer_bytes: int = 0) -> None:
        if block < 1 or max_bytes < 0 or outer_bytes < 0:
            raise InvalidInput(f"block={block} must be >= 1, max_bytes={max_bytes} and outer_bytes={outer_bytes} >= 0")
        self.block = block
        self.keys: KeyScheme = TypedKeys()
        self.outer_keys: KeyScheme = TypedKeys()
        self.checks_hits = True
        self.pins = True
        self._sound = TypedKeys()
        self._max_bytes, self._outer_bytes = max_bytes, outer_bytes
        self._blocks: OrderedDict[bytes, _Block] = OrderedDict()  # least recently used first
        self._outer: OrderedDict[bytes, tuple[_Block, Rows]] = OrderedDict()
        self._pinned: set[bytes] = set()
        self._pool: KeyValues = []  # per layer: (slots, kv_heads, block, d)
        self._labels: list[Any] = []  # of what is in each slot now, whoever believes what of it
        self._free: list[int] = []
        self._block_bytes = 0

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def held_bytes(self) -> int:
        """Bytes of the blocks in use, both tiers."""
        return (len(self._blocks) + len(self._outer)) * self._block_bytes

    def find(self, identity: Identity, ids: Sequence[int]) -> tuple[int, KeyValues]:
        """Longest known beginning of a prompt: its tokens, and their keys and values per layer.

        At least the last token is never found: something has to be computed for the first logits.
        """
        slots = self._slots_of(identity, ids, len(ids) - 1)
        rows = (
            [tuple(torch.cat([pool[s] for s in slots], 1) for pool in layer) for layer in self._pool] if slots else []
        )
        return len(slots) * self.block, [(k, v) for k, v in rows]

    def take(self, identity: Identity, ids: Sequence[int]) -> list[Rows]:
        """The known whole blocks at the beginning of a text, one by one, each with the label of what is in its slot."""
        slots = self._slots_of(identity, ids, len(ids))
        return [Rows([(k[s].clone(), v[s].clone()) for k, v in self._pool], self._labels[s]) for s in slots]

    def put(self, identity: Identity, ids: Sequence[int], layers: KeyValues) -> None:
        """Keep the whole blocks of a prompt whose keys and values (kv_heads, n, d) were computed from its start."""
        n = layers[0][0].shape[1] if layers else 0
        blocks = {}
        for i in range(n // self.block):
            rows = slice(i * self.block, (i + 1) * self.block)
            blocks[i] = Rows([(k[:, rows], v[:, rows]) for k, v in layers])
        self.put_blocks(identity, ids, blocks)

    def put_blocks(self, identity: Identity, ids: Sequence[int], blocks: Mapping[int, Rows]) -> None:
        """Keep some of the whole blocks of a text, by their place in it."""
        if not blocks or not self._room(next(iter(blocks.values())).layers):
            return
        steps = list(self._steps(identity, ids, len(ids)))
        for i, block in blocks.items():
            step = steps[i]
            if step.key in self._blocks:  # a text that has another one's name is not stored: the first one keeps it
                continue
            slot = self._slot()
            if slot is None:
                break
            self._write(slot, block)
            self._blocks[step.key] = _Block(step.tokens, step.proof, step.outer, slot)
        for step in reversed(steps):
            if step.key in self._blocks:
                self._blocks.move_to_end(step.key)

    def drop(self, identity: Identity, ids: Sequence[int]) -> None:
        """Forget the last whole block of a text, in both tiers."""
        *_, step = self._steps(identity, ids, len(ids))
        block = self._blocks.pop(step.key, None)
        if block is not None:
            self._free.append(block.slot)
        self._outer.pop(step.outer, None)

    def fresh(self) -> PrefixCache:
        """An empty cache with the same settings."""
        other = PrefixCache(self._max_bytes, block=self.block, outer_bytes=self._outer_bytes)
        other.keys, other.outer_keys = self.keys, self.outer_keys
        other.checks_hits, other.pins = self.checks_hits, self.pins
        return other

    def clear(self) -> None:
        """Forget everything."""
        self._free += [b.slot for b in self._blocks.values()]
        self._blocks.clear()
        self._outer.clear()

    def _slots_of(self, identity: Identity, ids: Sequence[int], n: int) -> list[int]:
        """Where the known blocks among the first ``n`` tokens lie, up to the first one that is not known."""
        found: list[bytes] = []
        slots: list[int] = []
        for step in self._steps(identity, ids, n):
            block = self._blocks.get(step.key)
            if block is None:
                block = self._load_back(step)
            if block is None or (self.checks_hits and (block.tokens, block.proof) != (step.tokens, step.proof)):
                break
            found.append(step.key)
            slots.append(block.slot)
            if self.pins:
                self._pinned.add(step.key)
        self._pinned.clear()
        for key in reversed(found):  # the deepest blocks become the oldest: a chain is cut at its end
            if key in self._blocks:
                self._blocks.move_to_end(key)
        return slots

    @torch.inference_mode()  # as the pools were made; the caller may stand outside of it
    def _write(self, slot: int, block: Rows) -> None:
        for pool, new in zip(self._pool, block.layers, strict=True):
            for side in (0, 1):
                pool[side][slot] = new[side]
        self._labels[slot] = block.label

    def _steps(self, identity: Identity, ids: Sequence[int], n: int) -> Iterator[_Step]:
        key, outer, proof = (scheme.root(identity) for scheme in (self.keys, self.outer_keys, self._sound))
        for start in range(0, n - self.block + 1, self.block):
            tokens = tuple(ids[start : start + self.block])
            key, outer = self.keys.child(key, tokens), self.outer_keys.child(outer, tokens)
            proof = self._sound.child(proof, tokens)
            yield _Step(tokens, key, outer, proof)

    def _room(self, layers: KeyValues) -> bool:
        """Make the pool at the first use; False when not even one block fits."""
        if not self._pool:
            one = [(k[:, : self.block], v[:, : self.block]) for k, v in layers]
            self._block_bytes = sum(self.block * side[:, 0].numel() * side.element_size() for kv in one for side in kv)
            slots = self._max_bytes // self._block_bytes
            if slots:
                self._pool = [
                    (k.new_empty(slots, k.shape[0], self.block, k.shape[2]),
                     v.new_empty(slots, v.shape[0], self.block, v.shape[2]))
                    for k, v in layers
                ]  # fmt: skip
                self._free = list(range(slots))[::-1]
                self._labels = [None] * slots
        return bool(self._pool)

    def _slot(self) -> int | None:
        """A free slot, by evicting the least recently used block that is not pinned; None when all are."""
        if not self._free:
            loser = next((key for key in self._blocks if key not in self._pinned), None)
            if loser is None:
                return None
            block = self._blocks.pop(loser)
            self._to_outer(block)
            self._free.append(block.slot)
        return self._free.pop()

    def _to_outer(self, block: _Block) -> None:
        limit = self._outer_bytes // self._block_bytes
        if not limit:
            return
        rows = [(k[block.slot].clone(), v[block.slot].clone()) for k, v in self._pool]
        self._outer[block.outer] = (block, Rows(rows, self._labels[block.slot]))
        self._outer.move_to_end(block.outer)
        while len(self._outer) > limit:
            self._outer.popitem(last=False)

    def _load_back(self, step: _Step) -> _Block | None:
        """The block from the outer tier, in a slot again; None when it is not there or there is no room."""
        entry = self._outer.get(step.outer)
        if entry is None:
            return None
        slot = self._slot()  # may evict, and so change the outer tier
        if slot is None:
            return None
        self._outer.pop(step.outer, None)
        old, rows = entry
        self._write(slot, rows)
        block = _Block(old.tokens, old.proof, step.outer, slot)
        self._blocks[step.key] = block
        return block


class _Tapped(DynamicLayer):  # type: ignore[no-untyped-call]
    """The standard layer, which also remembers every row it was ever given (a sliding one forgets them)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.given: list[tuple[torch.Tensor, torch.Tensor]] = []

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.given is not None:
            self.given.append((key_states, value_states))
        return super().update(key_states, value_states, *args, **kwargs)


class _TappedSliding(_Tapped, DynamicSlidingWindowLayer):  # type: ignore[no-untyped-call]
    pass


def tapped_cache(model: Any) -> Cache:
    """A standard cache whose layers remember what they were given."""
    types, settings = get_layer_types_and_kwargs(model.config.get_text_config(decoder=True))
    kinds = {"full_attention": _Tapped, "sliding_attention": _TappedSliding}
    if set(types) - set(kinds):
        raise Unsupported(f"a prefix cache needs full or sliding attention layers, not {sorted(set(types))}")
    return Cache(layers=[kinds[t](**s) for t, s in zip(types, settings, strict=True)])


def prefill(
    model: Any,
    ids: Sequence[int],
    prefix: Prefixes,
    identity: Identity,
    went_on: Callable[[], None] = lambda: None,
) -> tuple[torch.Tensor, Cache, int]:
    """Read a prompt, taking its beginning from the prefix cache and leaving its blocks there.

    Returns the last logits (vocabulary,), the cache, and how many tokens were found. ``went_on`` is called between
    steps; what it raises ends the work, with nothing stored.
    """
    n_found, rows = prefix.find(identity, ids)
    cache = tapped_cache(model)
    if isinstance(model, SteppedModel):
        model.begins(cache, f"{identity.model}:{identity.adapter}", rows)
    if n_found:
        for layer, (k, v) in zip(cache.layers, rows, strict=True):
            layer.update(k[None], v[None])  # type: ignore[union-attr]
    logits = torch.empty(0)
    for start in range(n_found, len(ids), prefix.block):
        went_on()
        part = torch.tensor([list(ids[start : start + prefix.block])], device=model.device)
        logits = model(part, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
    prefix.put(identity, ids, [_given(layer) for layer in cache.layers])
    return logits.float(), cache, n_found


def _given(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """All rows of a layer, (kv_heads, n, d); it stops remembering."""
    keys, values = zip(*layer.given, strict=True)
    layer.given = None
    return torch.cat(keys, 2)[0], torch.cat(values, 2)[0]
