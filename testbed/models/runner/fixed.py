"""Rows in buffers that never move: what a CUDA graph needs, whose steps read and write the same addresses for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import ref

import torch

from testbed.core.errors import InvalidInput
from testbed.models.runner.dense import SPLITS, one_query
from testbed.models.runner.policy import Policy
from testbed.models.runner.rotary import rotate
from testbed.models.runner.rows import Part, Rows

GROWTH = 1024  # rows that an unbounded layer gets more than it needs


def rounded(room: int) -> int:
    """Rows that are made where so many are needed: parts of equal length, for ``one_query``."""
    return -(-room // SPLITS) * SPLITS


class FixedRows:
    """The buffers of one layer. Where the next row goes is a number on the device: no step looks different to the host.

    Parameters
    ----------
    room : most rows ever; None where nothing bounds them: the buffers then grow, and so move
    observe : queries that are kept for the next scoring; 0 where the layer scores nothing
    local : the layer's own window, or None
    """

    def __init__(self, room: int | None, observe: int, local: int | None) -> None:
        self.moves = 0  # how often the buffers were made anew
        self.is_stepping = False
        self.is_settled = False
        self._room = room
        self._observe = observe
        self._local = local
        self._buffer: Part | None = None
        self._queries: torch.Tensor | None = None
        self._owner: ref[object] | None = None

    @property
    def capacity(self) -> int:
        return 0 if self._buffer is None else self._buffer.k.shape[1]

    @property
    def held_bytes(self) -> int:
        """Keys, values and rotated keys, free rows included."""
        if self._buffer is None:
            return 0
        return self._buffer.nbytes + self.memo.nbytes + (0 if self._queries is None else self._queries.nbytes)

    def claim(self, owner: object, *, is_new: bool) -> None:
        """A new cache takes the place of the one before; that one must not be used again.

        Raises
        ------
        InvalidInput : another one has taken it since
        """
        if is_new:
            self._owner = ref(owner)
        elif not self.is_owned_by(owner):
            raise InvalidInput("another cache lies in this arena by now; fork a cache to keep it")
        self.is_settled = False

    def is_owned_by(self, owner: object) -> bool:
        return self._owner is not None and self._owner() is owner

    def take(self, rows: Rows, *, more: int = 0) -> Rows:
        """The same rows, in these buffers, with room for ``more`` after them."""
        part = rows.live
        if part.k.shape[0] != 1:
            raise InvalidInput(f"rows that never move are for one sequence at a time, not a batch of {part.k.shape[0]}")
        needed = rows.n + more
        if self._buffer is None or needed > self.capacity:
            self._make(part, self._room if self._room and needed <= self._room else needed + GROWTH)
        assert self._buffer is not None
        return rows.moved_to(self._buffer)

    def _make(self, like: Part, room: int) -> None:
        room = rounded(room)
        self._buffer = Part(
            like.k.new_empty(1, room, *like.k.shape[2:]),
            like.v.new_empty(1, room, *like.v.shape[2:]),
            like.token.new_empty(room),
            like.pos.new_empty(1, room),
        )
        self.memo = torch.empty_like(self._buffer.k)
        self._column = torch.arange(room, device=like.k.device)
        self._next = self._column.new_zeros(1)
        self._queries = None
        self.moves += 1

    def settle(self, n: int, seen: int, queries: torch.Tensor | None, heads: int) -> None:
        """Make ready for steps that nobody follows: ``n`` rows are here, of ``seen`` tokens.

        ``queries`` (1, heads, at most observe, d) were kept so far.
        """
        assert self._buffer is not None
        self._next.fill_(n)
        # not what an earlier cache left: a row that is masked weighs 0, and 0 times NaN is NaN
        self._buffer.v[:, n:] = 0
        self.memo[:, n:] = 0
        to_come = torch.arange(seen, seen + self.capacity - n, device=self._next.device)
        self._buffer.token[n:] = to_come
        self._buffer.pos[:, n:] = to_come
        if self._observe:
            if self._queries is None:
                self._queries = self.memo.new_zeros(1, heads, self._observe, self.memo.shape[3])
                self.moves += 1
            if queries is not None:
                self._queries[:, :, self._observe - queries.shape[2] :] = queries
        self.is_settled = True

    def queries(self, n: int) -> torch.Tensor | None:
        """The last ``n`` queries, as a view."""
        return None if self._queries is None else self._queries[:, :, self._observe - n :]

    def step(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        """Add one row and attend over all: (1, heads, 1, d_value).

        ``q`` (1, heads, 1, d), ``k`` and ``v`` (1, 1, kv_heads, d) without positions; angles (1, 1, pairs).
        """
        assert self._buffer is not None
        q = rotate(q, cos[:, None], sin[:, None])
        self._buffer.k.index_copy_(1, self._next, k)
        self._buffer.v.index_copy_(1, self._next, v)
        self.memo.index_copy_(1, self._next, rotate(k, cos[:, :, None], sin[:, :, None]))
        if self._queries is not None:
            self._queries.copy_(torch.cat([self._queries[:, :, 1:], q], 2))
        seen = self._column <= self._next
        if self._local is not None:
            seen = seen & (self._column > self._next - self._local)
        out = one_query(q, self.memo.transpose(1, 2), self._buffer.v.transpose(1, 2), scaling, seen[None, None, None])
        self._next.add_(1)
        return out


class Arena:
    """The fixed rows of all layers of one model, for one sequence at a time; a next one takes the last one's place.

    ``windows`` are those that layers have of their own. ``position`` (1, 1) is the next token's, on the device.
    """

    def __init__(
        self, policy: Policy, windows: list[int | None], device: torch.device, *, room: int | None = None
    ) -> None:
        if policy.positions != "absolute" or not policy.memo:
            raise InvalidInput("rows that never move need positions='absolute' and memo=True")
        self.policy = policy
        self.windows = windows
        most = room if policy.max_blocks is None else policy.rows_bound()
        self.layers = [
            FixedRows(most, policy.observe, None) if local is None else FixedRows(local + policy.block, 0, local)
            for local in windows
        ]
        self.position = torch.zeros(1, 1, dtype=torch.long, device=device)

    @property
    def moves(self) -> int:
        return sum(layer.moves for layer in self.layers)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Inside the with-block the layers' steps touch the device alone."""
        for layer in self.layers:
            layer.is_stepping = True
        try:
            yield
        finally:
            for layer in self.layers:
                layer.is_stepping = False
