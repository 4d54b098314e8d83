"""Measure the KV cache strategies: bytes, first token, decode speed, needles and perplexity, against their floors.

    python scripts/bench_kv.py speed --tokens 2048
    python scripts/bench_kv.py needles --tokens 2048 --seeds 6
    python scripts/bench_kv.py perplexity --tokens 2048

``speed`` takes a random Llama of 12 layers unless told otherwise: its time does not depend on what it says. The other
two need a model that reads (``--model gemma3-270m``). Times are the best of ``--repeat``; on a shared machine only
their ratios mean anything.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from testbed.core import seeds
from testbed.models.runner import generate, strategies, weights
from testbed.models.runner.kv import bytes_bound
from testbed.models.runner.policy import Policy

RANDOM_LLAMA = "random-llama-12l"
CITIES = ("Lisbon", "Oslo", "Nairobi", "Lima", "Hanoi", "Quebec", "Dublin", "Cairo", "Prague", "Perth")
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.2)


class Setting(NamedTuple):
    """A row of the table: a strategy with its policy."""

    name: str
    strategy: str
    policy: Policy
    is_one_pass: bool = False


class Speed(NamedTuple):
    first_token_s: float
    warm_turn_s: float
    decode_tokens_per_s: float
    live_bytes: int
    peak_bytes: int
    host_bytes: int
    keep_ratio: float


def main() -> int:
    args = _arguments()
    torch.set_num_threads(args.threads)
    model, tokenizer, name = _model(args.model)
    rows = {"speed": speed, "needles": needles, "perplexity": perplexity}[args.what](model, tokenizer, args)
    head = {
        "what": args.what, "model": name, "tokens": args.tokens, "chunk": args.chunk, "threads": args.threads,
        "clock": args.clock, "torch": torch.__version__, "machine": platform.machine(),
        "cores": os.cpu_count(), "gpu": False,
    }  # fmt: skip
    print(json.dumps(head))
    for row in rows:
        print(json.dumps(row), flush=True)
    return 0


# -- speed and memory ------------------------------------------------------------------------------------------------


def speed(model: Any, _: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row a setting, the full cache first; ratios against it."""
    vocabulary = model.get_input_embeddings().num_embeddings
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(5, min(vocabulary, 200_000), (1, args.tokens), generator=draw)
    turn = torch.randint(5, min(vocabulary, 200_000), (1, 64), generator=draw)
    full: Speed | None = None
    for setting in settings(args):
        caches = strategies.Caches(model, setting.strategy, setting.policy)
        with caches.ready(), torch.inference_mode():
            chunk = args.tokens if setting.is_one_pass else args.chunk
            runs = [_run(model, caches, ids, turn, chunk, args) for _ in range(args.repeat)]
        best = Speed(
            min(r.first_token_s for r in runs), min(r.warm_turn_s for r in runs),
            max(r.decode_tokens_per_s for r in runs), *runs[-1][3:],
        )  # fmt: skip
        full = full or best
        bound = bytes_bound(model, setting.policy, args.chunk) if "sliding" in setting.strategy else None
        yield {
            "setting": setting.name, **{k: round(v, 4) for k, v in best._asdict().items()},
            "kv_bytes_formula_full": _formula_bytes(model, args.tokens), "bytes_bound": bound,
            "first_token_vs_full": round(best.first_token_s / full.first_token_s, 3),
            "decode_vs_full": round(best.decode_tokens_per_s / full.decode_tokens_per_s, 3),
            "peak_vs_full": round(best.peak_bytes / full.live_bytes, 3),
        }  # fmt: skip


def _run(model: Any, caches: strategies.Caches, ids: torch.Tensor, turn: torch.Tensor, chunk: int, args: Any) -> Speed:
    clock = time.process_time if args.clock == "cpu" else time.perf_counter
    cache = caches.new()
    first_s, logits = _timed(lambda: generate.prefill(model, ids, cache, chunk), clock)
    prefilled = strategies.usage(cache)
    steps = []
    token = int(logits.argmax())
    for _ in range(args.decode):
        took_s, logits = _timed(
            lambda t=token: model(torch.tensor([[t]]), cache=cache, use_cache=True).logits[0, -1], clock
        )
        token = int(logits.argmax())
        steps.append(took_s)
    warm_s, _ = _timed(lambda: generate.prefill(model, turn, cache, args.chunk), clock)
    peak = max(prefilled.peak_bytes, strategies.usage(cache).peak_bytes)
    quick = sorted(steps)[len(steps) // 4]  # the quieter quarter of a shared machine
    host = strategies.usage(cache).host_bytes
    return Speed(first_s, warm_s, 1 / quick, prefilled.live_bytes, peak, host, prefilled.keep_ratio)


def _timed(call: Callable[[], torch.Tensor], clock: Callable[[], float]) -> tuple[float, torch.Tensor]:
    start = clock()
    out = call()
    return clock() - start, out


def _formula_bytes(model: Any, n: int) -> int:
    """2 x layers x kv_heads x head_dim x bytes x tokens; a layer with a window of its own holds at most that."""
    from testbed.models.runner.kv import _layers_of

    config = model.config.get_text_config(decoder=True)
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rows = sum(n if local is None else min(n, local - 1) for _, local in _layers_of(model))
    return int(2 * rows * config.num_key_value_heads * dim * model.dtype.itemsize)


# -- quality ---------------------------------------------------------------------------------------------------------


def needles(model: Any, tokenizer: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A 5-digit code hidden in shuffled documentation; the question is a chunk of its own, after the context."""
    paragraphs = documentation()
    for setting in settings(args):
        caches = strategies.Caches(model, setting.strategy, setting.policy)
        hits, logprobs, keeps = [], [], []
        with caches.ready(), torch.inference_mode():
            for seed in range(args.seeds):
                context, question, answer = needle(tokenizer, paragraphs, args.tokens, DEPTHS[seed % 6], seed)
                cache = caches.new()
                generate.prefill(model, context, cache, args.chunk)
                keeps.append(strategies.usage(cache).keep_ratio)
                logits = generate.prefill(model, question, cache, args.chunk)
                hit, logprob = _says(model, cache, logits, answer)
                hits.append(hit)
                logprobs.append(logprob)
        yield {
            "setting": setting.name, "hits": sum(hits), "of": len(hits), "by_seed": [int(h) for h in hits],
            "mean_logprob": round(sum(logprobs) / len(logprobs), 3), "keep_ratio": round(sum(keeps) / len(keeps), 3),
        }  # fmt: skip


def needle(
    tokenizer: Any, paragraphs: list[str], n: int, depth: float, seed: int
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """(context, question, answer ids): ``n`` tokens of context and question with the code at ``depth``."""
    draw = seeds.stream(seed, "needle")
    order = paragraphs[:]
    draw.shuffle(order)
    city, code = CITIES[seed % len(CITIES)], str(draw.randint(10000, 99999))
    fact = f"\nThe secret access code for the {city} office is {code}.\n"
    ask = f"\n\nQuestion: What is the secret access code for the {city} office?\nAnswer: The secret access code for "
    begin, *hidden = tokenizer.encode(fact)
    question = tokenizer.encode(ask + f"the {city} office is")[1:]
    body: list[int] = []
    for text in order:
        if len(body) >= n:
            break
        body += tokenizer.encode(text + "\n")[1:]
    body = body[: n - len(hidden) - len(question) - 1]
    cut = int(depth * len(body))
    context = [begin, *body[:cut], *hidden, *body[cut:]]
    return torch.tensor([context]), torch.tensor([question]), tokenizer.encode(" " + code)[1:]


def _says(model: Any, cache: Any, logits: torch.Tensor, answer: list[int]) -> tuple[bool, float]:
    """Whether greedy decoding says the answer, and its log probability."""
    total, hit = 0.0, True
    for token in answer:
        total += float(logits.log_softmax(-1)[token])
        hit = hit and int(logits.argmax()) == token
        logits = model(torch.tensor([[token]]), cache=cache, use_cache=True).logits[0, -1].float()
    return hit, total


def perplexity(model: Any, tokenizer: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Of the last quarter of a text, chunk after chunk, with everything before it in the cache."""
    ids = tokenizer.encode("\n".join(documentation()))[: args.tokens]
    for setting in settings(args):
        caches = strategies.Caches(model, setting.strategy, setting.policy)
        with caches.ready(), torch.inference_mode():
            cache = caches.new()
            start = len(ids) * 3 // 4
            last = generate.prefill(model, torch.tensor([ids[:start]]), cache, args.chunk)[None]
            total = 0.0
            for at in range(start, len(ids), 64):
                part = torch.tensor([ids[at : at + 64]])
                logits = model(part, cache=cache, use_cache=True).logits[0].float()
                seen = torch.cat([last, logits[:-1]])
                total += float(torch.nn.functional.cross_entropy(seen, part[0], reduction="sum"))
                last = logits[-1:]
            mean = total / (len(ids) - start)
            keep = strategies.usage(cache).keep_ratio
        yield {"setting": setting.name, "perplexity": round(float(torch.tensor(mean).exp()), 3), "keep_ratio": keep}


def documentation() -> list[str]:
    """Paragraphs of the standard library's docstrings: text that every machine with this Python has."""
    found: dict[str, None] = {}
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                for block in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                    text = " ".join(block.split())
                    if len(text) > 90 and re.match(r"[A-Z][a-z]", text) and not re.search(r"[>{}\[\]=|`_]", text):
                        found[text] = None
    return list(found)


# -- settings --------------------------------------------------------------------------------------------------------


def settings(args: argparse.Namespace) -> list[Setting]:
    """The rows: ``--only`` picks some of them by name."""
    base = {
        "window": args.window, "block": args.block, "sink": args.block, "max_blocks": args.max_blocks,
        "threshold": args.threshold, "recall": args.recall, "decode_recall": args.decode_recall,
    }  # fmt: skip
    sparse = Policy(**base)
    rows = [
        Setting("full", "full", sparse),
        Setting("full, one pass", "full", sparse, is_one_pass=True),
        Setting("sliding", "sliding", sparse),
        Setting("sliding_sparse, dropped", "sliding_sparse", sparse),
        Setting("sliding_sparse, host tier", "sliding_sparse", Policy(**base, host_blocks=100_000)),
        Setting("quantized", "quantized", sparse),
    ]
    told = [r for r in rows if args.what == "speed" or not r.is_one_pass]  # it says what "full" says
    return [r for r in told if not args.only or r.name in args.only]


def _model(name: str) -> tuple[Any, Any, str]:
    if name != RANDOM_LLAMA:
        loaded = weights.load(name)
        return loaded.model, loaded.tokenizer, f"{name} {loaded.fingerprint[:8]}"
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=512, intermediate_size=1408, num_hidden_layers=12, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=32768,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval().requires_grad_(False), None, name


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["speed", "needles", "perplexity"])
    p.add_argument("--model", default=RANDOM_LLAMA)
    p.add_argument("--tokens", type=int, default=2048)
    p.add_argument("--chunk", type=int, default=1024)
    p.add_argument("--window", type=int, default=512)
    p.add_argument("--block", type=int, default=64)
    p.add_argument("--max-blocks", type=int, default=16)
    p.add_argument("--threshold", type=float, default=0.15)
    p.add_argument("--recall", type=int, default=4)
    p.add_argument("--decode-recall", type=int, default=0)
    p.add_argument("--seeds", type=int, default=6)
    p.add_argument("--decode", type=int, default=24)
    p.add_argument("--repeat", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: seconds of work, with --threads 1")
    p.add_argument("--only", action="append", default=[], help="a setting by its name; may be given more than once")
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
