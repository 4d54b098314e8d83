"""Rotary positions kept out of the cache: the model's rotation becomes an identity, the real one happens at reading."""

from __future__ import annotations

import sys
from typing import Any

import torch

from testbed.core.errors import Unsupported

SMALLEST_TABLE = 4096


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate channel pairs (i, i + d) of ``x`` (..., channels) by angles given as cos and sin (..., d).

    Channels from 2 d on have no position and pass through.
    """
    d = cos.shape[-1]
    low, high = x[..., :d], x[..., d : 2 * d]
    # fused products, joined once: every chunk rotates all kept keys, and twice as many passes take twice as long
    turned = (low * cos).addcmul_(high, sin, value=-1), (high * cos).addcmul_(low, sin)
    return torch.cat([*turned, x[..., 2 * d :]] if x.shape[-1] > 2 * d else turned, -1)


class DeferredRotary(torch.nn.Module):
    """Stands where the model's rotary module was.

    ``forward`` tells the layers cos 1 and sin 0, so that what they cache has no position yet. ``at`` gives the true
    angles of any positions, from the real module. ``is_static`` is False for scalings whose angles depend on the
    longest position seen (dynamic NTK, longrope): a rotated key may then not be kept from one step to the next.
    """

    def __init__(self, real: torch.nn.Module) -> None:
        super().__init__()
        self.real = real
        kinds = getattr(real, "rope_type", "default")
        names = kinds.values() if isinstance(kinds, dict) else [kinds]
        self.is_static = not any("dynamic" in str(k) or k == "longrope" for k in names)
        self.by_layer_type = isinstance(kinds, dict)
        self._tables: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        self.moves = 0  # how often a table was made anew

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None, **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, _sin = self._angles(x, position_ids[:1, :1], layer_type)
        return torch.ones_like(cos), torch.zeros_like(cos)

    def at(
        self, x: torch.Tensor, positions: torch.Tensor, layer_type: str | None, highest: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin of ``positions`` (batch, n), each (batch, n, pairs), in the type of ``x``.

        ``highest`` is a position that none exceeds, known without asking the device.
        """
        if not self.is_static:
            cos, sin = self._angles(x, positions, layer_type)
            half = cos.shape[-1] // 2
            return cos[..., :half], sin[..., :half]
        table = self._table(x, layer_type, highest + 1)
        return table[0][positions], table[1][positions]

    def _table(self, x: torch.Tensor, layer_type: str | None, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        key = (layer_type, x.dtype, x.device)
        table = self._tables.get(key)
        if table is None or table[0].shape[0] < size:
            size = max(SMALLEST_TABLE, 1 << (size - 1).bit_length())
            cos, sin = self._angles(x, torch.arange(size, device=x.device)[None], layer_type)
            half = cos.shape[-1] // 2
            self.moves += 1
            table = self._tables[key] = (cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous())
        return table

    def _angles(
        self, x: torch.Tensor, positions: torch.Tensor, layer_type: str | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        args = (layer_type,) if self.by_layer_type else ()
        cos, sin = self.real(x, positions, *args)
        return cos, sin


def check_rotation(attention: Any, rotary: DeferredRotary, layer_type: str | None) -> None:
    """Compare ``rotate`` with the rotation that the model's own file applies; Unsupported where they differ."""
    name = type(attention).__name__
    own = getattr(sys.modules[type(attention).__module__], "apply_rotary_pos_emb", None)
    if own is None:
        raise Unsupported(f"{name} has no rotary positions of the usual kind")
    like = next(rotary.real.buffers())
    positions = torch.tensor([[0, 1, 7, 100, 1000]], device=like.device)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, 5, attention.head_dim, generator=draw).to(like.device)
    args = (layer_type,) if rotary.by_layer_type else ()
    try:
        expected = own(x, x, *rotary.real(x, positions, *args))[1]
    except (RuntimeError, TypeError, ValueError) as e:
        raise Unsupported(f"{name} rotates in a way of its own ({type(e).__name__})") from e
    cos, sin = rotary.at(x, positions, layer_type, 1000)
    if cos.shape[-1] * 2 > x.shape[-1] or not torch.allclose(
        expected, rotate(x, cos[:, None], sin[:, None]), atol=1e-5
    ):
        raise Unsupported(f"{name} pairs its channels differently (interleaved rotary)")
