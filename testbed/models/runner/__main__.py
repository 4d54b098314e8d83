"""Arguments in, a running server out."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from testbed.core.errors import HarnessError, InvalidInput, Unavailable
from testbed.models.runner.policy import (
    DECODE_RECALL_FLAG,
    DECODE_RECALL_VARIABLE,
    DEFAULT_DECODE_RECALL,
    THRESHOLD_VARIABLE,
    Policy,
    served_decode_recall,
    threshold_from_environment,
)
from testbed.models.runner.strategies import SPARSE, STRATEGIES


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        return _serve(args)
    except HarnessError as e:
        print(f"error: {e}", file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m testbed.models.runner", description=__doc__)
    p.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; anything but loopback is reachable by others"
    )
    p.add_argument("--port", type=int, default=8000, help="0 takes a free one and prints it")
    p.add_argument(
        "--model", default="gemma3-270m", help="gemma3-270m, tiny, a Hugging Face name, a folder or a .gguf file"
    )
    p.add_argument("--revision", default=None, help="branch, tag or commit of a Hugging Face model")
    p.add_argument("--device", default="cpu", help="cpu or cuda")
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    p.add_argument("--threads", type=int, default=0, help="CPU threads of the model; 0 leaves torch's choice")
    p.add_argument("--kv-cache-strategy", default="full", choices=STRATEGIES)
    p.add_argument("--kv-threshold", type=float, default=None, help=f"share of the best block (${THRESHOLD_VARIABLE})")
    p.add_argument("--kv-window", type=int, default=1024, help="last tokens, never dropped")
    p.add_argument("--kv-sink", type=int, default=64, help="first tokens, never dropped")
    p.add_argument("--kv-block", type=int, default=64, help="tokens per block")
    p.add_argument(
        "--kv-max-blocks", type=int, default=128, help="blocks kept between sinks and window: the memory bound"
    )
    p.add_argument("--kv-host-blocks", type=int, default=4096, help="blocks kept in host memory; 0 drops them for good")
    p.add_argument("--kv-recall", type=int, default=4, help="blocks that one chunk may bring back")
    p.add_argument(
        DECODE_RECALL_FLAG,
        default=None,
        metavar="N",
        help=f"the same for a decoded token, once per block of tokens; 0 is off, {DEFAULT_DECODE_RECALL} where neither "
        f"this nor ${DECODE_RECALL_VARIABLE} is set; without a host tier it does nothing",
    )
    p.add_argument(
        "--cuda-graphs",
        default="auto",
        choices=["auto", "on", "off"],
        help="replay decoded tokens as one launch each; auto: on a GPU, with a sliding strategy, if the model can",
    )
    p.add_argument("--prefix-cache-mib", type=int, default=0, help="memory for KV blocks shared by requests; 0 is off")
    p.add_argument(
        "--adapter", action="append", default=[], metavar="NAME=FOLDER", help="a LoRA folder, served as NAME"
    )
    p.add_argument("--max-queue", type=int, default=64, help="requests that may wait; one more is answered 429")
    p.add_argument("--prefill-chunk", type=int, default=1024, help="prompt tokens per forward pass")
    return p


def _serve(args: argparse.Namespace) -> int:
    try:
        import torch

        from testbed.models.runner import adapters, serving, weights
        from testbed.models.runner.engine import Engine
        from testbed.models.runner.graphs import cuda_graph
        from testbed.models.runner.prefix import PrefixCache
    except ImportError as e:
        raise Unavailable(f"package {e.name!r} is missing; run: pip install 'rag-testbed[runner]'") from e

    if min(args.max_queue, args.prefill_chunk) < 1:
        raise InvalidInput("--max-queue and --prefill-chunk must be at least 1")
    if args.threads:
        torch.set_num_threads(args.threads)
    policy, is_graphed = _policy(args), _is_graphed(args)
    folders = [_name_and_folder(text) for text in args.adapter]
    listener = serving.listen(args.host, args.port)  # before the model: a taken port should not cost a load
    if args.model == weights.GEMMA:
        print(weights.GEMMA_NOTICE, file=sys.stderr)
    loaded = weights.load(args.model, device=args.device, dtype=args.dtype, revision=args.revision)
    prefix = PrefixCache(args.prefix_cache_mib * 2**20) if args.prefix_cache_mib else None
    settings = {
        "strategy": args.kv_cache_strategy,
        "policy": policy,
        "prefix_cache": prefix,
        "capture": cuda_graph if is_graphed else None,
        "must_capture": args.cuda_graphs == "on",
    }
    engine = Engine(loaded, max_queue=args.max_queue, chunk=args.prefill_chunk, **settings)
    for name, folder in folders:
        engine.add_adapter(adapters.load(name, folder, loaded.model))
    running = serving.Running(engine, listener, max_connections=4 * args.max_queue)
    # uvicorn raises the signal again when it has shut down; this handler makes a clean stop end with status 0
    signal.signal(signal.SIGTERM, lambda *_: None)
    print(f"listening on {running.url} model={loaded.name} kv={args.kv_cache_strategy}", flush=True)
    running.run()
    return 0


def _is_graphed(args: argparse.Namespace) -> bool:
    on_gpu, fits = args.device.startswith("cuda"), args.kv_cache_strategy in SPARSE
    if args.cuda_graphs == "on" and not fits:
        raise InvalidInput(f"--cuda-graphs on needs --kv-cache-strategy {' or '.join(SPARSE)}")
    if args.cuda_graphs == "on" and not on_gpu:
        raise Unavailable(f"--cuda-graphs on needs a GPU; --device is {args.device}")
    return args.cuda_graphs != "off" and on_gpu and fits


def _policy(args: argparse.Namespace) -> Policy:
    threshold = threshold_from_environment() if args.kv_threshold is None else args.kv_threshold
    return Policy(
        window=args.kv_window,
        threshold=threshold,
        block=args.kv_block,
        sink=args.kv_sink,
        max_blocks=args.kv_max_blocks,
        host_blocks=args.kv_host_blocks,
        recall=args.kv_recall,
        decode_recall=served_decode_recall(args.kv_decode_recall),
    )


def _name_and_folder(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise InvalidInput(f"--adapter {text!r} must be NAME=FOLDER")
    return name, folder


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
