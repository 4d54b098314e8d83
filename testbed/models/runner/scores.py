"""Which blocks the recent queries look at, and which of them stay."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.nn import functional

from testbed.models.runner.policy import Policy


def attention_mass(
    q: torch.Tensor, k: torch.Tensor, scaling: float, mask: torch.Tensor | None, first: int, n_blocks: int, block: int
) -> torch.Tensor:
    """Share of exact softmax attention that each block gets, averaged over the observing queries.

    Parameters
    ----------
    q : (batch, heads, w, d), rotated; k : (batch, kv_heads, n, d), rotated
    mask : (batch or 1, 1, w, m), True where a query may look, for the last m rows; all may look at those before
    first : row at which the first block begins; ``n_blocks`` whole blocks of ``block`` rows follow it

    Returns
    -------
    (batch, heads, n_blocks) float32
    """
    logits = grouped_logits(q, k, scaling)
    if mask is not None:
        logits[..., -mask.shape[-1] :].masked_fill_(~mask.unsqueeze(2), float("-inf"))
    cold = logits.softmax(-1)[..., first : first + n_blocks * block]
    blocks = cold.mean(3).reshape(q.shape[0], q.shape[1], n_blocks, block)
    return blocks.sum(-1)


def grouped_logits(q: torch.Tensor, k: torch.Tensor, scaling: float) -> torch.Tensor:
    """Scaled logits (batch, kv_heads, group, w, n) in float32: heads that share a key head share one product."""
    batch, heads, w, d = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(batch, kv_heads, heads // kv_heads * w, d).float()
    logits = grouped @ k.float().transpose(-1, -2) * scaling
    return logits.reshape(batch, kv_heads, heads // kv_heads, w, -1)


def block_weight(q: torch.Tensor, k: torch.Tensor, scaling: float, block: int) -> torch.Tensor:
    """Logarithm of what each whole block of ``k`` adds to a query's softmax, (batch, kv_heads, group, w, blocks)."""
    logits = grouped_logits(q, k, scaling)
    return logits.reshape(*logits.shape[:-1], -1, block).logsumexp(-1)


class Wanted:
    """How much queries ask for each block, whatever tier it is in.

    A block is wanted as much as the best of it and its ``reach`` neighbours on each side, wherever these are: a fact
    that straddles a border may have one half in another tier.

    ``weight`` (batch, kv_heads, group, w, blocks) as ``block_weight`` gives it, for ``blocks`` by their numbers.
    """

    def __init__(self, weight: torch.Tensor, blocks: list[int], reach: int) -> None:
        share = weight.softmax(-1).mean(3).amax((0, 1, 2))
        self._own: dict[int, float] = dict(zip(blocks, share.tolist(), strict=True))
        self._reach = reach

    def of(self, number: int) -> float:
        return max(self._own.get(number + d, 0.0) for d in range(-self._reach, self._reach + 1))

    def first(self, numbers: Iterable[int]) -> list[int]:
        """These blocks, most wanted first; a block's own share decides between equals, then its age."""
        return sorted(numbers, key=lambda number: (-self.of(number), -self._own[number], number))


def share_of_best(mass: torch.Tensor, heads: str) -> torch.Tensor:
    """(batch, heads, blocks) to (blocks,): each block against its head's best one, then over heads and sequences.

    Relative to the best, not to the mean: dropping other blocks then leaves a block's share as it was, where a share
    of the mean would rise with every drop. A block stays while any sequence of the batch needs it.
    """
    share = mass / mass.amax(-1, keepdim=True).clamp_min(1e-20)
    over_heads = share.amax(1) if heads == "max" else share.mean(1)
    return over_heads.amax(0)


class BlockScores:
    """Decayed score of every block by its number; NaN where it is not (or no longer) known."""

    def __init__(self) -> None:
        self._scores = torch.empty(0)

    @property
    def device(self) -> torch.device:
        return self._scores.device

    def fold(self, blocks: torch.Tensor, seen: torch.Tensor, decay: float) -> None:
        """Mix a new observation in; a block's first one counts whole."""
        self._reserve(int(blocks[-1]) + 1, seen.device)
        old = self._scores[blocks]
        self._scores[blocks] = torch.where(old.isnan(), seen, decay * old + (1 - decay) * seen)

    def spread(self, blocks: torch.Tensor, reach: int) -> torch.Tensor:
        """Score of each block, or the best among ``reach`` neighbours by number on each side."""
        known = self._scores.nan_to_num(0.0)
        wide = functional.max_pool1d(known[None, None], 2 * reach + 1, stride=1, padding=reach)[0, 0]
        return wide[blocks]

    def forget(self, blocks: torch.Tensor) -> None:
        self._scores[blocks] = float("nan")

    def of(self, blocks: torch.Tensor) -> torch.Tensor:
        return self._scores[blocks]

    def fork(self) -> BlockScores:
        other = BlockScores()
        other._scores = self._scores.clone()
        return other

    def _reserve(self, size: int, device: torch.device) -> None:
        have = self._scores.shape[0]
        if size > have:
            more = torch.full((max(size, 2 * have) - have,), float("nan"), device=device)
            self._scores = torch.cat([self._scores.to(device), more])


def staying(score: torch.Tensor, own: torch.Tensor, policy: Policy) -> torch.Tensor:
    """Which blocks stay (blocks,) bool: the best ``max_blocks`` of those that reach the threshold.

    ``score`` holds what blocks inherited, so that neighbours tie as a rule; then their ``own`` score decides, not
    their age, and the block itself goes before those beside it. The older one stays only where that ties too.
    """
    keep = score >= policy.threshold
    if policy.max_blocks is not None and keep.shape[0] > policy.max_blocks:
        order = torch.argsort(own, descending=True, stable=True)
        ranked = torch.where(keep, score, -1.0)[order]
        order = order[torch.argsort(ranked, descending=True, stable=True)]
        capped = torch.zeros_like(keep)
        capped[order[: policy.max_blocks]] = True
        keep = keep & capped
    return keep
