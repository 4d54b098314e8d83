"""KV caches on a GPU: three strategies up to 128K tokens, decoding by CUDA graphs or not, and copies that are hidden.

    python scripts/bench_kv_gpu.py table --tokens 8192 32768 131072
    python scripts/bench_kv_gpu.py overlap --tokens 32768

``table`` takes random weights of the shape of a model of 1.5B parameters (28 layers of 1,536, 2 key heads of 128), in
bfloat16: time does not depend on what they say. Beside each time stands its floor on a device of ``--tflops`` and
``--tb-per-s`` (the defaults are an H200's, dense bfloat16): the arithmetic of a cold prompt, the bytes that a decoded
token reads. A time under its floor is a mistake in the measurement, and ends the program.

``overlap`` reads a prompt without a host tier, with copies beside the computing, and with the same copies between it.

``--device cpu --model small`` runs what needs no GPU, to try the program itself; such rows say ``"device": "cpu"``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from testbed.core.errors import HarnessError, Unavailable
from testbed.models.runner import generate, strategies
from testbed.models.runner.copies import SideStream
from testbed.models.runner.graphs import GraphedSteps, cuda_graph
from testbed.models.runner.kv import SlidingSparseCache, arena_for, attached
from testbed.models.runner.policy import Policy

SHAPES: dict[str, dict[str, int]] = {
    "1.5b": {
        "vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
        "num_attention_heads": 12, "num_key_value_heads": 2,
    },
    "small": {
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    },
}  # fmt: skip
TURN = 64  # tokens of a second question


class Row(NamedTuple):
    """How a context is kept. ``strategy`` full in an arena is the sparse cache with a policy that drops nothing."""

    name: str
    strategy: str
    policy: Policy
    is_graphed: bool


class Floor(NamedTuple):
    """What no device of these figures can be below, in seconds."""

    first_token_s: float
    decode_s: float


def main() -> int:
    args = _arguments()
    try:
        if args.device == "cuda" and not torch.cuda.is_available():
            raise Unavailable("torch finds no GPU; --device cpu --model small tries the program without one")
        model = _model(args)
        print(json.dumps(_head(model, args)))
        with torch.inference_mode():
            for row in {"table": table, "overlap": overlap}[args.what](model, args):
                print(json.dumps(row), flush=True)
    except HarnessError as e:
        print(f"error: {e}", file=sys.stderr)
        return e.exit_code
    return 0


# -- three strategies ------------------------------------------------------------------------------------------------


def table(model: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line for each length and way; ratios against the plain full cache of that length."""
    for n in args.tokens:
        full: dict[str, Any] | None = None
        for row in rows(args, n):
            found = _measured(model, row, n, args)
            full = full or found
            yield {
                "tokens": n, "setting": row.name, "graphs": row.is_graphed,
                **{key: round(value, 5) if isinstance(value, float) else value for key, value in found.items()},
                **{
                    f"{key}_vs_full": round(found[key] / full[key], 3)
                    for key in ("first_token_s", "warm_turn_s", "decode_s", "peak_bytes")
                },
            }  # fmt: skip


def rows(args: argparse.Namespace, n: int) -> list[Row]:
    """Full, sliding and sliding-sparse with both tiers; each decoded plainly, and by graphs where there is a GPU."""
    policy = Policy(
        window=args.window, block=args.block, sink=args.block, max_blocks=args.max_blocks, recall=args.recall,
        decode_recall=1, host_blocks=n // args.block + 1,
    )  # fmt: skip
    kept = {"full": replace(policy, threshold=0.0, max_blocks=None, host_blocks=0)}
    ways = [(name, kept.get(name, policy)) for name in ("full", "sliding", "sliding_sparse")]
    graphed = (False, True) if args.device == "cuda" else (False,)
    return [Row(name, name, policy, is_graphed) for name, policy in ways for is_graphed in graphed]


def _measured(model: Any, row: Row, n: int, args: argparse.Namespace) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 500, (1, n), generator=draw).to(model.device)
    turn = torch.randint(5, 500, (1, TURN), generator=draw).to(model.device)
    ready, new, steps = _way(model, row, n + args.decode + TURN)
    with ready:
        _read_and_decode(model, new(), ids[:, : 2 * args.chunk], turn, steps, 2 * args.block, args)  # warm-up
        _reset_peak(model)
        cache = new()
        first_s, decode_s, warm_s = _read_and_decode(model, cache, ids, turn, steps, args.decode, args)
        used = strategies.usage(cache)
    floor = floors(model, n, used.live_bytes, args)
    if model.device.type == "cuda" and (decode_s < floor.decode_s or first_s < floor.first_token_s):
        raise HarnessError(f"{row.name} at {n} tokens: {first_s:.4f} s and {decode_s:.6f} s are below {floor}")
    return {
        "first_token_s": first_s, "first_token_floor_s": floor.first_token_s, "warm_turn_s": warm_s,
        "decode_s": decode_s, "decode_floor_s": floor.decode_s, "live_bytes": used.live_bytes,
        "peak_bytes": used.peak_bytes, "host_bytes": used.host_bytes, "keep_ratio": used.keep_ratio,
        "device_peak_bytes": _device_peak(model),
        "captures": steps.captures if isinstance(steps, GraphedSteps) else 0,
        "replays": steps.replays if isinstance(steps, GraphedSteps) else 0,
    }  # fmt: skip


def _way(model: Any, row: Row, room: int) -> tuple[Any, Callable[[], Any], generate.Steps]:
    """The model's state, a maker of caches, and how to decode."""
    if row.strategy == "full" and row.is_graphed:
        arena = arena_for(model, row.policy, room=room)
        return attached(model), lambda: SlidingSparseCache(model, row.policy, arena), GraphedSteps(model, cuda_graph)
    caches = strategies.Caches(model, row.strategy, row.policy, cuda_graph if row.is_graphed else None)
    return caches.ready(), caches.new, caches.steps()


def _read_and_decode(
    model: Any, cache: Any, ids: torch.Tensor, turn: torch.Tensor, steps: generate.Steps, n: int, args: Any
) -> tuple[float, float, float]:
    """Seconds to the first token, of a decoded token (median), and of a second question."""
    first_s, logits = _timed(model, lambda: generate.prefill(model, ids, cache, args.chunk))
    took = []
    for _ in range(n):
        token = int(logits.argmax())
        step_s, logits = _timed(model, lambda token=token: steps(cache, token))
        took.append(step_s)
    warm_s, _ = _timed(model, lambda: generate.prefill(model, turn, cache, args.chunk))
    return first_s, sorted(took)[len(took) // 2], warm_s


def floors(model: Any, n: int, kv_bytes: int, args: argparse.Namespace) -> Floor:
    """Of a cold prompt of ``n`` tokens, its linear layers alone; and of a token that reads weights and ``kv_bytes``."""
    config = model.config
    inner = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name)
    weights = (inner + config.vocab_size * config.hidden_size) * model.dtype.itemsize
    return Floor(2 * inner * n / (args.tflops * 1e12), (weights + kv_bytes) / (args.tb_per_s * 1e12))


# -- copies that are hidden ------------------------------------------------------------------------------------------


def overlap(model: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Seconds of the same prompt: nothing demoted, copies beside the computing, copies between it, copies alone."""
    if args.device != "cuda":
        raise Unavailable("overlap compares two streams of a GPU; --device is cpu")
    for n in args.tokens:
        ids = torch.randint(5, 500, (1, n), generator=torch.Generator().manual_seed(0)).to(model.device)
        sparse = rows(args, n)[-1].policy
        found = {
            "dropped_s": _prefilled(model, replace(sparse, host_blocks=0), ids, None, args)[0],
            "beside_s": _prefilled(model, sparse, ids, True, args)[0],
        }
        found["between_s"], copies = _prefilled(model, sparse, ids, False, args)
        found["copies_s"] = _copied(model, copies)
        hidden = (found["between_s"] - found["beside_s"]) / found["copies_s"]
        told = {key: round(value, 5) for key, value in found.items()}
        yield {"tokens": n, **told, "moved_bytes": sum(copies), "hidden_share_of_copies": round(hidden, 3)}


def _prefilled(
    model: Any, policy: Policy, ids: torch.Tensor, aside: bool | None, args: argparse.Namespace
) -> tuple[float, list[int]]:
    """Seconds, the best of ``--repeat``, and the bytes of each copy, either way."""
    took, copied = [], []
    with attached(model):
        for _ in range(args.repeat + 1):  # the first one warms up
            copies = None if aside is None else Counted(model.device, aside=aside)
            cache = SlidingSparseCache(model, policy, copies=copies)
            took.append(_timed(model, lambda cache=cache: generate.prefill(model, ids, cache, args.chunk))[0])
            copied = copies.bytes if copies else []
    return min(took[1:]), copied


class Counted(SideStream):
    """Notes how much is copied."""

    def __init__(self, device: torch.device, *, aside: bool) -> None:
        super().__init__(device, aside=aside)
        self.bytes: list[int] = []

    def writing(self, rows: torch.Tensor) -> Any:
        self.bytes.append(rows.nbytes)
        return super().writing(rows)

    def handed_over(self, rows: torch.Tensor) -> None:
        self.bytes.append(rows.nbytes)
        super().handed_over(rows)


def _copied(model: Any, sizes: list[int]) -> float:
    """Seconds of copies of these sizes to pinned memory and nothing else (from it takes as long)."""
    there = torch.empty(max(sizes), dtype=torch.uint8, device=model.device)
    here = torch.empty(there.shape, dtype=torch.uint8, pin_memory=True)

    def copy() -> torch.Tensor:
        for size in sizes:
            here[:size].copy_(there[:size], non_blocking=True)
        return here

    return _timed(model, copy)[0]


# -- the device ------------------------------------------------------------------------------------------------------


def _timed(model: Any, call: Callable[[], torch.Tensor]) -> tuple[float, torch.Tensor]:
    """Wall seconds until the device has finished."""
    _wait(model)
    start = time.perf_counter()
    out = call()
    _wait(model)
    return time.perf_counter() - start, out


def _wait(model: Any) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def _reset_peak(model: Any) -> None:
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(model.device)


def _device_peak(model: Any) -> int | None:
    """Most bytes that torch held on the GPU, weights included; None on a CPU."""
    return torch.cuda.max_memory_allocated(model.device) if model.device.type == "cuda" else None


def _model(args: argparse.Namespace) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    shape = {**SHAPES[args.model], "max_position_embeddings": 262_144, "tie_word_embeddings": True}
    torch.set_default_dtype(getattr(torch, args.dtype))
    try:
        with torch.device(args.device):
            model = Qwen2ForCausalLM(Qwen2Config(**shape))
    finally:
        torch.set_default_dtype(torch.float32)
    return model.eval().requires_grad_(False)


def _head(model: Any, args: argparse.Namespace) -> dict[str, Any]:
    is_gpu = model.device.type == "cuda"
    return {
        "what": args.what, "model": args.model, "parameters": sum(p.numel() for p in model.parameters()),
        "dtype": args.dtype, "chunk": args.chunk, "window": args.window, "block": args.block,
        "max_blocks": args.max_blocks, "torch": torch.__version__, "device": args.device,
        "name": torch.cuda.get_device_name(model.device) if is_gpu else None,
        "tflops": args.tflops, "tb_per_s": args.tb_per_s,
    }  # fmt: skip


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["table", "overlap"])
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
    p.add_argument("--model", default="1.5b", choices=list(SHAPES))
    p.add_argument("--tokens", type=int, nargs="+", default=[8192, 32_768, 131_072])
    p.add_argument("--chunk", type=int, default=2048)
    p.add_argument("--window", type=int, default=1024)
    p.add_argument("--block", type=int, default=64)
    p.add_argument("--max-blocks", type=int, default=128)
    p.add_argument("--recall", type=int, default=4)
    p.add_argument("--decode", type=int, default=192, help="tokens: three blocks of 64, so that pruning is among them")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--tflops", type=float, default=989.0)
    p.add_argument("--tb-per-s", type=float, default=4.8)
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
