"""Steps of a small model that were taken before are not taken again: the same rows and logits, from memory.

A step's outcome, its logits and the rows that it adds to every layer, is a function of the weights, of the rows before
it and of its tokens. A memo of the harness holds it under the digest of all of these, so that whose blocks a prompt was
read with cannot reach another one: other rows are another name.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

KeyValues = list[tuple[torch.Tensor, torch.Tensor]]  # per layer: keys and values, (kv_heads, n, d)


class _Outcome(NamedTuple):
    logits: torch.Tensor
    added: KeyValues  # per layer: (1, kv_heads, n, d)


class _Place(NamedTuple):
    """What a cache holds: the digest of what its rows were made from, and how many there are."""

    made_of: bytes
    n: int


class StepMemo:
    """At most ``limit`` outcomes by name; the least recently used ones go first. One for all models of a process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[bytes, _Outcome] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, name: bytes) -> _Outcome | None:
        with self._lock:
            found = self._held.get(name)
            if found is not None:
                self._held.move_to_end(name)
            return found

    def put(self, name: bytes, outcome: _Outcome) -> None:
        with self._lock:
            self._held[name] = outcome
            if len(self._held) > self._limit:
                self._held.popitem(last=False)


class SteppedModel:
    """A model in front of which a memo stands. ``begins`` says what a cache holds; other caches go to the model itself.

    For models whose layers all keep every row, one sequence at a time.
    """

    def __init__(self, model: Any, memo: StepMemo) -> None:
        self._model = model
        self._memo = memo
        self._places: WeakKeyDictionary[Any, _Place] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def begins(self, cache: Any, weights: str, rows: KeyValues) -> None:
        """A new cache of these rows, for a model of these weights (the digest of all that counts, adapters included).

        Nobody but this model's steps may change the cache from now on.
        """
        h = hashlib.blake2b(weights.encode(), digest_size=32)
        for row in (side for layer in rows for side in layer):
            h.update(f":{row.dtype}:{tuple(row.shape)}:".encode())
            h.update(row.contiguous().view(torch.uint8).numpy().tobytes())
        self._places[cache] = _Place(h.digest(), rows[0][0].shape[1] if rows else 0)

    def __call__(self, ids: torch.Tensor, *, cache: Any = None, **how: Any) -> Any:
        place = self._places.pop(cache, None) if cache is not None else None
        plain = len(ids) == 1 and not any(isinstance(value, torch.Tensor) for value in how.values())
        if place is None or not plain or cache.get_seq_length() != place.n:
            return self._model(ids, cache=cache, **how)
        tokens = ids[0].tolist()
        name = hashlib.blake2b(repr((place.made_of, tokens, sorted(how.items()))).encode(), digest_size=32).digest()
        outcome = self._memo.get(name)
        if outcome is None:
            logits = self._model(ids, cache=cache, **how).logits
            added = [tuple(side[:, :, place.n :].clone() for side in (at.keys, at.values)) for at in cache.layers]
            self._memo.put(name, _Outcome(logits.clone(), [(k, v) for k, v in added]))
        else:
            logits = outcome.logits.clone()
            for layer, (keys, values) in zip(cache.layers, outcome.added, strict=True):
                layer.update(keys, values)
        self._places[cache] = _Place(name, place.n + len(tokens))
        return SimpleNamespace(logits=logits)
