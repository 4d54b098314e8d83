"""What the KV caches cost per step and per prompt, on a small random model; and what they hold at 8,192 tokens.

Bytes are exact and are asserted. Times are for comparison on one machine: ``scripts/bench_kv.py`` gives the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the runner extra")
transformers = pytest.importorskip("transformers", reason="needs the runner extra")

from testbed.models.runner import generate, strategies  # noqa: E402
from testbed.models.runner.chain import Identity  # noqa: E402
from testbed.models.runner.kv import bytes_bound  # noqa: E402
from testbed.models.runner.policy import Policy  # noqa: E402
from testbed.models.runner.prefix import PrefixCache, prefill  # noqa: E402

pytestmark = pytest.mark.models
POLICY = Policy(window=128, block=32, sink=32, max_blocks=4)


def model(layers: int, hidden: int) -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16384,
    )
    return transformers.LlamaForCausalLM(config).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def small() -> Any:
    return model(4, 128)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def ids(n: int) -> Any:
    return torch.randint(5, 250, (1, n), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("strategy", ["full", "sliding", "sliding_sparse", "quantized"])
def test_decode_step_after_1024_tokens(benchmark: Callable[..., Any], small: Any, strategy: str) -> None:
    caches = strategies.Caches(small, strategy, POLICY)
    with caches.ready():
        cache = caches.new()
        generate.prefill(small, ids(1024), cache, 256)
        token = ids(1)
        benchmark(lambda: small(token, cache=cache, use_cache=True).logits)


@pytest.mark.parametrize("strategy", ["full", "sliding_sparse"])
def test_prefill_of_1024_tokens(benchmark: Callable[..., Any], small: Any, strategy: str) -> None:
    caches = strategies.Caches(small, strategy, POLICY)
    with caches.ready():
        benchmark(lambda: generate.prefill(small, ids(1024), caches.new(), 256))


@pytest.mark.parametrize("known", [False, True])
def test_first_token_of_1024_with_and_without_a_known_prefix(
    benchmark: Callable[..., Any], small: Any, known: bool
) -> None:
    prompt, me = ids(1024)[0].tolist(), Identity("m")
    prefix = PrefixCache(2**28 if known else 0, block=64)
    prefill(small, prompt, prefix, me)
    _, _, found = benchmark(lambda: prefill(small, prompt, prefix, me))
    assert found == (960 if known else 0)


@pytest.mark.parametrize("decode_recall", [0, 1])
@pytest.mark.parametrize("host_blocks", [0, 1000])
def test_at_8192_tokens_the_sparse_cache_never_holds_a_third_of_the_full_one(
    host_blocks: int, decode_recall: int
) -> None:
    """Window 512, 16 blocks of 64, sinks 64, chunks of 1,024; 12 layers, as in the published set-up, but thin ones."""
    thin = model(12, 16)
    policy = Policy(window=512, block=64, sink=64, max_blocks=16, host_blocks=host_blocks, decode_recall=decode_recall)
    caches = strategies.Caches(thin, "sliding_sparse", policy)
    with caches.ready():
        cache = caches.new()
        generate.prefill(thin, ids(8192), cache, 1024)
        for token in ids(70).split(1, dim=1):
            thin(token, cache=cache, use_cache=True)
        used = strategies.usage(cache)
    row = 2 * 12 * 2 * 4 * 4  # keys and values, layers, heads, channels, bytes
    limit = bytes_bound(thin, policy, 1024)
    assert limit is not None and used.peak_bytes <= limit
    assert used.live_bytes <= (64 + 16 * 64 + 512 + 2 * 64) * row
    assert used.peak_bytes * 3 <= 8192 * row
