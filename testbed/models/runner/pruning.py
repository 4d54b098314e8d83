"""Which rows of a layer go: decisions only, nothing is moved here."""

from __future__ import annotations

from typing import NamedTuple

import torch

from testbed.models.runner.dense import visible
from testbed.models.runner.policy import Policy
from testbed.models.runner.scores import BlockScores, Wanted, attention_mass, share_of_best, staying


class Cut(NamedTuple):
    """A decision: rows that stay, numbers of the blocks that go (their rows in the same order), and their scores."""

    stay: torch.Tensor | slice
    losers: list[int]
    lost_rows: torch.Tensor | None
    wanted: list[float]


def cold_rows(policy: Policy, n: int, seen: int) -> slice:
    """Which of the first ``n`` rows were cold after ``seen`` tokens: neither sinks nor in the window.

    Cold blocks are whole; in storage they follow the sinks, and the window follows them: where they begin and end is
    known without looking at the rows.
    """
    first = min(policy.sink, seen)
    edge = max((seen - policy.window) // policy.block * policy.block, first)  # tokens from here on are in the window
    return slice(first, first + max(0, n - first - (seen - edge)) // policy.block * policy.block)


def cut(
    policy: Policy,
    scores: BlockScores,
    q: torch.Tensor,
    k: torch.Tensor,
    scaling: float,
    index: torch.Tensor,
    padding: torch.Tensor | None,
    seen: int,
) -> Cut | None:
    """What goes after the queries ``q`` (batch, heads, t, d), the last ones of ``seen`` tokens; None when nothing does.

    ``k`` (batch, kv_heads, n, d) are all rows, of the tokens ``index`` (n,). ``scores`` learns what was looked at.
    """
    n, p = index.shape[0], policy
    cold = cold_rows(p, n, seen)
    if cold.stop == cold.start or p.is_lossless:
        return None
    first, n_blocks = cold.start, (cold.stop - cold.start) // p.block
    q = q[:, :, -p.observe :]
    # without padding only the last rows hide from some of these queries
    masked = n if padding is not None else min(n, q.shape[2])
    mask = visible(q.shape[2], masked, index[n - masked :], padding)
    mass = attention_mass(q, k, scaling, mask, first, n_blocks, p.block)
    blocks = index[cold][:: p.block] // p.block
    scores.fold(blocks, share_of_best(mass, p.heads), p.decay)
    score = scores.spread(blocks, p.spread)
    gone = (~staying(score, scores.of(blocks), p)).nonzero().squeeze(1)
    if not len(gone):
        return None
    within = torch.arange(p.block, device=index.device)
    lost_rows = (first + gone[:, None] * p.block + within).flatten()
    stays = torch.ones(n, dtype=torch.bool, device=index.device)
    stays[lost_rows] = False
    return Cut(stays.nonzero().squeeze(1), blocks[gone].tolist(), lost_rows, score[gone].tolist())


def outside_window(n: int, local: int) -> Cut | None:
    """A layer with a window of its own: the next query sees the last ``local`` - 1 of these rows."""
    return Cut(slice(n - local + 1, None), [], None, []) if n >= local else None


def least_wanted(scores: BlockScores, blocks: list[int], reach: int) -> list[int]:
    """``blocks`` in the order in which they may go: as ``staying`` would cut them."""
    if not blocks:
        return []
    at = torch.tensor(blocks, device=scores.device)
    score, own = scores.spread(at, reach).tolist(), scores.of(at).nan_to_num(0.0).tolist()
    ranked = sorted(zip(score, own, [-number for number in blocks], strict=True))
    return [-number for *_, number in ranked]


def matched(coming: list[int], leaving: list[int], wanted: Wanted) -> list[int]:
    """For each block that comes, one that leaves for it: the first of ``leaving`` that is wanted less.

    As many as find one, the first ones of ``coming``, which are those that are wanted most.
    """
    left, out = list(leaving), []
    for block in coming:
        goes = next((number for number in left if wanted.of(number) < wanted.of(block)), None)
        if goes is None:
            break
        left.remove(goes)
        out.append(goes)
    return out
