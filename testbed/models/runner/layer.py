"""One layer of the sliding-sparse cache: reading with positions, scoring, pruning, recall."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from transformers.cache_utils import CacheLayerMixin

from testbed.core.errors import InvalidInput
from testbed.models.runner.dense import attention, visible
from testbed.models.runner.host import HostTier
from testbed.models.runner.policy import Policy
from testbed.models.runner.rotary import DeferredRotary, rotate
from testbed.models.runner.rows import Part, Rows, in_order, joined
from testbed.models.runner.scores import BlockScores, asked_for, attention_mass, block_weight, share_of_best, staying


class Cut(NamedTuple):
    """A decision: rows that stay, numbers of the blocks that go (their rows in the same order), and their scores."""

    stay: torch.Tensor | slice
    losers: list[int]
    lost_rows: torch.Tensor | None
    wanted: list[float]


class Meter:
    """Bytes of all layers of one cache, and the most there ever were at one time."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0

    def change(self, by: int) -> None:
        self.now += by
        self.peak = max(self.peak, self.now)


class SlidingSparseLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys without positions and values of one attention layer.

    ``update`` keeps the new rows aside and returns the layer itself; the attention function then calls ``attend``,
    which reads old and new rows together, decides what stays, and only then stores it. So between two forward passes
    a layer never holds more than the policy allows, whatever the length of the chunk.

    A layer with a sliding window of its own (``local``) is cut exactly there: such rows can never be seen again.
    """

    is_compileable = False
    is_croppable = False
    is_sliding = False
    supports_early_init = False

    def __init__(
        self, policy: Policy, rotary: DeferredRotary, layer_type: str | None, local: int | None, meter: Meter
    ) -> None:
        self.policy = policy
        self.local = local
        self._rotary = rotary
        self._layer_type = layer_type
        self._meter = meter
        self._clear()

    def _clear(self) -> None:
        self.is_initialized = False
        self.seen = 0  # tokens ever seen: what the model and generate() call the length
        self.recalled: list[int] = []  # numbers of blocks that came back, in the order they came
        self.host = HostTier(self.policy.host_blocks, self.policy.block)
        self._highest = 0  # no position id exceeds it
        self._rows: Rows | None = None
        self._new: Part | None = None
        self._scores = BlockScores()
        self._queries: torch.Tensor | None = None  # last rotated decode queries, for the next scoring
        self._since_pruned = 0
        self._memo: torch.Tensor | None = None  # rotated keys of the first _memo_n rows
        self._memo_n = 0
        self._held = 0

    # -- what transformers calls ----------------------------------------------------------------------------------

    @property
    def keys(self) -> torch.Tensor | None:
        """(batch, kv_heads, n, d) without positions, as a view."""
        return None if self._rows is None else self._rows.live.k.transpose(1, 2)

    @keys.setter
    def keys(self, _: Any) -> None:
        raise InvalidInput("the rows of a sliding-sparse layer are written by update only")

    @property
    def values(self) -> torch.Tensor | None:
        return None if self._rows is None else self._rows.live.v.transpose(1, 2)

    @values.setter
    def values(self, _: Any) -> None:
        raise InvalidInput("the rows of a sliding-sparse layer are written by update only")

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.batch_size = key_states.shape[0]
        self.is_initialized = True

    def update(  # type: ignore[override]
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, kwargs: Any = None, **_: Any
    ) -> tuple[SlidingSparseLayer, SlidingSparseLayer]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        t = key_states.shape[2]
        index = torch.arange(self.seen, self.seen + t, device=self.device)
        pos = (kwargs or {}).get("position_ids")
        if pos is None:
            pos = index[None]
        elif pos.shape[0] > 1 or pos.device.type == "cpu" or not self._rotary.is_static:
            # on a GPU this waits for the device: not for the plain case, whose positions are below ``seen``
            self._highest = max(self._highest, int(pos.max()))
        self._new = Part(key_states.transpose(1, 2), value_states.transpose(1, 2), index, pos.to(self.device))
        self.seen += t
        self._highest = max(self._highest, self.seen)
        return self, self

    def get_seq_length(self) -> int:
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self._meter.change(-self._held)
        self._clear()

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove:
            raise InvalidInput("dropped blocks cannot be rolled back; fork the cache before a speculative step")

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.is_initialized:
            each = torch.arange(self.batch_size, device=self.device)
            self.batch_select_indices(each.repeat_interleave(repeats))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self._rows is None:
            return
        if len(self.host):
            raise InvalidInput("beams cannot be reordered while blocks are in host memory; set host_blocks=0")
        self._set(self._rows.select_batch(indices.to(self.device)))
        self.batch_size = len(indices)
        self._queries = None if self._queries is None else self._queries[indices]

    def offload(self) -> None:
        raise InvalidInput("a sliding-sparse cache moves blocks by itself; use host_blocks instead of offloading")

    # -- reading --------------------------------------------------------------------------------------------------

    def attend(self, q: torch.Tensor, scaling: float, padding: torch.Tensor | None) -> torch.Tensor:
        """Attention of the new tokens over what is kept, (batch, t, heads, d_value).

        ``q`` (batch, heads, t, d) before rotation; ``padding`` (batch, seen) True where a token is real, or None.
        """
        assert self._new is not None
        new, self._new = self._new, None
        q = self._rotated_queries(q, new)
        out = self._decode(q, new, scaling, padding) if q.shape[2] == 1 else self._prefill(q, new, scaling, padding)
        return out.transpose(1, 2).contiguous()

    def _prefill(self, q: torch.Tensor, new: Part, scaling: float, padding: torch.Tensor | None) -> torch.Tensor:
        self._forget_memo()
        back = self._recalled(q, scaling, self.policy.recall, q.shape[2])
        old = [] if self._rows is None else [self._rows.live]
        part = joined([*old, new]) if back is None else in_order([*old, back, new])
        k = self._rotated(part.k, self._positions(part)).transpose(1, 2)
        passing = part.k.nbytes + part.v.nbytes + k.nbytes
        self._meter.change(passing)
        out = attention(q, k, part.v.transpose(1, 2), scaling, part.token, padding, self.local)
        cut = self._cut(q, k, scaling, part.token, padding)
        del k, old
        self._store(part, cut)
        self._queries, self._since_pruned = None, 0
        self._meter.change(-passing)
        return out

    def _decode(self, q: torch.Tensor, new: Part, scaling: float, padding: torch.Tensor | None) -> torch.Tensor:
        if self._since_pruned == 0 and len(self.host) and self.policy.decode_recall:
            back = self._recalled(q, scaling, self.policy.decode_recall, 1)
            if back is not None and self._rows is not None:
                self._set(Rows(in_order([self._rows.live, back]), self.policy.block))
        if self._rows is None:
            self._set(Rows(new, self.policy.block))
        else:
            self._rows.append(new)
        assert self._rows is not None
        part = self._rows.live
        k = self._memoised(part) if self._may_memoise else self._rotated(part.k, self._positions(part))
        self._measure()
        out = attention(q, k.transpose(1, 2), part.v.transpose(1, 2), scaling, part.token, padding, self.local)
        self._after_decode(q, k.transpose(1, 2), scaling, padding)
        return out

    def _after_decode(self, q: torch.Tensor, k: torch.Tensor, scaling: float, padding: torch.Tensor | None) -> None:
        """Remember the query; after a whole block of tokens, prune."""
        assert self._rows is not None
        part = self._rows.live
        if self.local is not None:
            if self._rows.n >= self.local + self.policy.block:
                self._store(part, self._outside_window(self._rows.n))
            return
        self._since_pruned += 1
        queries = [q] if self._queries is None else [self._queries, q]
        self._queries = torch.cat(queries, 2)[:, :, -self.policy.observe :]
        if self._since_pruned == self.policy.block:
            self._store(part, self._cut(self._queries, k, scaling, part.token, padding), is_copy_needed=False)
            self._queries, self._since_pruned = None, 0

    def _rotated_queries(self, q: torch.Tensor, new: Part) -> torch.Tensor:
        pos = new.pos
        if self.policy.positions == "compact":
            held = 0 if self._rows is None else self._rows.n
            pos = torch.arange(held, held + pos.shape[1], device=self.device)[None]
        cos, sin = self._rotary.at(q, pos, self._layer_type, self._highest)
        return rotate(q, cos[:, None], sin[:, None])

    def _rotated(self, k: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        cos, sin = self._rotary.at(k, pos, self._layer_type, self._highest)
        return rotate(k, cos[:, :, None], sin[:, :, None])

    def _positions(self, part: Part) -> torch.Tensor:
        """Those the model was given, or the ranks of the rows, so that no distance exceeds their number."""
        if self.policy.positions == "compact":
            return torch.arange(part.token.shape[0], device=self.device)[None]
        return part.pos

    @property
    def _may_memoise(self) -> bool:
        return self.policy.memo and self._rotary.is_static and self.policy.positions == "absolute"

    def _memoised(self, part: Part) -> torch.Tensor:
        """Rotated keys of all rows; only rows that came since the last call are rotated."""
        assert self._rows is not None
        n = self._rows.n
        if self._memo is None or self._memo.shape[1] < n:
            memo = part.k.new_empty(part.k.shape[0], self._rows.capacity, *part.k.shape[2:])
            if self._memo is not None:
                memo[:, : self._memo_n] = self._memo[:, : self._memo_n]
            self._memo = memo
        if self._memo_n < n:
            new = slice(self._memo_n, n)
            self._memo[:, new] = self._rotated(part.k[:, new], part.pos[:, new])
            self._memo_n = n
        return self._memo[:, :n]

    def _forget_memo(self) -> None:
        self._memo, self._memo_n = None, 0
        self._measure()

    # -- pruning and recall ---------------------------------------------------------------------------------------

    def _cut(
        self, q: torch.Tensor, k: torch.Tensor, scaling: float, index: torch.Tensor, padding: torch.Tensor | None
    ) -> Cut | None:
        """What goes after these queries; None when nothing does."""
        n = index.shape[0]
        if self.local is not None:
            return self._outside_window(n)
        p = self.policy
        cold = self._cold(n, self.seen)
        if cold.stop == cold.start or p.is_lossless:
            return None
        first, n_blocks = cold.start, (cold.stop - cold.start) // p.block
        q = q[:, :, -p.observe :]
        # without padding only the last rows hide from some of these queries
        masked = n if padding is not None else min(n, q.shape[2])
        mask = visible(q.shape[2], masked, index[n - masked :], padding)
        mass = attention_mass(q, k, scaling, mask, first, n_blocks, p.block)
        blocks = index[cold][:: p.block] // p.block
        self._scores.fold(blocks, share_of_best(mass, p.heads), p.decay)
        score = self._scores.spread(blocks, p.spread)
        gone = (~staying(score, self._scores.of(blocks), p)).nonzero().squeeze(1)
        if not len(gone):
            return None
        within = torch.arange(p.block, device=index.device)
        lost_rows = (first + gone[:, None] * p.block + within).flatten()
        stays = torch.ones(n, dtype=torch.bool, device=index.device)
        stays[lost_rows] = False
        return Cut(stays.nonzero().squeeze(1), blocks[gone].tolist(), lost_rows, score[gone].tolist())

    def _cold(self, n: int, seen: int) -> slice:
        """Which of the first ``n`` rows were cold after ``seen`` tokens: neither sinks nor in the window.

        Cold blocks are whole; in storage they follow the sinks, and the window follows them: where they begin and end
        is known without looking at the rows.
        """
        p = self.policy
        first = min(p.sink, seen)
        edge = max((seen - p.window) // p.block * p.block, first)  # tokens from here on are in the window
        return slice(first, first + max(0, n - first - (seen - edge)) // p.block * p.block)

    def _outside_window(self, n: int) -> Cut | None:
        """A layer with a window of its own: the next query sees the last ``local`` - 1 of these rows."""
        assert self.local is not None
        return Cut(slice(n - self.local + 1, None), [], None, []) if n >= self.local else None

    def _store(self, part: Part, cut: Cut | None, *, is_copy_needed: bool = True) -> None:
        """Make what stays of ``part`` the rows of this layer."""
        if cut is None:
            if is_copy_needed:
                self._set(Rows(part, self.policy.block))
            return
        if cut.losers:
            assert cut.lost_rows is not None
            if self.policy.host_blocks:
                self.host.demote(cut.losers, part.take(cut.lost_rows), cut.wanted)
            self._scores.forget(torch.tensor(cut.losers, device=part.token.device))
        self._set(Rows(part, self.policy.block, cut.stay))

    def _recalled(self, q: torch.Tensor, scaling: float, most: int, n_new: int) -> Part | None:
        """The host blocks that these queries ask for, taken out of the host tier: as many as ``most`` with neighbours.

        The cold blocks that are here compete with them: what is beside one of those may be the other half of a fact.
        """
        p = self.policy
        if not len(self.host) or not most or self._rows is None:
            return None
        q = q[:, :, -p.observe :]
        weight, numbers = self.host.weight_of(q, scaling, self._rotated), self.host.blocks
        here: list[int] = []
        cold = self._cold(self._rows.n, self.seen - n_new)
        if p.spread and cold.stop > cold.start:
            part = self._rows.live.take(cold)
            k = self._rotated(part.k, part.pos).transpose(1, 2)
            weight = torch.cat([weight, block_weight(q, k, scaling, p.block)], -1)
            here = (part.token[:: p.block] // p.block).tolist()
        back = sorted(asked_for(weight, numbers + here, set(here), p.spread)[: most * (1 + 2 * p.spread)])
        self.recalled += back
        return self.host.recall(back, self.device)

    def _set(self, rows: Rows) -> None:
        self._rows, self._memo, self._memo_n = rows, None, 0
        self._measure()

    def _measure(self) -> None:
        held = 0 if self._rows is None else self._rows.held_bytes
        held += 0 if self._memo is None else self._memo.nbytes
        self._meter.change(held - self._held)
        self._held = held

    # -- looking and copying --------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Bytes on the device, free rows and rotated keys included."""
        return self._held

    @property
    def rows(self) -> Rows | None:
        return self._rows

    def fork(self, meter: Meter) -> SlidingSparseLayer:
        """A layer that continues from here on its own; buffers are shared until one of the two writes."""
        assert self._new is None, "a layer is forked between two forward passes"
        other = SlidingSparseLayer(self.policy, self._rotary, self._layer_type, self.local, meter)
        if self.is_initialized:
            other.dtype, other.device, other.batch_size = self.dtype, self.device, self.batch_size
        other.is_initialized = self.is_initialized
        other.seen, other._highest, other._since_pruned = self.seen, self._highest, self._since_pruned
        other.recalled = list(self.recalled)
        other.host, other._scores = self.host.fork(), self._scores.fork()
        other._queries = self._queries
        if self._rows is not None:
            other._set(self._rows.fork())
        return other
