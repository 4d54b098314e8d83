"""Storage of one layer: keys without positions, values, and which token each row is. Always contiguous."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Part(NamedTuple):
    """Rows in the order of their tokens.

    ``k`` (batch, n, kv_heads, d_key) before rotation, ``v`` (batch, n, kv_heads, d_value); ``token`` (n,) is the
    number of the token among all ever seen; ``pos`` (1 or batch, n) its position id, another number under left padding.
    """

    k: torch.Tensor
    v: torch.Tensor
    token: torch.Tensor
    pos: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return self.k.nbytes + self.v.nbytes

    def take(self, rows: torch.Tensor | slice) -> Part:
        return Part(self.k[:, rows], self.v[:, rows], self.token[rows], self.pos[:, rows])


def joined(parts: list[Part]) -> Part:
    """Parts, one after the other, as one."""
    if len(parts) == 1:
        return parts[0]
    ks, vs, token, pos = zip(*parts, strict=True)
    widest = max(p.shape[0] for p in pos)
    return Part(torch.cat(ks, 1), torch.cat(vs, 1), torch.cat(token), torch.cat([p.expand(widest, -1) for p in pos], 1))


def in_order(parts: list[Part]) -> Part:
    """The rows of several parts as one, by their tokens; each is copied once, straight to its place."""
    token = torch.cat([p.token for p in parts])
    place = torch.empty_like(token)
    place[torch.argsort(token)] = torch.arange(len(token), device=token.device)
    first, widest = parts[0], max(p.pos.shape[0] for p in parts)
    whole = Part(
        first.k.new_empty(first.k.shape[0], len(token), *first.k.shape[2:]),
        first.v.new_empty(first.v.shape[0], len(token), *first.v.shape[2:]),
        torch.empty_like(token),
        first.pos.new_empty(widest, len(token)),
    )
    for part, at in zip(parts, torch.split(place, [len(p.token) for p in parts]), strict=True):
        part = part._replace(pos=part.pos.expand(widest, -1))
        for own, rows, dim in zip(whole, part, (1, 1, 0, 1), strict=True):
            own.index_copy_(dim, at, rows)
    return whole


class Rows:
    """A buffer with a live front and ``slack`` free rows behind it, so that a decoded token is written in place.

    ``fork`` shares the buffer until one of the two writes.
    """

    def __init__(self, part: Part, slack: int, chosen: torch.Tensor | slice | None = None) -> None:
        """Copies of the ``chosen`` rows of ``part``; of all rows by default."""
        if isinstance(chosen, slice):
            part, chosen = part.take(chosen), None
        self.n = part.k.shape[1] if chosen is None else chosen.shape[0]
        self._slack = slack
        self._shared = False
        self._buffer = _with_room(part, self.n + slack, chosen=chosen)

    @property
    def live(self) -> Part:
        """The rows in use, as views."""
        return Part(
            self._buffer.k[:, : self.n],
            self._buffer.v[:, : self.n],
            self._buffer.token[: self.n],
            self._buffer.pos[:, : self.n],
        )

    @property
    def capacity(self) -> int:
        return self._buffer.k.shape[1]

    @property
    def held_bytes(self) -> int:
        """Bytes of keys and values that this buffer occupies, free rows included."""
        return self._buffer.nbytes

    def append(self, part: Part) -> None:
        """Add rows at the end; grows by ``slack`` when full."""
        end = self.n + part.k.shape[1]
        if self._shared or end > self.capacity or part.pos.shape[0] > self._buffer.pos.shape[0]:
            room = max(self.capacity, end + self._slack) if end > self.capacity else self.capacity
            self._buffer = _with_room(self.live, room, pos_rows=part.pos.shape[0])
            self._shared = False
        for own, new, dim in zip(self._buffer, part, (1, 1, 0, 1), strict=True):
            own.narrow(dim, self.n, end - self.n).copy_(new)
        self.n = end

    def count_one(self) -> None:
        """A row was written behind the last one, by somebody who knows this buffer."""
        self.n += 1

    def moved_to(self, buffer: Part) -> Rows:
        """The same rows at the front of a buffer of somebody else's."""
        other = object.__new__(Rows)
        other.n, other._slack, other._buffer, other._shared = self.n, self._slack, buffer, False
        for own, old, dim in zip(buffer, self.live, (1, 1, 0, 1), strict=True):
            own.narrow(dim, 0, self.n).copy_(old)
        return other

    def copied(self) -> Rows:
        """The same rows in a buffer of their own."""
        return Rows(self.live, self._slack)

    def select_batch(self, rows: torch.Tensor) -> Rows:
        """The same tokens for these sequences of the batch, in a buffer of its own."""
        part = self.live
        pos = part.pos if part.pos.shape[0] == 1 else part.pos[rows]
        return Rows(Part(part.k[rows], part.v[rows], part.token, pos), self._slack)

    def fork(self) -> Rows:
        other = object.__new__(Rows)
        other.n, other._slack, other._buffer = self.n, self._slack, self._buffer
        other._shared = self._shared = True
        return other

    def poison_free_rows(self) -> None:
        """Fill what is not in use with NaN: nothing may depend on it."""
        self._buffer.k[:, self.n :] = float("nan")
        self._buffer.v[:, self.n :] = float("nan")


def _with_room(part: Part, room: int, pos_rows: int = 1, chosen: torch.Tensor | None = None) -> Part:
    """The rows, or the chosen ones, at the front of new buffers of ``room`` rows."""
    n = part.k.shape[1] if chosen is None else chosen.shape[0]
    batch_pos = max(pos_rows, part.pos.shape[0])
    new = Part(
        part.k.new_empty(part.k.shape[0], room, *part.k.shape[2:]),
        part.v.new_empty(part.v.shape[0], room, *part.v.shape[2:]),
        part.token.new_empty(room),
        part.pos.new_empty(batch_pos, room),
    )
    for own, old, dim in zip(new, part, (1, 1, 0, 1), strict=True):
        front = own.narrow(dim, 0, n)
        if chosen is None:
            front.copy_(old)
        elif front.is_contiguous() and not old.requires_grad:
            torch.index_select(old, dim, chosen, out=front)  # at once: no gathered copy beside the old and the new
        else:
            front.copy_(old.index_select(dim, chosen))
    return new
