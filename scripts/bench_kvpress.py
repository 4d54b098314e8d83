"""The needle test of ``bench_kv.py`` with the methods of NVIDIA's kvpress, on the same weights and the same token ids.

kvpress pins an older transformers, so this file runs in an environment of its own and imports nothing from here:

    python scripts/bench_kv.py prompts --model gemma3-270m --tokens 2048 > prompts.jsonl
    python -m venv .kvpress && .kvpress/bin/pip install kvpress 'transformers<5.3'
    .kvpress/bin/python scripts/bench_kvpress.py FOLDER prompts.jsonl --keep 0.27

FOLDER is the decoded model (``TESTBED_MODEL_CACHE``). The context is compressed before the question exists, in
full-attention layers only: a layer with a window of its own is bounded already. ``--keep`` is the share of rows that
those layers keep, so that methods are compared at equal bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("prompts", type=Path)
    p.add_argument("--keep", type=float, action="append", default=[])
    p.add_argument("--press", action="append", default=[], help="a class of kvpress; may be given more than once")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    import kvpress
    import transformers

    torch.set_num_threads(args.threads)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32).eval()
    rows = [json.loads(line) for line in args.prompts.read_text().splitlines() if '"context"' in line]
    versions = {"kvpress": _version("kvpress"), "transformers": transformers.__version__, "torch": torch.__version__}
    print(json.dumps({"what": "needles", "tokens": len(rows[0]["context"]) + len(rows[0]["question"]), **versions}))
    for keep in args.keep or [0.27]:
        for name in args.press or ["SnapKVPress", "StreamingLLMPress", "ExpectedAttentionPress", "KnormPress"]:
            press = getattr(kvpress, name)(compression_ratio=1 - keep)
            with torch.inference_mode():
                found = [_answer(model, press, row) for row in rows]
            logprob = sum(lp for _, lp in found) / len(found)
            hits = [int(hit) for hit, _ in found]
            result = {"setting": name, "keep_ratio": keep, "hits": sum(hits), "of": len(hits), "by_seed": hits}
            print(json.dumps({**result, "mean_logprob": round(logprob, 3)}), flush=True)
    return 0


def _answer(model: Any, press: Any, row: dict[str, Any]) -> tuple[bool, float]:
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    context, question = torch.tensor([row["context"]]), torch.tensor([row["question"]])
    with _compressed(model, press):
        model(context, past_key_values=cache, use_cache=True, logits_to_keep=1)
    # positions go on where the context ended, however many rows are left of it
    at = context.shape[1]
    logits, at = _step(model, cache, question, at)
    total, hit = 0.0, True
    for token in row["answer"]:
        total += float(logits.log_softmax(-1)[token])
        hit = hit and int(logits.argmax()) == token
        logits, at = _step(model, cache, torch.tensor([[token]]), at)
    return hit, total


def _step(model: Any, cache: Any, ids: torch.Tensor, at: int) -> tuple[torch.Tensor, int]:
    n = ids.shape[1]
    places = torch.arange(at, at + n)
    out = model(ids, past_key_values=cache, use_cache=True, position_ids=places[None], logits_to_keep=1)
    return out.logits[0, -1].float(), at + n


@contextmanager
def _compressed(model: Any, press: Any) -> Iterator[None]:
    """The press on full-attention layers (its own entry point knows sliding ones for multi-modal Gemma only)."""
    hooks = []
    for layer in model.model.layers:
        layer.self_attn.rotary_emb = model.model.rotary_emb
        if not getattr(layer.self_attn, "is_sliding", False):
            hooks.append(layer.self_attn.register_forward_hook(press.forward_hook, with_kwargs=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


if __name__ == "__main__":
    sys.exit(main())
