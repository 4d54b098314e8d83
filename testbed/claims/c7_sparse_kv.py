"""C7: does a sliding, sparse KV cache give 128K tokens of context in 167 ms to the first token, in less memory?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from testbed.claims import plot
from testbed.claims.claim import ARTICLE, Claim, Findings, Limit, Row, Tier
from testbed.models.runner.policy import Policy

# One A100-80G: dense 16-bit FLOP/s, bytes/s of its memory, and how much of it there is, as its maker states them.
FLOPS, BANDWIDTH, MEMORY = 312e12, 2.039e12, 80e9
BYTES = 2  # a 16-bit number
TURN = 64  # tokens of a question whose context is cached
KEPT = Policy(window=4096, block=64, sink=64, max_blocks=192)  # about 16K rows of a layer


class Published(NamedTuple):
    """A row of the table: how much context, in which time to the first token, in how many GB."""

    cache: str
    tokens: int
    first_token_s: float
    gb: float


TABLE = (
    Published("full", 32 * 1024, 0.142, 58.2),
    Published("FlashAttention-2", 64 * 1024, 0.153, 47.1),
    Published("sliding + sparse", 128 * 1024, 0.167, 39.6),
)


class Model(NamedTuple):
    """What the arithmetic of a model depends on. ``matmul`` are the parameters that each token is multiplied with."""

    name: str
    parameters: float
    matmul: float
    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES


MODELS = (
    Model("Qwen2.5-1.5B", 1.54e9, 1.31e9, 28, 12, 2, 128),
    Model("Qwen2.5-7B", 7.62e9, 6.53e9, 28, 28, 4, 128),
    Model("Llama-3.1-8B", 8.03e9, 6.98e9, 32, 32, 8, 128),
    Model("Llama-2-7B", 6.74e9, 6.48e9, 32, 32, 32, 128),
)


def rows_kept(tokens: int) -> int:
    """Rows of a layer after a context, under the policy's own bound."""
    bound = KEPT.rows_bound()
    return tokens if bound is None else min(tokens, bound)


def cold_s(model: Model, tokens: int, seen: int) -> float:
    """No correct prefill is faster: two operations a weight and token, four a (query, key) pair and channel.

    ``seen`` is the most keys that a query may look at.
    """
    pairs = tokens * tokens / 2 if seen >= tokens else seen * seen / 2 + (tokens - seen) * seen
    return (2 * model.matmul * tokens + 4 * model.layers * model.heads * model.head_dim * pairs) / FLOPS


def warm_s(model: Model, rows: int) -> float:
    """A turn of ``TURN`` tokens on a cached context: its arithmetic, or one look at weights and cache."""
    pairs = 4 * model.layers * model.heads * model.head_dim * rows * TURN
    return max(
        (2 * model.matmul * TURN + pairs) / FLOPS, (model.parameters * BYTES + rows * model.row_bytes) / BANDWIDTH
    )


def floors() -> list[Row]:
    """Every row of the table for every model: what it would take at least, cold and warm."""
    out: list[Row] = []
    for row in TABLE:
        rows = rows_kept(row.tokens) if row.cache == "sliding + sparse" else row.tokens
        for model in MODELS:
            cold = cold_s(model, row.tokens, rows)
            out.append(
                {
                    "cache": row.cache,
                    "tokens": row.tokens,
                    "model": model.name,
                    "published first token s": row.first_token_s,
                    "cold floor s": cold,
                    "cold floor over published": cold / row.first_token_s,
                    "warm floor s": warm_s(model, rows),
                    "weights and KV GB": (model.parameters * BYTES + rows * model.row_bytes) / 1e9,
                    "published GB": row.gb,
                }
            )
    return out


def largest() -> list[Row]:
    """The largest model that could read each context cold in the published time, with attention for free."""
    return [
        {
            "cache": row.cache,
            "tokens": row.tokens,
            "TFLOP in the published time": row.first_token_s * FLOPS / 1e12,
            "parameters at most (1e9)": row.first_token_s * FLOPS / (2 * row.tokens) / 1e9,
        }
        for row in TABLE
    ]


def savings() -> list[Row]:
    """Bytes of the cache by the number of kept rows: exact, for any model of that shape."""
    return [
        {
            "model": model.name,
            "KiB a token": model.row_bytes / 1024,
            "tokens": row.tokens,
            "full GB": row.tokens * model.row_bytes / 1e9,
            "sliding sparse GB": rows_kept(row.tokens) * model.row_bytes / 1e9,
            "share kept": rows_kept(row.tokens) / row.tokens,
        }
        for model in MODELS
        for row in TABLE
    ]


def measure(tier: Tier) -> Findings:
    found, sizes, saved = floors(), largest(), savings()
    ratios = [float(row["cold floor over published"]) for row in found]
    warm = [float(row["warm floor s"]) for row in found]
    is_cold = min(ratios) <= 1
    is_warm = all(w <= float(row["published first token s"]) for w, row in zip(warm, found, strict=True))
    at_128k = next(row for row in saved if row["tokens"] == 128 * 1024)
    at_most = [float(row["parameters at most (1e9)"]) for row in sizes]
    why = (
        f"the table names no model, batch or turn; read cold, the four models need {min(ratios):.1f} to "
        f"{max(ratios):.0f} times the published time by arithmetic alone, and only models of at most "
        f"{', '.join(f'{size:.2f}' for size in at_most)} billion parameters could keep the three times; as a turn of "
        f"{TURN} tokens on a cached context the floors are {min(warm) * 1e3:.0f} to {max(warm) * 1e3:.0f} ms, so that "
        f"is what it can be; the memory shrinks by formula, to {float(at_128k['share kept']):.0%} of the rows at 128K"
    )
    return Findings(
        ruling="ill-defined" if not is_cold and is_warm else "refuted" if not is_warm else "holds only if",
        why=why,
        seeds=(),
        tables={"floors": found, "largest model": sizes, "bytes": saved},
        limits=tuple(
            Limit(f"share of rows kept, {row['model']}, {row['tokens']} tokens", float(row["share kept"]), 1.0)
            for row in saved
        ),
        plot=plot.bars(
            "first token of a cold prefill: the floor of an A100 over the published time",
            "times",
            {f"{row.cache}, {row.tokens // 1024}K": _ratios(found, row.cache) for row in TABLE},
        ),
    )


def _ratios(rows: Sequence[Row], cache: str) -> Mapping[str, float]:
    return {str(r["model"]): float(r["cold floor over published"]) for r in rows if r["cache"] == cache}


C7 = Claim(
    id="C7",
    title="sliding-sparse KV",
    statement=(
        "On one A100-80G, first token and memory: full cache, 32K context, 142 ms, 58.2 GB; FlashAttention-2, 64K, "
        "153 ms, 47.1 GB; sliding window with sparse retention, 128K, 167 ms, 39.6 GB."
    ),
    source=ARTICLE,
    definitions=(
        "cold: the whole context is read before the first token; warm: the context is cached, the question is new",
        "floor: operations over 312 TFLOP/s, or bytes over 2.039 TB/s; no kernel, batch or framework gets under it",
        f"rows kept: the bound of window {KEPT.window}, {KEPT.max_blocks} blocks of {KEPT.block} and {KEPT.sink} sinks",
        "what pruning costs in answers is measured on a small model: docs/kv.md, and the scenario kv-pruning",
    ),
    generator="none: arithmetic from the models' published shapes",
    tolerance="none: a floor is a floor",
    limit="no more rows are kept than there are tokens",
    measure=measure,
)
