"""A prefix cache as a layer of a stack: the engine reads blocks through a ``Cache`` that can be watched and wrapped.

    engine -> LayeredPrefix -> stack.layers["prefix"] -> BlockCache -> PrefixCache

A key holds all that the numbers of a block depend on, as named parts: ``model``, ``adapter`` (name and fingerprint),
``tenant`` (the salt), ``layout``, and ``text``, everything up to the block's end. A value is a dict with ``rows`` (the
block's keys and values, float32) and whatever else was said of it when it was put.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from testbed.core.types import Key
from testbed.models.runner.chain import Identity
from testbed.models.runner.prefix import PrefixCache, Rows
from testbed.models.runner.steps import KeyValues
from testbed.models.runner.tokens import Tokenizer


class BlockCache:
    """The ``Cache`` protocol over a prefix cache. ``get_many`` and ``put_many`` take the blocks of one text, in order.

    What was said of a block stays with the slot that it was written to: when another block is written there, it goes.
    """

    def __init__(self, prefix: PrefixCache, tokenizer: Tokenizer) -> None:
        self._prefix = prefix
        self._tokenizer = tokenizer

    def get(self, key: Key) -> Any | None:
        ids = self._ids(key)
        found = self._prefix.take(identity_of(key), ids)
        return _value(found[-1]) if len(found) == len(ids) // self._prefix.block else None

    def get_many(self, keys: Sequence[Key]) -> list[Any | None]:
        found = self._prefix.take(identity_of(keys[-1]), self._ids(keys[-1])) if keys else []
        return [*map(_value, found), *[None] * (len(keys) - len(found))]

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self.put_many([(key, value)])

    def put_many(self, items: Sequence[tuple[Key, Any]]) -> None:
        if not items:
            return
        longest = items[-1][0]
        blocks = {len(self._ids(key)) // self._prefix.block - 1: _rows(value) for key, value in items}
        self._prefix.put_blocks(identity_of(longest), self._ids(longest), blocks)

    def delete(self, key: Key) -> None:
        self._prefix.drop(identity_of(key), self._ids(key))

    def fresh(self) -> BlockCache:
        return BlockCache(self._prefix.fresh(), self._tokenizer)

    def _ids(self, key: Key) -> list[int]:
        return self._tokenizer.encode(key.get("text"))


class LayeredPrefix:
    """What the engine takes for its prefix cache; ``get_many`` and ``put_many`` reach the layer as it is now, with all
    that is around it.

    ``made_of`` of a value is the digest of the key that it was computed for. ``describe(rows, end)`` is said of each
    block that is put: more fields of its value, for a block that ends after ``end`` tokens. ``used`` holds the values
    of the blocks that the last prompt was read with.
    """

    def __init__(
        self,
        block: int,
        tokenizer: Tokenizer,
        get_many: Callable[[Sequence[Key]], list[Any | None]],
        put_many: Callable[[Sequence[tuple[Key, Any]]], None],
        describe: Callable[[Any, int], dict[str, Any]] = lambda rows, end: {},
    ) -> None:
        self.block = block
        self.held_bytes = 0
        self.used: list[Any] = []
        self._tokenizer = tokenizer
        self._get_many, self._put_many = get_many, put_many
        self._describe = describe

    def find(self, identity: Identity, ids: Sequence[int]) -> tuple[int, KeyValues]:
        values = self._get_many(self._keys(identity, ids[:-1]))
        n = next((i for i, value in enumerate(values) if value is None), len(values))
        self.used = values[:n]
        if not n:
            return 0, []
        blocks = [_rows(value).layers for value in self.used]
        layers = [[torch.cat([b[at][side] for b in blocks], 1) for side in (0, 1)] for at in range(len(blocks[0]))]
        return n * self.block, [(k, v) for k, v in layers]

    def put(self, identity: Identity, ids: Sequence[int], layers: KeyValues) -> None:
        """Put what was computed anew; what was found is there."""
        items = []
        for i, key in enumerate(self._keys(identity, ids[: layers[0][0].shape[1]])):
            if i < len(self.used):
                continue
            cut = slice(i * self.block, (i + 1) * self.block)
            rows = torch.stack([torch.stack([k[:, cut], v[:, cut]]) for k, v in layers]).numpy()
            said = {"made_of": key.digest(), **self._describe(rows, (i + 1) * self.block)}
            items.append((key, {"rows": rows, **said}))
        self._put_many(items)

    def _keys(self, identity: Identity, ids: Sequence[int]) -> list[Key]:
        """One key for each whole block."""
        ends = range(self.block, len(ids) + 1, self.block)
        adapter = f"{identity.adapter_name}:{identity.adapter}" if identity.adapter else ""
        return [
            Key.of(
                text=self._tokenizer.decode(ids[:end]),
                tenant=identity.salt,
                adapter=adapter,
                model=identity.model,
                layout=identity.layout,
            )
            for end in ends
        ]


def identity_of(key: Key) -> Identity:
    """The identity that a key was made from."""
    name, _, fingerprint = key.get("adapter").rpartition(":")
    return Identity(key.get("model"), fingerprint, key.get("tenant"), key.get("layout"), name)


def _rows(value: Any) -> Rows:
    """(layers, 2, kv_heads, block, d) as the cache holds it, with the other fields as its label."""
    parts = torch.from_numpy(np.ascontiguousarray(value["rows"]))
    return Rows([(layer[0], layer[1]) for layer in parts], {n: v for n, v in value.items() if n != "rows"})


def _value(block: Rows) -> dict[str, Any]:
    rows = torch.stack([torch.stack(side) for side in block.layers]).numpy()
    return {"rows": rows, **(block.label or {})}
