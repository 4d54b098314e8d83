"""One layer of the sliding-sparse cache: reading with positions, scoring, pruning, recall."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import CacheLayerMixin

from testbed.core.errors import InvalidInput
from testbed.models.runner.copies import Copies
from testbed.models.runner.dense import attention
from testbed.models.runner.fixed import FixedRows
from testbed.models.runner.host import HostTier
from testbed.models.runner.meter import Meter
from testbed.models.runner.policy import Policy
from testbed.models.runner.pruning import Cut, cold_rows, cut, least_wanted, matched, outside_window
from testbed.models.runner.rotary import DeferredRotary, rotate
from testbed.models.runner.rows import Part, Rows, in_order, joined
from testbed.models.runner.scores import BlockScores, Wanted, block_weight


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
        self,
        policy: Policy,
        rotary: DeferredRotary,
        layer_type: str | None,
        local: int | None,
        meter: Meter,
        fixed: FixedRows | None = None,
        copies: Copies | None = None,
    ) -> None:
        self.policy = policy
        self.local = local
        self._rotary = rotary
        self._layer_type = layer_type
        self._meter = meter
        self._fixed = fixed
        self._copies = copies
        self._clear()

    def _clear(self) -> None:
        self.is_initialized = False
        self.seen = 0  # tokens ever seen: what the model and generate() call the length
        self.recalled: list[int] = []  # numbers of blocks that came back, in the order they came
        self.host = HostTier(self.policy.host_blocks, self.policy.block, self._copies)
        self._highest = 0  # no position id exceeds it
        self._rows: Rows | None = None
        self._new: Part | None = None
        self._scores = BlockScores()
        self._queries: torch.Tensor | None = None  # last rotated decode queries, for the next scoring
        self._since_pruned = 0
        self._memo: torch.Tensor | None = None  # rotated keys of the first _memo_n rows
        self._memo_n = 0
        self._heads = 0
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
        if self._fixed is not None:
            if self._fixed.is_stepping:
                position = (kwargs or {})["position_ids"]
                self._new = Part(key_states.transpose(1, 2), value_states.transpose(1, 2), position[0], position)
                return self, self
            self._fixed.claim(self, is_new=self._rows is None)
        if self._new is not None:
            raise InvalidInput(
                "a forward pass with this cache has failed; its rows are not whole, begin with a new one"
            )
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
        self._measure()

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
        new = self._new
        assert new is not None
        if self._fixed is not None and self._fixed.is_stepping:
            angles = self._rotary.at(q, new.pos, self._layer_type, self._highest)
            out = self._fixed.step(q, new.k, new.v, scaling, *angles)
        else:
            self._heads = q.shape[1]
            q = self._rotated_queries(q, new)
            out = self._decode(q, new, scaling, padding) if q.shape[2] == 1 else self._prefill(q, new, scaling, padding)
        self._new = None
        return out.transpose(1, 2).contiguous()

    def _prefill(self, q: torch.Tensor, new: Part, scaling: float, padding: torch.Tensor | None) -> torch.Tensor:
        self._forget_memo()
        back = self._recalled(q, scaling)
        old = [] if self._rows is None else [self._rows.live]
        with self._meter.passing(0 if back is None else back.nbytes):
            part = joined([*old, new]) if back is None else in_order([*old, back, new])
            back = None
        with self._meter.passing(part.nbytes):
            del old
            self._set(None)  # the old rows are among these
            k = self._rotated(part.k, self._positions(part)).transpose(1, 2)
            with self._meter.passing(k.nbytes):
                out = attention(q, k, part.v.transpose(1, 2), scaling, part.token, padding, self.local)
                cut = self._cut(q, k, scaling, part.token, padding)
            del k
            self._store(part, cut)
        self._queries, self._since_pruned = None, 0
        return out

    def _decode(self, q: torch.Tensor, new: Part, scaling: float, padding: torch.Tensor | None) -> torch.Tensor:
        if self._since_pruned == 0:
            self._exchange(q, scaling)
        if self._rows is None:
            self._set(Rows(new, self.policy.block))
        else:
            if self._fixed is not None and self._rows.n >= self._fixed.capacity:
                self._set(self._rows, more=1)
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
                self._store(part, outside_window(self._rows.n, self.local))
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
            if self._fixed is not None:
                memo = self._fixed.memo
            else:
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
        if self.local is not None:
            return outside_window(index.shape[0], self.local)
        return cut(self.policy, self._scores, q, k, scaling, index, padding, self.seen)

    def _store(self, part: Part, cut: Cut | None, *, is_copy_needed: bool = True) -> None:
        """Make what stays of ``part`` the rows of this layer."""
        if cut is None:
            if is_copy_needed:
                self._set(Rows(part, self.policy.block))
            return
        if cut.losers:
            assert cut.lost_rows is not None
            self._demote(cut.losers, part.take(cut.lost_rows) if self.policy.host_blocks else part, cut.wanted)
        self._set(Rows(part, self.policy.block, cut.stay))

    def _demote(self, numbers: list[int], rows: Part, wanted: list[float]) -> None:
        """These blocks go to the host tier, if there is one; their scores were of blocks that are here."""
        if self.policy.host_blocks:
            self.host.demote(numbers, rows, wanted)
        self._scores.forget(torch.tensor(numbers, device=self.device))

    def _wanted(self, q: torch.Tensor, scaling: float, n_new: int) -> tuple[Wanted, list[int]] | None:
        """How much these queries want each block of the host tier and each cold one here; and which are here.

        None without a host tier. Those that are here compete: what is beside one may be the other half of a fact.
        """
        p = self.policy
        if not len(self.host) or self._rows is None:
            return None
        q = q[:, :, -p.observe :]
        with self._meter.passing(self.host.scoring_bytes):
            weight, numbers = self.host.weight_of(q, scaling, self._rotated), self.host.blocks
        part = self._rows.live.take(cold_rows(p, self._rows.n, self.seen - n_new))
        here: list[int] = (part.token[:: p.block] // p.block).tolist()
        if here:
            with self._meter.passing(part.k.nbytes):
                k = self._rotated(part.k, part.pos).transpose(1, 2)
                weight = torch.cat([weight, block_weight(q, k, scaling, p.block)], -1)
        return Wanted(weight, numbers + here, p.spread), here

    def _recalled(self, q: torch.Tensor, scaling: float) -> Part | None:
        """The host blocks that a chunk's queries ask for, taken out of the host tier."""
        found = self._wanted(q, scaling, q.shape[2]) if self.policy.recall else None
        if found is None:
            return None
        return self._back(found[0].first(self.host.blocks)[: self.policy.recall_at_once(self.policy.recall)])

    def _back(self, numbers: list[int]) -> Part:
        """Blocks out of the host tier."""
        numbers = sorted(numbers)
        self.recalled += numbers
        return self.host.recall(numbers, self.device)

    def _exchange(self, q: torch.Tensor, scaling: float) -> None:
        """Bring back what a decoded token asks for; where the cap has no place for it, as many blocks go to the host.

        Nothing else holds the rows down until the next pruning. Those go first that had the lowest score at the last
        one, and only for blocks that this token wants more.
        """
        p = self.policy
        found = self._wanted(q, scaling, 1) if p.decode_recall else None
        if found is None or self._rows is None:
            return
        wanted, here = found
        asked = wanted.first(self.host.blocks)[: p.recall_at_once(p.decode_recall)]
        free = len(asked) if p.max_blocks is None else max(0, p.max_blocks - len(here))
        leaving = matched(asked[free:], least_wanted(self._scores, here, p.spread), wanted)
        asked = asked[: free + len(leaving)]
        if not asked:
            return
        back = self._back(asked)
        with self._meter.passing(self._rows.live.nbytes + 2 * back.nbytes):
            part = joined([self._rows.live, back])
        del back
        with self._meter.passing(part.nbytes):
            gone = torch.tensor(sorted(leaving), device=self.device, dtype=torch.long)
            goes = torch.isin(part.token // p.block, gone)
            if leaving:
                score = self._scores.spread(gone, p.spread).tolist()
                self._demote(sorted(leaving), part.take(goes.nonzero().squeeze(1)), score)
            order = torch.argsort(part.token)
            self._set(Rows(part, p.block, order[~goes[order]]))

    def _set(self, rows: Rows | None, *, more: int = 0) -> None:
        with self._meter.passing(0 if rows is None else rows.held_bytes):  # beside those that it replaces
            if rows is not None and self._fixed is not None:
                rows = self._fixed.take(rows, more=more)
            self._rows, self._memo, self._memo_n = rows, None, 0
        self._measure()

    def _measure(self) -> None:
        if self._fixed is not None:
            held = self._fixed.held_bytes
        else:
            held = 0 if self._rows is None else self._rows.held_bytes
            held += 0 if self._memo is None else self._memo.nbytes
        self._meter.change(held - self._held)
        self._held = held

    # -- steps that nobody follows ---------------------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Whether the next token is only read and added: nothing is pruned or moved for it, and nothing comes back."""
        if self._rows is None or self._fixed is None or self._rows.n + 1 > self._rows.capacity:
            return False
        p = self.policy
        if self.local is not None:
            return self._rows.n + 1 < self.local + p.block
        may_recall = self._since_pruned == 0 and p.decode_recall and len(self.host)
        return not may_recall and self._since_pruned + 1 < p.block

    @property
    def is_settled(self) -> bool:
        return self._fixed is not None and self._fixed.is_settled and self._fixed.is_owned_by(self)

    def settle(self) -> None:
        """Put on the device all that a step needs which nobody follows."""
        assert self._rows is not None and self._fixed is not None
        self._fixed.claim(self, is_new=False)
        self._new = None  # of a step that was not finished
        k = self._memoised(self._rows.live)  # all rotated keys: a step rotates its own only
        if self._queries is not None:
            self._queries = self._queries.clone()  # it may be a view of what is written now
        self._fixed.settle(self._rows.n, self.seen, self._queries, self._heads)
        # the angles of all tokens that find a place: no other token is a quiet one
        to_come = self._fixed.capacity - self._rows.n
        self._rotary.at(k, self._rows.live.pos[:, :1], self._layer_type, self.seen + to_come)

    def count_one(self) -> None:
        """Follow one such step afterwards."""
        assert self._rows is not None and self._fixed is not None
        self._rows.count_one()
        self._memo_n += 1
        self.seen += 1
        self._highest = max(self._highest, self.seen)
        if self.local is None:
            self._since_pruned += 1
            self._queries = self._fixed.queries(min(self._since_pruned, self.policy.observe))

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
        if self._new is not None:
            raise InvalidInput("a cache is forked between two forward passes, and one of this cache has failed")
        if self._fixed is not None and self._rows is not None and not self._fixed.is_owned_by(self):
            raise InvalidInput("another cache lies in this arena by now; fork a cache before that")
        other = SlidingSparseLayer(self.policy, self._rotary, self._layer_type, self.local, meter, copies=self._copies)
        if self.is_initialized:
            other.dtype, other.device, other.batch_size = self.dtype, self.device, self.batch_size
        other.is_initialized = self.is_initialized
        other.seen, other._highest, other._since_pruned = self.seen, self._highest, self._since_pruned
        other.recalled = list(self.recalled)
        other.host, other._scores = self.host.fork(), self._scores.fork()
        if self._fixed is None:
            other._queries = self._queries
        elif self._queries is not None:
            other._queries = self._queries.clone()
        if self._rows is not None:
            other._set(self._rows.fork() if self._fixed is None else self._rows.copied())
        return other
