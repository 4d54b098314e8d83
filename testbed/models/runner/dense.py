"""Exact attention of the last t tokens over n rows in the order of their tokens."""

from __future__ import annotations

import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

# The CPU kernel behind scaled_dot_product_attention: it also returns the logarithm of the weight that a query saw.
SPLITTING_KERNEL = "_scaled_dot_product_flash_attention_for_cpu"
SPLITS = 32  # parts of the rows that one query is given to at the same time, on a GPU
QUERIES_AT_ONCE = 512  # bounds the boolean mask to this many rows at a time


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scaling: float,
    index: torch.Tensor,
    padding: torch.Tensor | None,
    local: int | None,
    *,
    fused: bool | None = None,
) -> torch.Tensor:
    """(batch, heads, t, d_value). The t queries belong to the last t of the n rows.

    However much was dropped between them, rows are in order: query i sees exactly the first n - t + i + 1 rows. That
    is a causal mask aligned to the lower right, which the fused kernels of a GPU know (``fused``, the default there).

    Parameters
    ----------
    q, k, v : (batch, heads or kv_heads, t or n, d), rotated
    index : (n,) token of each row; ``padding`` (batch, tokens) True where a token is real, or None
    local : the layer's own window: a query sees itself and ``local`` - 1 rows before it
    """
    t, n = q.shape[2], k.shape[2]
    if t == 1:
        return _one(q, k, v, scaling, index, padding, local)
    grouped = q.shape[1] != k.shape[1]
    if padding is None and local is None:
        if n == t:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=grouped)
        if q.is_cuda if fused is None else fused:
            bias = causal_lower_right(t, n)
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scaling, enable_gqa=grouped)
        if _can_split(q, v):
            return _split(q, k, v, scaling)
    out = q.new_empty(*q.shape[:3], v.shape[-1])
    for start in range(0, t, QUERIES_AT_ONCE):
        end = min(start + QUERIES_AT_ONCE, t)
        high = n - t + end  # rows after the slice's last query are never visible
        low = 0 if local is None else max(0, n - t + start - local + 1)
        mask = visible(end - start, high - low, index[low:high], padding, local)
        rows = slice(low, high)
        out[:, :, start:end] = functional.scaled_dot_product_attention(
            q[:, :, start:end], k[:, :, rows], v[:, :, rows], attn_mask=mask, scale=scaling, enable_gqa=grouped
        )
    return out


def _can_split(q: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether the kernel serves: its name is private, so a torch without it must do; it knows no gradients."""
    is_known = hasattr(torch.ops.aten, SPLITTING_KERNEL)
    needs_gradient = torch.is_grad_enabled() and q.requires_grad
    return is_known and q.device.type == "cpu" and q.shape[-1] == v.shape[-1] and not needs_gradient


def _split(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
    """The rows before the chunk without a mask, the chunk itself causally, and the two weighed by what each saw.

    No mask is built or read, and of the chunk's own pairs only the visible half is computed: a third less time than
    the masked kernel at a chunk of 1,024 over 2,700 rows.
    """
    kernel = getattr(torch.ops.aten, SPLITTING_KERNEL)
    batch, heads, t, d = q.shape
    kv_heads, old = k.shape[1], k.shape[2] - t
    group = heads // kv_heads
    # heads that share keys become rows of one product, and, where order counts, get keys of their own
    folded = q.reshape(batch, kv_heads, group * t, d)
    before, seen_before = kernel(folded, k[:, :, :old], v[:, :, :old], scale=scaling)
    own_k, own_v = (x[:, :, old:].repeat_interleave(group, 1) for x in (k, v))
    chunk, seen_chunk = kernel(q, own_k, own_v, is_causal=True, scale=scaling)
    share = torch.sigmoid(seen_before.reshape(batch, heads, t) - seen_chunk)[..., None]
    return torch.lerp(chunk, before.reshape(chunk.shape), share.to(chunk.dtype))


def visible(
    w: int, n: int, index: torch.Tensor, padding: torch.Tensor | None, local: int | None = None
) -> torch.Tensor:
    """(batch or 1, 1, w, n) bool: which of n rows the last w of them may look at. A row without any looks at all."""
    column = torch.arange(n, device=index.device)
    query = column[n - w :, None]
    mask = column <= query
    if local is not None:
        mask = mask & (column > query - local)
    mask = mask[None, None]
    if padding is not None:
        mask = mask & padding[:, None, None, index]
        mask = mask | ~mask.any(-1, keepdim=True)  # the query of a padding token: anything but NaN
    return mask


def _one(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scaling: float,
    index: torch.Tensor,
    padding: torch.Tensor | None,
    local: int | None,
) -> torch.Tensor:
    """One query sees every row (of its window): no mask without padding."""
    low = 0 if local is None else max(0, k.shape[2] - local)
    k, v, index = k[:, :, low:], v[:, :, low:], index[low:]
    mask = None if padding is None else visible(1, index.shape[0], index, padding)
    return one_query(q, k, v, scaling, mask)


def one_query(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scaling: float,
    mask: torch.Tensor | None,
    *,
    split: bool | None = None,
) -> torch.Tensor:
    """(batch, heads, 1, d_value) for ``q`` (batch, heads, 1, d); heads that share keys become rows of one product.

    A masked kernel of a GPU gives one query of one sequence to as many processors as there are key heads, a few of its
    hundred. ``split``, the default there, makes products of the rows' parts instead.
    """
    batch, heads, _, d = q.shape
    grouped = q.reshape(batch, k.shape[1], heads // k.shape[1], d)
    if mask is not None and (q.is_cuda if split is None else split):
        out = _in_parts(grouped, k, v, scaling, mask)
    else:
        out = functional.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=scaling)
    return out.reshape(batch, heads, 1, v.shape[-1])


def _in_parts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float, mask: torch.Tensor) -> torch.Tensor:
    """Softmax over all rows, then one product for each of their parts; (batch, kv_heads, group, d_value)."""
    batch, kv_heads, n, d_value = v.shape
    parts = SPLITS if n % SPLITS == 0 else 1
    logits = (q @ k.transpose(-1, -2)).float() * scaling
    weight = logits.masked_fill(~mask, float("-inf")).softmax(-1).to(v.dtype)
    weight = weight.reshape(batch, kv_heads, -1, parts, n // parts).transpose(2, 3)
    out = weight @ v.reshape(batch, kv_heads, parts, n // parts, d_value)
    return out.float().sum(2).to(v.dtype)
