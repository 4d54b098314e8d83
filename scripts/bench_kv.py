"""Measure the KV cache strategies: bytes, first token, decode speed, needles and perplexity, against their floors.

    python scripts/bench_kv.py speed --tokens 2048
    python scripts/bench_kv.py needles --tokens 2048 --seeds 6
    python scripts/bench_kv.py ledger --tokens 2048 --seeds 6
    python scripts/bench_kv.py perplexity --tokens 2048
    python scripts/bench_kv.py cases --tokens 2048 --seeds 6 --out kv-cases.json

``speed`` takes a random Llama of 12 layers unless told otherwise: its time does not depend on what it says. The others
need a model that reads (``--model gemma3-270m``). Times are the best of ``--repeat``; on a shared machine only
their ratios mean anything.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kv_cases
import torch

from testbed.models.runner import generate, strategies, weights
from testbed.models.runner.kv import bytes_bound
from testbed.models.runner.policy import Policy

RANDOM_LLAMA = "random-llama-12l"


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
    decode_mean_ms: float
    live_bytes: int
    peak_bytes: int
    host_bytes: int
    keep_ratio: float
    prefill_peak_bytes: int
    decode_peak_bytes: int  # of prompt and answer; ``peak_bytes`` has a second turn too


def main() -> int:
    args = _arguments()
    torch.set_num_threads(args.threads)
    model, tokenizer, name = _model(args.model)
    rows = MODES[args.what](model, tokenizer, args)
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
            max(r.decode_tokens_per_s for r in runs), min(r.decode_mean_ms for r in runs), *runs[-1][4:],
        )  # fmt: skip
        full = full or best
        bound = bytes_bound(model, setting.policy, args.chunk) if "sliding" in setting.strategy else None
        yield {
            "setting": setting.name, "max_blocks": setting.policy.max_blocks,
            **{k: round(v, 4) for k, v in best._asdict().items()},
            "kv_bytes_formula_full": _formula_bytes(model, args.tokens), "bytes_bound": bound,
            "first_token_vs_full": round(best.first_token_s / full.first_token_s, 3),
            "decode_vs_full": round(best.decode_tokens_per_s / full.decode_tokens_per_s, 3),
            "peak_vs_full": round(best.peak_bytes / full.live_bytes, 3),
            "live_vs_full": round(best.live_bytes / full.live_bytes, 3),
            "prefill_peak_vs_full": round(best.prefill_peak_bytes / full.live_bytes, 3),
            "decode_peak_vs_full": round(best.decode_peak_bytes / full.live_bytes, 3),
            "bound_vs_full": round(bound / full.live_bytes, 3) if bound else None,
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
    decoded = strategies.usage(cache)
    warm_s, _ = _timed(lambda: generate.prefill(model, turn, cache, args.chunk), clock)
    peak = max(prefilled.peak_bytes, strategies.usage(cache).peak_bytes)
    quick = sorted(steps)[len(steps) // 4]  # the quieter quarter of a shared machine
    host = strategies.usage(cache).host_bytes
    mean_ms = 1000 * sum(steps) / len(steps)  # with pruning and recall, where so many tokens meet them
    return Speed(
        first_s, warm_s, 1 / quick, mean_ms, prefilled.live_bytes, peak, host, prefilled.keep_ratio,
        prefilled.peak_bytes, decoded.peak_bytes,
    )  # fmt: skip


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
    return _asked(model, kv_cases.needles(_encoder(tokenizer), args.tokens, args.seeds), args)


def ledger(model: Any, tokenizer: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Facts of the ledger's record pages, asked one after another, each of the cache as the context left it."""
    return _asked(model, kv_cases.ledger(_encoder(tokenizer), args.tokens, args.seeds), args)


def _asked(model: Any, cases: list[kv_cases.Case], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for alike in _alike(settings(args)):
        caches = strategies.Caches(model, alike[0].strategy, alike[0].policy)
        told: dict[str, list[Told]] = {setting.name: [] for setting in alike}
        with caches.ready(), torch.inference_mode():
            for case in cases:
                cache = caches.new()
                generate.prefill(model, torch.tensor([case.context]), cache, args.chunk)
                for setting in alike:
                    for layer in getattr(cache, "own", []):
                        layer.policy = setting.policy
                    told[setting.name] += [_says(model, copy.deepcopy(cache), ask, args.chunk) for ask in case.asks]
        for setting in alike:
            yield {"setting": setting.name, "max_blocks": setting.policy.max_blocks, **_summary(told[setting.name])}


def _encoder(tokenizer: Any) -> kv_cases.Encode:
    """Begins every text with one token; with one that ends texts where the tokenizer has none to begin them."""
    if tokenizer.encode(""):
        return tokenizer.encode  # type: ignore[no-any-return]
    return lambda text: [min(tokenizer.stops), *tokenizer.encode(text)]


def _alike(rows: list[Setting]) -> list[list[Setting]]:
    """Settings whose caches are the same until a token is decoded: they share the reading of a context."""
    found: dict[Any, list[Setting]] = {}
    for row in rows:
        found.setdefault((row.strategy, replace(row.policy, decode_recall=0)), []).append(row)
    return list(found.values())


def _summary(told: list[Told]) -> dict[str, Any]:
    n = len(told)
    return {
        "hits": sum(t.hit for t in told), "of": n, "each": "".join(str(int(t.hit)) for t in told),
        "mean_logprob": round(sum(t.logprob for t in told) / n, 3),
        "logprobs": [round(t.logprob, 3) for t in told],
        "keep_ratio": round(sum(t.keep_ratio for t in told) / n, 4),
        "keep_ratio_most": round(max(t.keep_ratio_most for t in told), 4),
    }  # fmt: skip


class Told(NamedTuple):
    """Whether greedy decoding says the answer, its log probability, and the share of rows that was kept.

    ``keep_ratio`` when the context was read, ``keep_ratio_most`` at any time between two passes from then on.
    """

    hit: bool
    logprob: float
    keep_ratio: float
    keep_ratio_most: float


def _says(model: Any, cache: Any, ask: kv_cases.Ask, chunk: int) -> Told:
    keeps = [strategies.usage(cache).keep_ratio]
    logits = generate.prefill(model, torch.tensor([ask.question]), cache, chunk)
    total, hit = 0.0, True
    for token in ask.answer:
        keeps.append(strategies.usage(cache).keep_ratio)
        total += float(logits.log_softmax(-1)[token])
        hit = hit and int(logits.argmax()) == token
        logits = model(torch.tensor([[token]]), cache=cache, use_cache=True).logits[0, -1].float()
    return Told(hit, total, keeps[0], max(keeps))


def cases(_: Any, tokenizer: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Write the prompts of ``needles`` and ``ledger`` as token ids, for a program that cannot make them."""
    sets = {
        "needles": kv_cases.needles(_encoder(tokenizer), args.tokens, args.seeds),
        "ledger": kv_cases.ledger(_encoder(tokenizer), args.tokens, args.seeds),
    }
    kv_cases.write(args.out, sets)
    yield {"out": args.out.name, **{name: sum(len(c.asks) for c in made) for name, made in sets.items()}}


def perplexity(model: Any, tokenizer: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Of the last quarter of a text, chunk after chunk, with everything before it in the cache."""
    ids = tokenizer.encode("\n".join(kv_cases.documentation()))[: args.tokens]
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
        yield {
            "setting": setting.name, "max_blocks": setting.policy.max_blocks,
            "perplexity": round(float(torch.tensor(mean).exp()), 3), "keep_ratio": round(keep, 4),
        }  # fmt: skip


# -- settings --------------------------------------------------------------------------------------------------------


def settings(args: argparse.Namespace) -> list[Setting]:
    """The rows: ``--only`` picks some of them by name."""
    base = {
        "window": args.window, "block": args.block, "sink": args.block, "threshold": args.threshold,
        "recall": args.recall, "decode_recall": 0,
    }  # fmt: skip
    plain = Policy(**base, max_blocks=args.max_blocks[0])
    sparse = [row for cap in args.max_blocks for row in _sparse({**base, "max_blocks": cap}, args.decode_recall)]
    rows = [
        Setting("full", "full", plain),
        Setting("full, one pass", "full", plain, is_one_pass=True),
        Setting("sliding", "sliding", plain),
        *sparse,
        Setting("quantized", "quantized", plain),
    ]
    told = [r for r in rows if args.what == "speed" or not r.is_one_pass]  # it says what "full" says
    return [r for r in told if not args.only or r.name in args.only]


def _sparse(base: dict[str, Any], decode_recall: int) -> list[Setting]:
    """Losers dropped, losers to host memory, and those brought back while decoding too."""
    tier = {**base, "host_blocks": 100_000}
    return [
        Setting("sliding_sparse, dropped", "sliding_sparse", Policy(**base)),
        Setting("sliding_sparse, host tier", "sliding_sparse", Policy(**tier)),
        Setting(
            "sliding_sparse, host tier, decode recall", "sliding_sparse",
            Policy(**{**tier, "decode_recall": decode_recall}),
        ),
    ]  # fmt: skip


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
    p.add_argument("what", choices=list(MODES))
    p.add_argument("--model", default=RANDOM_LLAMA)
    p.add_argument("--tokens", type=int, default=2048)
    p.add_argument("--chunk", type=int, default=1024)
    p.add_argument("--window", type=int, default=512)
    p.add_argument("--block", type=int, default=64)
    p.add_argument("--max-blocks", type=int, nargs="+", default=[16], help="one row of each sparse setting per number")
    p.add_argument("--threshold", type=float, default=0.15)
    p.add_argument("--recall", type=int, default=4)
    p.add_argument("--decode-recall", type=int, default=1, help="of the row that recalls while decoding")
    p.add_argument("--seeds", type=int, default=6)
    p.add_argument("--decode", type=int, default=24)
    p.add_argument("--repeat", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: seconds of work, with --threads 1")
    p.add_argument("--only", action="append", default=[], help="a setting by its name; may be given more than once")
    p.add_argument("--out", type=Path, default=Path("kv-cases.json"), help="what `cases` writes")
    return p.parse_args()


MODES = {"speed": speed, "needles": needles, "ledger": ledger, "perplexity": perplexity, "cases": cases}

if __name__ == "__main__":
    sys.exit(main())
