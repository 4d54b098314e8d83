"""Run the methods of kvpress on the prompts of ``bench_kv.py cases``, each keeping as many rows as told.

    python scripts/bench_kv.py cases --model gemma3-270m --tokens 2048 --seeds 12 --out kv-cases.json
    python3 -m venv kvpress-env && kvpress-env/bin/pip install torch kvpress
    kvpress-env/bin/python scripts/kvpress_compare.py kv-cases.json FOLDER_OF_THE_MODEL --rows 511

It stands alone: kvpress needs an older transformers than the runner. ``FOLDER_OF_THE_MODEL`` holds the same weights
(``gemma3-270m-...`` in the model cache). The row ``full`` has no press; it must say what the row ``full`` of
``bench_kv.py`` says, else nothing here compares.

As in the pipeline of kvpress, the context is read in one pass and compressed without the question, which is then read
from a copy of what is left, at its true positions. All methods share that pass: what a press keeps of one layer changes
nothing in the layers above it (KVzip reads the context a second time and is run alone). Presses that drop other rows in
each head mask them (here by a mask, in kvpress by fake keys); their bytes are counted as if those rows were gone. Two
things are done by hand, because Gemma 3 needs them:

- Layers with a window of their own are left alone. kvpress does so for ``Gemma3ForConditionalGeneration`` and would
  prune them in ``Gemma3ForCausalLM``.
- Attention is causal from the lower right. transformers' own mask compares a token's number with the rank of a row, so
  that after pruning the tokens of a question see those that follow them.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import kvpress
import torch
import transformers
from torch.nn import functional

ONE_PASS = (
    "RandomPress", "StreamingLLMPress", "KnormPress", "KeyDiffPress", "LagKVPress", "SnapKVPress", "PyramidKVPress",
    "TOVAPress", "ExpectedAttentionPress", "NonCausalAttnPress", "LeverageScorePress", "CompactorPress", "CURPress",
    "ObservedAttentionPress",
)  # fmt: skip
TWO_PASSES = ("KVzipPress",)
WRAPPED = ("SnapKVPress", "ExpectedAttentionPress")  # also in ChunkKVPress (whole pieces) and AdaKVPress (heads share)
Make = Callable[[float], Any]


class Told(NamedTuple):
    hit: bool
    logprob: float
    rows: float  # mean over the full-attention layers, when the context was read
    size_bytes: int  # of all layers, then


def main() -> int:
    args = _arguments()
    torch.set_num_threads(args.threads)
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    model.requires_grad_(False)
    _prepare(model)
    with open(args.cases, encoding="utf-8") as file:
        sets = json.load(file)
    print(json.dumps({
        "kvpress": kvpress_version(), "transformers": transformers.__version__, "torch": torch.__version__,
        "rows": args.rows, "threads": args.threads,
    }))  # fmt: skip
    presses, refused = _presses(model)
    for method, why in refused.items():
        print(json.dumps({"method": method, "refused": why}), flush=True)
    presses = {name: make for name, make in presses.items() if not args.only or name in args.only}
    for name in args.sets or sets:
        cases = sets[name][: args.cases_of_each]
        for method, told in _told(model, presses, cases, args.rows).items():
            print(json.dumps({"set": name, "method": method, **_row(told)}), flush=True)
    return 0


def _row(told: list[Told]) -> dict[str, Any]:
    n = len(told)
    return {
        "hits": sum(t.hit for t in told), "of": n, "each": "".join(str(int(t.hit)) for t in told),
        "mean_logprob": round(sum(t.logprob for t in told) / n, 3),
        "logprobs": [round(t.logprob, 3) for t in told],
        "rows": round(sum(t.rows for t in told) / n, 1),
        "kv_mib": round(sum(t.size_bytes for t in told) / n / 2**20, 2),
    }  # fmt: skip


def kvpress_version() -> str:
    from importlib.metadata import version

    return version("kvpress")


def _presses(model: Any) -> tuple[dict[str, Make], dict[str, str]]:
    """Makers by name, given the share of rows to drop; and methods that say no to this model, with their words."""
    made: dict[str, Make] = {
        name: lambda ratio, n=name: getattr(kvpress, n)(compression_ratio=ratio) for name in (*ONE_PASS, *TWO_PASSES)
    }
    for outer in ("ChunkKVPress", "AdaKVPress"):
        for inner in WRAPPED:
            made[f"{outer}({inner})"] = lambda ratio, o=outer, i=inner: getattr(kvpress, o)(getattr(kvpress, i)(ratio))
    refused = {}
    if model.config.num_key_value_heads == 1:
        refused = {name: "one key head: nothing to share out" for name in made if name.startswith("AdaKV")}
    for name in TWO_PASSES:
        try:
            with made[name](0.0)(model):
                pass
        except ValueError as e:
            refused[name] = str(e)
    return {name: make for name, make in made.items() if name not in refused}, refused


class Left(NamedTuple):
    """A cache as a press leaves it, and the rows that it masks instead of dropping them, by attention module."""

    cache: Any
    masked: dict[Any, Any]


@torch.inference_mode()
def _told(model: Any, presses: dict[str, Make], cases: list[Any], rows: int) -> dict[str, list[Told]]:
    told: dict[str, list[Told]] = {}
    for case in cases:
        made = {name: make(1 - (rows + 0.5) / len(case["context"])) for name, make in presses.items()}
        torch.manual_seed(0)  # some presses draw
        for name, left in _compressed(model, case["context"], made):
            n_rows, size_bytes = _held(left)
            for ask in case["asks"]:
                for module, masked in left.masked.items():
                    module.masked_key_indices = masked
                hit, logprob = _says(model, copy.deepcopy(left.cache), ask, len(case["context"]))
                told.setdefault(name, []).append(Told(hit, logprob, n_rows, size_bytes))
            for module in left.masked:
                module.masked_key_indices = None
    return told


def _held(left: Left) -> tuple[float, int]:
    """Rows of a full-attention layer and head, on average, and bytes of all layers; masked rows do not count."""
    cells, heads, size_bytes = 0, 0, 0
    for layer in left.cache.layers:
        size_bytes += sum(t.numel() * t.element_size() for t in (layer.keys, layer.values))
        if not layer.is_sliding:
            cells, heads = cells + layer.keys.shape[1] * layer.keys.shape[2], heads + layer.keys.shape[1]
    for module, masked in left.masked.items():
        gone = len(masked[2])
        cells -= gone
        size_bytes -= gone * 2 * module.head_dim * left.cache.layers[module.layer_idx].keys.element_size()
    return cells / heads, size_bytes


def _compressed(model: Any, context: list[int], presses: dict[str, Any]) -> Iterator[tuple[str, Left]]:
    """The cache of the context, whole and as each press leaves it."""
    cache = transformers.DynamicCache(config=model.config)
    shared = {name: press for name, press in presses.items() if name not in TWO_PASSES}
    kept: dict[str, dict[Any, Any]] = {name: {} for name in shared}

    def hook(module: Any, _: Any, kwargs: Any, output: Any) -> None:
        layer = cache.layers[module.layer_idx]
        for name, press in shared.items():
            seen = output[1] if isinstance(press, kvpress.ObservedAttentionPress) else None
            rows = press.compress(module, kwargs["hidden_states"], layer.keys, layer.values, seen, kwargs)
            kept[name][module] = (*rows, getattr(module, "masked_key_indices", None))
            module.masked_key_indices = None

    modules = [layer.self_attn for layer in model.model.layers if not _is_sliding(layer.self_attn)]
    for module in modules:
        module.rotary_emb = model.model.rotary_emb  # as a press does when it is entered
    hooks = [module.register_forward_hook(hook, with_kwargs=True) for module in modules]
    _pass(model, cache, context, 0)
    for handle in hooks:
        handle.remove()
    yield "full", Left(cache, {})
    for name, found in kept.items():
        own = copy.deepcopy(cache)
        for module, (keys, values, _) in found.items():
            own.layers[module.layer_idx].keys, own.layers[module.layer_idx].values = keys, values
        yield name, Left(own, {module: masked for module, (*_, masked) in found.items() if masked is not None})
    for name in presses.keys() - shared.keys():
        own = transformers.DynamicCache(config=model.config)
        with presses[name](model):
            _pass(model, own, context, 0)
        yield name, Left(own, {module: module.masked_key_indices for module in modules})


def _is_sliding(module: Any) -> bool:
    return bool(getattr(module, "is_sliding", False))


def _says(model: Any, cache: Any, ask: Any, start: int) -> tuple[bool, float]:
    """Whether greedy decoding says the answer, and its log probability: in one pass, as nothing is pruned meanwhile."""
    answer = ask["answer"]
    logits = _pass(model, cache, [*ask["question"], *answer[:-1]], start, len(answer))
    found = logits.log_softmax(-1)[range(len(answer)), answer]
    return logits.argmax(-1).tolist() == answer, float(found.sum())


def _pass(model: Any, cache: Any, ids: list[int], start: int, last: int = 1) -> torch.Tensor:
    """The ``last`` logits (last, vocabulary); ``start`` is the number of the first of these tokens."""
    kinds = getattr(model.config, "layer_types", None)
    out = model(
        input_ids=torch.tensor([ids]), past_key_values=cache, position_ids=torch.arange(start, start + len(ids))[None],
        attention_mask=dict.fromkeys(kinds) if kinds else None,  # the attention function knows what it needs
        logits_to_keep=last,
    )  # fmt: skip
    return out.logits[0].float()


def _prepare(model: Any) -> None:
    if any(_is_sliding(layer.self_attn) for layer in model.model.layers):
        # the rotary of Gemma 3 asks for a layer type, which presses do not give: theirs are full-attention layers
        rotary = model.model.rotary_emb
        inner = rotary.forward
        rotary.forward = lambda x, ids, layer_type="full_attention": inner(x, ids, layer_type)
    transformers.AttentionInterface.register("causal", _causal)
    model.set_attn_implementation("causal")


def _causal(module: Any, q: Any, k: Any, v: Any, _: Any = None, scaling: float = 1.0, **__: Any) -> tuple[Any, Any]:
    """Attention, and its weights where a press may look at them: full-attention layers, while the context is read."""
    t, n = q.shape[2], k.shape[2]
    back = torch.arange(n - t, n)[:, None] - torch.arange(n)  # the last rows are the queries' own
    seen = (back >= 0) & (back < module.sliding_window) if _is_sliding(module) else back >= 0
    weights = None
    if _is_sliding(module) or t < n:
        seen = _without(seen, getattr(module, "masked_key_indices", None), q.shape[1], k.shape[1])
        out = functional.scaled_dot_product_attention(q, k, v, seen, scale=scaling, enable_gqa=True)
    else:
        k, v = (rows.repeat_interleave(q.shape[1] // rows.shape[1], 1) for rows in (k, v))
        weights = (q @ k.transpose(-1, -2) * scaling).masked_fill(~seen, float("-inf")).softmax(-1)
        out = weights @ v
    return out.transpose(1, 2).contiguous(), weights


def _without(seen: torch.Tensor, masked: Any, heads: int, kv_heads: int) -> torch.Tensor:
    """(t, n), or one of these per head where a press masks rows of some heads only."""
    if masked is None:
        return seen
    each = seen.repeat(kv_heads, 1, 1)
    each[masked[1], :, masked[2]] = False
    return each.repeat_interleave(heads // kv_heads, 0)[None]


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cases", help="the file of `bench_kv.py cases`")
    p.add_argument("model", help="a folder, or a name on Hugging Face")
    p.add_argument("--rows", type=int, required=True, help="rows of the context that a full-attention layer keeps")
    p.add_argument("--sets", action="append", default=[], help="needles or ledger; both by default")
    p.add_argument("--cases-of-each", type=int, default=None, help="the first ones of each set; all by default")
    p.add_argument("--only", action="append", default=[], help="a method by its name; may be given more than once")
    p.add_argument("--threads", type=int, default=1)
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
