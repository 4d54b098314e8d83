"""Low-rank adapters (LoRA): small weights beside a model that change what it says, switched per request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from testbed.core.errors import InvalidInput


class LowRank(NamedTuple):
    """``y += scale * (x A^T) B^T``: A (rank, in), B (out, rank)."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float


@dataclass(frozen=True, slots=True)
class Adapter:
    """``weights`` by the linear module that they change; ``fingerprint`` is of the weights, whatever the name."""

    name: str
    weights: Mapping[str, LowRank]
    fingerprint: str

    @classmethod
    def of(cls, name: str, weights: Mapping[str, LowRank]) -> Adapter:
        h = hashlib.blake2b(digest_size=16)
        for module, low in sorted(weights.items()):
            h.update(f"{module}:{tuple(low.a.shape)}:{tuple(low.b.shape)}:{low.scale!r}".encode())
            for part in (low.a, low.b):
                h.update(part.detach().float().cpu().contiguous().numpy().tobytes())
        return cls(name, dict(weights), h.hexdigest())

    @contextmanager
    def applied(self, model: Any) -> Iterator[None]:
        """The model with this adapter, inside the with-block; its own weights are not touched."""
        hooks = []
        try:
            for module, low in self.weights.items():
                hooks.append(_linear(model, module).register_forward_hook(_added(low)))
            yield
        finally:
            for hook in hooks:
                hook.remove()


def load(name: str, folder: str | Path, model: Any) -> Adapter:
    """Read a folder in the PEFT layout: ``adapter_config.json`` and ``adapter_model.safetensors`` (never a pickle)."""
    from safetensors.torch import load_file

    path = Path(folder)
    try:
        config = json.loads((path / "adapter_config.json").read_text())
        tensors = load_file(path / "adapter_model.safetensors")
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except (OSError, ValueError, KeyError) as e:
        raise InvalidInput(f"adapter {name!r} in {path} is not a LoRA folder: {e}") from e
    if config.get("use_dora") or config.get("use_rslora") or config.get("bias", "none") != "none":
        raise InvalidInput(f"adapter {name!r} uses more than plain LoRA (DoRA, rsLoRA or biases)")
    weights: dict[str, LowRank] = {}
    for key in sorted(k for k in tensors if k.endswith(".lora_A.weight")):
        module = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        # a name that the model does not have is an error now, not at the first request; so is another shape
        shape = tuple(getattr(_linear(model, module), "weight", torch.empty(0)).shape)
        a, b = (tensors[k].to(model.device, model.dtype) for k in (key, key.replace(".lora_A.", ".lora_B.")))
        if (b.shape[0], a.shape[1]) != shape or a.shape[0] != b.shape[1]:
            raise InvalidInput(
                f"adapter {name!r} does not fit {module!r}: {tuple(b.shape)} x {tuple(a.shape)}, not {shape}"
            )
        weights[module] = LowRank(a, b, alpha / rank)
    if not weights:
        raise InvalidInput(f"adapter {name!r} in {path} holds no LoRA weights")
    return Adapter.of(name, weights)


def _linear(model: Any, name: str) -> torch.nn.Module:
    try:
        module: torch.nn.Module = model.get_submodule(name)
    except AttributeError as e:
        raise InvalidInput(f"the model has no module {name!r} for this adapter") from e
    return module


def _added(low: LowRank) -> Any:
    def hook(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        return output + low.scale * (inputs[0] @ low.a.T @ low.b.T)

    return hook
