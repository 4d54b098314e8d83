"""One tiny random model per supported family, with peaked attention, so that dropping a row shows."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

BASE: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "rope_theta": 10000.0}
PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 64}
FAMILIES = ("llama", "llama-yarn", "qwen2", "qwen3", "mistral", "phi3", "gemma3")


def build(family: str) -> Any:
    torch.manual_seed(1)
    model: Any = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**BASE)),
        "llama-yarn": lambda: LlamaForCausalLM(LlamaConfig(**BASE, rope_parameters=YARN)),
        "llama-dynamic": lambda: LlamaForCausalLM(LlamaConfig(**BASE, rope_parameters=DYNAMIC)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**BASE)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**BASE, head_dim=16)),
        "mistral": lambda: MistralForCausalLM(MistralConfig(**BASE, head_dim=16, sliding_window=48)),
        "phi3": lambda: Phi3ForCausalLM(Phi3Config(**BASE, pad_token_id=0, rope_parameters=PARTIAL)),
        "gemma3": lambda: Gemma3ForCausalLM(
            Gemma3TextConfig(
                **BASE,
                head_dim=16,
                sliding_window=48,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            )
        ),
    }[family]()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(part in name for part in ("q_proj", "k_proj", "qkv_proj")):
                weight.mul_(8)
    return model.eval().requires_grad_(False)


def tokens(n: int, *, batch: int = 1, seed: int = 3) -> torch.Tensor:
    return torch.randint(5, 250, (batch, n), generator=torch.Generator().manual_seed(seed))
