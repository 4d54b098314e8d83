from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runner_families import build

from testbed.models.runner.adapters import Adapter, LowRank
from testbed.models.runner.chain import Identity
from testbed.models.runner.prefix import PrefixCache, prefill, tapped_cache
from testbed.models.runner.steps import StepMemo, SteppedModel

pytestmark = pytest.mark.models
BLOCK = 8


class Counted:
    """A model that says how often it was called."""

    def __init__(self, model: Any) -> None:
        self._model, self.calls = model, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self._model(*args, **kwargs)


@pytest.fixture(scope="module")
def plain() -> Any:
    return build("llama")


def adapter(seed: int) -> Adapter:
    draw = torch.Generator().manual_seed(seed)
    low = LowRank(torch.randn(2, 64, generator=draw), torch.randn(64, 2, generator=draw), 0.5)
    return Adapter.of("x", {"model.layers.0.self_attn.q_proj": low})


def answer(model: Any, ids: Sequence[int], prefix: PrefixCache, lora: Adapter | None = None) -> torch.Tensor:
    """Logits after the prompt and after each of 3 greedy tokens."""
    identity = Identity("m" * 32, lora.fingerprint if lora else "")
    with lora.applied(model) if lora else torch.inference_mode():
        logits, cache, _ = prefill(model, ids, prefix, identity)
        out = [logits]
        for _ in range(3):
            ids = torch.tensor([[int(out[-1].argmax())]])  # type: ignore[assignment]
            out.append(model(ids, cache=cache, use_cache=True).logits[0, -1].float())
    return torch.stack(out)


def spoilt(prefix: PrefixCache) -> PrefixCache:
    """Every block that is held becomes another text's."""
    for keys, values in prefix._pool:
        keys.copy_(keys.roll(1, dims=-1)), values.mul_(-1)
    return prefix


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_remembered_is_what_the_model_says_from_the_same_rows_bit_for_bit(
    plain: Any, data: st.DataObject
) -> None:
    """Any sequence of prompts and adapters, with blocks from the cache that are spoilt now and then."""
    model = SteppedModel(plain, StepMemo(data.draw(st.sampled_from([1, 5, 1000]))))
    ours, theirs = (PrefixCache(2**20, block=BLOCK) for _ in range(2))
    loras = [None, adapter(1), adapter(2)]
    asks = st.tuples(st.integers(1, 2), st.integers(2, 30), st.sampled_from(loras), st.booleans())
    for head, n, lora, spoils in data.draw(st.lists(asks, min_size=2, max_size=6)):
        ids = [5 + (head * 37 + i * 11) % 200 for i in range(n)]
        assert torch.equal(answer(model, ids, ours, lora), answer(plain, ids, theirs, lora))
        if spoils:
            spoilt(ours), spoilt(theirs)


def test_the_model_is_not_asked_again_until_its_rows_or_weights_are_others(plain: Any) -> None:
    counted = Counted(plain)
    model, ids = SteppedModel(counted, StepMemo(1000)), list(range(5, 35))
    prefix = PrefixCache(2**20, block=BLOCK)
    first = answer(model, ids, PrefixCache(0, block=BLOCK))
    assert counted.calls == 4 + 3
    assert torch.equal(answer(model, ids, PrefixCache(0, block=BLOCK)), first) and counted.calls == 7
    answer(model, ids, prefix)
    answer(model, ids, prefix)  # begins with rows from the cache: the last block, and the three tokens
    assert counted.calls == 7 + 4
    assert not torch.equal(answer(model, ids, spoilt(prefix)), first) and counted.calls == 15
    answer(model, ids, PrefixCache(0, block=BLOCK), adapter(1))
    assert counted.calls == 22


def test_a_cache_that_it_was_not_told_of_or_that_somebody_changed_goes_to_the_model_itself(plain: Any) -> None:
    counted, memo = Counted(plain), StepMemo(1000)
    model, ids = SteppedModel(counted, memo), torch.tensor([[5, 6, 7]])
    for _ in range(2):
        model(ids, cache=tapped_cache(model), use_cache=True)
    assert counted.calls == 2 and len(memo) == 0
    changed = tapped_cache(model)
    model.begins(changed, "weights", [])
    plain(ids, cache=changed, use_cache=True)
    model(ids, cache=changed, use_cache=True)
    assert counted.calls == 3 and len(memo) == 0


def test_the_memo_keeps_what_was_used_last(plain: Any) -> None:
    counted, memo = Counted(plain), StepMemo(4)
    model = SteppedModel(counted, memo)
    for start in (5, 50, 5, 100, 5):
        cache = tapped_cache(model)
        model.begins(cache, "weights", [])
        model(torch.tensor([[start, start + 1]]), cache=cache, use_cache=True)
        model(torch.tensor([[start + 2]]), cache=cache, use_cache=True)
    assert len(memo) == 4 and counted.calls == 6
