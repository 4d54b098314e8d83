from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from runner_families import FAMILIES, build, tokens
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import Cache

from testbed.core import seeds
from testbed.core.errors import InvalidInput, Unsupported
from testbed.models.runner import generate, kv
from testbed.models.runner.kv import SlidingSparseCache, arena_for, attached, bytes_bound
from testbed.models.runner.policy import Policy
from testbed.models.runner.pruning import least_wanted
from testbed.models.runner.rows import in_order

pytestmark = pytest.mark.models
LOSSLESS = Policy(threshold=0.0, max_blocks=None, block=16, sink=16, window=10_000)
EXACT = 1e-5


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {}


@pytest.fixture
def model_of(models: dict[str, Any]) -> Any:
    def get(family: str) -> Any:
        if family not in models:
            models[family] = build(family)
        return models[family]

    return get


def through(model: Any, ids: torch.Tensor, cache: Any, chunk: int, n_prefill: int, **kwargs: Any) -> torch.Tensor:
    """Logits of every token: a prefill in chunks, then one token at a time."""
    spans = [(s, min(s + chunk, n_prefill)) for s in range(0, n_prefill, chunk)]
    spans += [(i, i + 1) for i in range(n_prefill, ids.shape[1])]
    mask = kwargs.get("attention_mask")
    positions = kwargs.get("position_ids")
    out = []
    for start, end in spans:
        extra = {} if mask is None else {"attention_mask": mask[:, :end], "position_ids": positions[:, start:end]}
        out.append(model(ids[:, start:end], cache=cache, use_cache=True, **extra).logits)
    return torch.cat(out, 1)


def greedy(model: Any, ids: torch.Tensor, cache: Any, n: int) -> list[int]:
    """The next ``n`` tokens after a prefill in chunks of 50."""
    said = [int(generate.prefill(model, ids, cache, 50).argmax())]
    while len(said) < n:
        said.append(int(model(torch.tensor([said[-1:]]), cache=cache, use_cache=True).logits[0, -1].argmax()))
    return said


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [200, 64, 37])
def test_without_eviction_the_logits_are_those_of_the_full_cache(model_of: Any, family: str, chunk: int) -> None:
    model, ids = model_of(family), tokens(208)
    full = model(ids, use_cache=False).logits
    with attached(model):
        ours = through(model, ids, SlidingSparseCache(model, LOSSLESS), chunk, 200)
    assert far(ours, full) < EXACT


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_longer_than_the_text_drops_nothing_at_any_threshold(model_of: Any, family: str) -> None:
    model, ids = model_of(family), tokens(150)
    full = model(ids, use_cache=False).logits
    policy = Policy(threshold=2.0, max_blocks=0, block=16, sink=16, window=150)
    with attached(model):
        ours = through(model, ids, SlidingSparseCache(model, policy), 50, 142)
    assert far(ours, full) < EXACT


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padded_rows_of_a_batch_say_what_they_say_alone(model_of: Any, family: str) -> None:
    model = model_of(family)
    lengths = (120, 81, 37, 5)
    ids, mask = torch.zeros(4, 120, dtype=torch.long), torch.zeros(4, 120, dtype=torch.long)
    alone = [tokens(n, seed=n) for n in lengths]
    for row, part in enumerate(alone):
        ids[row, 120 - part.shape[1] :], mask[row, 120 - part.shape[1] :] = part[0], 1
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    with attached(model):
        cache = SlidingSparseCache(model, LOSSLESS)
        ours = through(model, ids, cache, 48, 116, attention_mask=mask, position_ids=positions)
    for row, part in enumerate(alone):
        expected = model(part, use_cache=False).logits[0]
        assert far(ours[row, 120 - part.shape[1] :], expected) < EXACT


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_restored_bit_for_bit(model_of: Any, family: str) -> None:
    model, ids = model_of(family), tokens(40)
    before, implementation = model(ids, use_cache=False).logits, model.config._attn_implementation
    with attached(model):
        inside = model(ids, use_cache=False).logits
    assert torch.equal(model(ids, use_cache=False).logits, before)
    assert model.config._attn_implementation == implementation
    assert far(inside, before) < EXACT


# -- the mask oracle: eviction equals full attention with exactly the dropped pairs masked ----------------------------

_DROPPED_AT: dict[int, torch.Tensor] = {}


def _masked_attention(module: Any, q: Any, k: Any, v: Any, attention_mask: Any, scaling: float, **kw: Any) -> Any:
    """Plain attention that knows, for each key, how many tokens had been seen when it was dropped."""
    n = k.shape[2]
    query, key = torch.arange(n)[:, None], torch.arange(n)[None]
    mask = (key <= query) & (query < _DROPPED_AT[module.layer_idx][None, :n])
    if kw.get("sliding_window"):
        mask &= key > query - kw["sliding_window"]
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    logits = (q @ k.transpose(-1, -2) * scaling).masked_fill(~mask, float("-inf"))
    return (logits.softmax(-1) @ v).transpose(1, 2).contiguous(), None


AttentionInterface.register("mask_oracle", _masked_attention)
AttentionMaskInterface.register("mask_oracle", lambda *a, attention_mask=None, **k: attention_mask)

LOSSY = {
    "threshold": (Policy(window=64, block=8, sink=8, threshold=0.8, observe=16, spread=0, max_blocks=None), 80),
    "capped": (Policy(window=32, block=16, sink=32, threshold=0.15, max_blocks=3), 111),
    "window only": (Policy(window=40, block=8, sink=0, threshold=0.0, max_blocks=0), 50),
    "mean of heads": (Policy(window=16, block=4, sink=4, threshold=0.3, heads="mean", spread=0, max_blocks=8), 33),
}


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "phi3"])
@pytest.mark.parametrize("name", LOSSY)
def test_eviction_equals_full_attention_with_the_dropped_pairs_masked(model_of: Any, family: str, name: str) -> None:
    model, ids = model_of(family), tokens(340, batch=2)
    policy, chunk = LOSSY[name]
    n_prefill = 300
    with attached(model):
        cache = SlidingSparseCache(model, policy)
        out = []
        dropped = [torch.full((340,), 10**9) for _ in cache.own]
        spans = [(s, min(s + chunk, n_prefill)) for s in range(0, n_prefill, chunk)]
        for start, end in spans + [(i, i + 1) for i in range(n_prefill, 340)]:
            out.append(model(ids[:, start:end], cache=cache, use_cache=True).logits)
            for layer, at in zip(cache.own, dropped, strict=True):
                gone = torch.ones(340, dtype=torch.bool)
                gone[end:] = False
                gone[layer.rows.live.token] = False
                at[gone & (at == 10**9)] = end
    for i, layer in enumerate(cache.own):
        _DROPPED_AT[i] = torch.full((340,), 10**9) if layer.local else dropped[i]
    model.set_attn_implementation("mask_oracle")
    try:
        expected = model(ids, use_cache=False).logits
    finally:
        model.set_attn_implementation("sdpa")
    ours = torch.cat(out, 1)
    assert far(ours, expected) < EXACT
    assert far(ours, model(ids, use_cache=False).logits) > 0.01  # it does drop something that matters


# -- bounds, storage -------------------------------------------------------------------------------------------------

CAPPED = Policy(window=64, block=16, sink=16, threshold=0.15, max_blocks=6)
TWO_TIERS = Policy(
    window=64, block=16, sink=16, threshold=0.15, max_blocks=6, host_blocks=99, recall=2, decode_recall=1
)


@pytest.mark.parametrize("policy", [CAPPED, TWO_TIERS, Policy(window=1, block=4, sink=0, max_blocks=1, threshold=0.9)])
@pytest.mark.parametrize("chunk", [7, 100, 500])
def test_rows_and_bytes_never_exceed_the_stated_bound(model_of: Any, policy: Policy, chunk: int) -> None:
    model, ids = model_of("llama"), tokens(700)
    bound, bytes_limit = policy.rows_bound(), bytes_bound(model, policy, chunk)
    assert bound is not None and bytes_limit is not None
    with attached(model):
        cache = SlidingSparseCache(model, policy)
        for start in range(0, 600, chunk):
            model(ids[:, start : min(start + chunk, 600)], cache=cache, use_cache=True)
            assert max(layer.rows.n for layer in cache.own) <= bound
        for i in range(600, 700):
            model(ids[:, i : i + 1], cache=cache, use_cache=True)
            assert max(layer.rows.n for layer in cache.own) <= bound
    assert cache.live_bytes <= cache.held_bytes <= cache.peak_bytes <= bytes_limit
    assert cache.get_seq_length() == 700
    for layer in cache.own:
        part = layer.rows.live
        assert part.k.is_contiguous() and part.v.is_contiguous()
        assert bool((part.token.diff() > 0).all())


def test_a_cache_whose_pass_has_failed_is_not_used_again(model_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = model_of("llama"), tokens(120)
    with attached(model):
        cache = SlidingSparseCache(model, CAPPED)
        generate.prefill(model, ids, cache, 60)
        with monkeypatch.context() as broken:
            broken.setattr("testbed.models.runner.layer.attention", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                model(ids, cache=cache, use_cache=True)
        for use in (lambda: model(ids, cache=cache, use_cache=True), cache.fork):
            with pytest.raises(InvalidInput, match="has failed"):
                use()
        cache.reset()
        again, fresh = generate.prefill(model, ids, cache, 60), SlidingSparseCache(model, CAPPED)
        assert torch.equal(again, generate.prefill(model, ids, fresh, 60))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_in_arena", [False, True], ids=["plain", "arena"])
def test_bytes_never_exceed_the_stated_bound_whatever_the_policy(model_of: Any, seed: int, is_in_arena: bool) -> None:
    draw = seeds.stream(seed, "policy")
    model, ids = model_of(draw.choice(["llama", "gemma3"])), tokens(400)
    block, chunk = draw.choice([1, 4, 16]), draw.choice([5, 32, 128])
    policy = Policy(
        window=draw.choice([1, 32, 100]), block=block, sink=draw.choice([0, block]), threshold=0.05,
        max_blocks=draw.choice([0, 1, 6, 20]), host_blocks=draw.choice([0, 3, 99]), recall=draw.choice([0, 1, 4]),
        decode_recall=draw.choice([0, 1, 8]), observe=draw.choice([3, 32]), memo=is_in_arena or draw.random() < 0.7,
    )  # fmt: skip
    limit = bytes_bound(model, policy, chunk, is_in_arena=is_in_arena)
    assert limit is not None
    with attached(model):
        cache = SlidingSparseCache(model, policy, arena_for(model, policy) if is_in_arena else None)
        generate.prefill(model, ids[:, :300], cache, chunk)
        for token in ids[:, 300:360].split(1, dim=1):
            model(token, cache=cache, use_cache=True)
        generate.prefill(model, ids[:, 360:], cache, chunk)
    assert cache.live_bytes <= cache.held_bytes <= cache.peak_bytes <= limit


def test_a_host_tier_holds_no_more_blocks_than_it_may(model_of: Any) -> None:
    model = model_of("llama")
    policy = Policy(window=32, block=16, sink=16, threshold=2.0, max_blocks=0, host_blocks=5, recall=0)
    with attached(model):
        cache = SlidingSparseCache(model, policy)
        generate.prefill(model, tokens(500), cache, 100)
    assert [len(layer.host) for layer in cache.own] == [5, 5, 5]
    assert all(layer.rows.n <= policy.rows_bound() for layer in cache.own)


def test_nan_in_free_rows_changes_nothing(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(400)
    with attached(model):
        clean = SlidingSparseCache(model, TWO_TIERS)
        generate.prefill(model, ids, clean, 128)
        poisoned = clean.fork()
        for layer in poisoned.own:
            layer._set(type(layer.rows)(layer.rows.live, 16))  # a buffer of its own
            layer.rows.poison_free_rows()
        rest = tokens(60, seed=9)
        a, b = (through(model, rest, cache, 20, 40) for cache in (clean, poisoned))
    assert torch.equal(a, b) and bool(torch.isfinite(a).all())


def test_two_questions_on_forks_of_one_cache_do_not_see_each_other(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(400)
    questions = [tokens(40, seed=5), tokens(33, seed=6)]
    with attached(model):
        base = SlidingSparseCache(model, TWO_TIERS)
        generate.prefill(model, ids, base, 128)
        ask = lambda i, cache: through(model, questions[i], cache, 24, 30)  # noqa: E731
        first, second = ask(0, base.fork()), ask(1, base.fork())
        second_again, first_again = ask(1, base.fork()), ask(0, base.fork())
        fresh = SlidingSparseCache(model, TWO_TIERS)
        generate.prefill(model, ids, fresh, 128)
        assert torch.equal(first, first_again) and torch.equal(second, second_again)
        assert torch.equal(first, ask(0, fresh))
        assert torch.equal(first, ask(0, base))  # the base itself was not touched by its forks


@pytest.mark.parametrize("chunk", [400, 100])
def test_the_keep_ratio_falls_with_the_threshold(model_of: Any, chunk: int) -> None:
    model, ids = model_of("llama"), tokens(400)
    ratios = []
    with attached(model):
        for threshold in (0.0, 0.01, 0.05, 0.15, 0.3, 0.6, 1.01):
            policy = Policy(window=48, block=8, sink=8, threshold=threshold, max_blocks=None)
            cache = SlidingSparseCache(model, policy)
            generate.prefill(model, ids, cache, chunk)
            ratios.append(cache.keep_ratio)
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] == 1.0 and ratios[-1] < 0.2


@pytest.mark.parametrize("n", [1, 2, 3, 15, 16, 17, 47, 48, 49])
def test_lengths_around_every_border_give_finite_logits_and_agree_where_nothing_goes(model_of: Any, n: int) -> None:
    for family in ("llama", "gemma3"):
        model, ids = model_of(family), tokens(n + 4)
        with attached(model):
            harsh = SlidingSparseCache(model, Policy(window=1, block=16, sink=0, threshold=2.0, max_blocks=0))
            assert bool(torch.isfinite(through(model, ids, harsh, 5, n)).all())
            kind = SlidingSparseCache(model, Policy(window=64, block=16, sink=16, threshold=2.0, max_blocks=0))
            ours = through(model, ids, kind, 5, n)
        assert far(ours, model(ids, use_cache=False).logits) < EXACT


# -- two tiers -------------------------------------------------------------------------------------------------------

EVERYTHING_RETURNS = Policy(
    window=32,
    block=8,
    sink=8,
    threshold=2.0,
    max_blocks=None,
    host_blocks=10_000,
    recall=10_000,
    decode_recall=10_000,
    spread=0,
)


def test_blocks_come_back_from_the_host_bit_for_bit_and_in_order(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(200)
    with attached(model):
        cache, whole = SlidingSparseCache(model, EVERYTHING_RETURNS), SlidingSparseCache(model, LOSSLESS)
        generate.prefill(model, ids, cache, 200)
        generate.prefill(model, ids, whole, 200)
        layer, reference = cache.own[0], whole.own[0].rows.live
        assert len(layer.host) > 10
        back = layer._recalled(torch.zeros(1, 4, 1, 16), 0.25)
        assert back is not None and layer.rows is not None
        part = in_order([layer.rows.live, back])
    assert torch.equal(part.token, torch.arange(200))
    assert torch.equal(part.k, reference.k) and torch.equal(part.v, reference.v)


def test_when_everything_is_recalled_the_greedy_answer_is_that_of_the_full_cache(model_of: Any) -> None:
    for family in ("llama", "qwen3", "gemma3"):
        model, ids = model_of(family), tokens(230)
        full = model(ids, use_cache=False).logits
        with attached(model):
            cache = SlidingSparseCache(model, EVERYTHING_RETURNS)
            ours = through(model, ids, cache, 60, 190)
        assert far(ours, full) < EXACT
        assert any(layer.recalled for layer in cache.own)


def test_recall_while_decoding_changes_no_answer_where_everything_fits(model_of: Any) -> None:
    for family in ("llama", "gemma3"):
        model, ids = model_of(family), tokens(160)
        roomy = Policy(window=32, block=8, sink=8, threshold=0.0, max_blocks=40, host_blocks=100)
        said = []
        with attached(model):
            for policy in (roomy, replace(roomy, decode_recall=1)):
                cache = SlidingSparseCache(model, policy)
                said.append(greedy(model, ids, cache, 40))
                assert not any(layer.recalled for layer in cache.own)
        assert said[0] == said[1] == greedy(model, ids, DynamicCache(config=model.config), 40)


def test_recall_while_decoding_brings_blocks_back_once_per_block_of_tokens(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(300)
    policy = Policy(window=32, block=8, sink=8, threshold=2.0, max_blocks=None, host_blocks=100, recall=0)
    came = {}
    with attached(model):
        for n in (0, 1, 2):
            cache = SlidingSparseCache(model, replace(policy, decode_recall=n))
            greedy(model, ids, cache, 17)  # the first token is the prefill's; 16 are decoded
            came[n] = [len(layer.recalled) for layer in cache.own]
    assert came == {0: [0] * 3, 1: [2 * 3] * 3, 2: [2 * 6] * 3}


@pytest.mark.parametrize("max_blocks", [1, 2, 6])
def test_what_comes_back_while_decoding_takes_the_place_of_what_is_wanted_less(model_of: Any, max_blocks: int) -> None:
    model, ids = model_of("llama"), tokens(300)
    policy = Policy(
        window=32, block=8, sink=8, threshold=0.0, max_blocks=max_blocks, host_blocks=100, recall=0, decode_recall=1
    )
    with attached(model):
        cache = SlidingSparseCache(model, policy)
        generate.prefill(model, ids, cache, 100)
        layer = cache.own[0]
        assert layer.rows is not None
        before, on_host = set((layer.rows.live.token // 8).tolist()), set(layer.host.blocks)
        cold = sorted(before)[1 : 1 + max_blocks]
        ranked = least_wanted(layer._scores, cold, 1)
        seen = dict(zip(layer.rows.live.token.tolist(), layer.rows.live.k.clone()[0], strict=True))
        asked: list[Any] = []
        plain = layer._wanted
        layer._wanted = lambda *args: asked.append(plain(*args)) or asked[-1]
        model(ids[:, :1], cache=cache, use_cache=True)
    wanted, here = asked[0]
    after = set((layer.rows.live.token // 8).tolist())
    came, left = after & on_host, before - after
    assert here == cold and came == set(layer.recalled) and set(layer.host.blocks) == on_host - came | left
    best = wanted.first(on_host)[:3]
    assert came and came == set(best[: len(left)]) and left <= set(ranked)
    for block in ranked:  # each goes for one that is wanted more; of those that could, the lowest score goes
        if block in left:
            assert any(wanted.of(other) > wanted.of(block) for other in came)
        elif len(came) < min(3, len(ranked)):
            assert wanted.of(block) >= wanted.of(best[len(came)])
    tokens_now = layer.rows.live.token
    assert bool((tokens_now.diff() > 0).all())
    for token, k in zip(tokens_now.tolist(), layer.rows.live.k[0], strict=True):
        assert token not in seen or torch.equal(seen[token], k)


def test_a_question_about_a_block_that_stayed_brings_back_what_was_beside_it(model_of: Any) -> None:
    """A fact that straddles a border can have one half in each tier: the cap cuts between blocks of equal score."""
    model, ids = model_of("llama"), tokens(400)
    policy = Policy(window=32, block=8, sink=8, threshold=0.0, max_blocks=4, host_blocks=1000, recall=1)
    with attached(model):
        cache = SlidingSparseCache(model, policy)
        generate.prefill(model, ids, cache, 50)
        layer = cache.own[0]
        assert layer.rows is not None
        live, gone = layer.rows.live, set(layer.host.blocks)
        stayed = set((live.token // 8).tolist())
        here = min(b for b in stayed if b > 1 and {b - 1, b + 1} & gone)
        row = live.take((live.token // 8 == here).nonzero()[:1, 0])
        key = layer._rotated(row.k, row.pos).transpose(1, 2)
        q = 50 * key.repeat_interleave(model.config.num_attention_heads // key.shape[1], 1)
        wanted, _ = layer._wanted(q, 1.0, 0)
        came = set(wanted.first(layer.host.blocks)[:3])
    assert {here - 1, here + 1} & gone <= came and len(came) <= 3


def test_a_dropped_block_stays_away_where_a_demoted_one_returns(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(300)
    full = model(ids, use_cache=False).logits[:, 270:]

    def error(host_blocks: int) -> float:
        policy = Policy(window=32, block=8, sink=8, threshold=0.15, max_blocks=4, host_blocks=host_blocks, recall=8)
        with attached(model):
            return far(through(model, ids, SlidingSparseCache(model, policy), 30, 300)[:, 270:], full)

    assert error(1000) < error(0)


def test_compact_positions_equal_a_fresh_model_on_the_kept_rows_of_the_first_layer(model_of: Any) -> None:
    """With one layer, keys depend on their token alone: what is left is the text without the dropped tokens."""
    model, ids = model_of("llama"), tokens(120)
    policy = Policy(window=24, block=8, sink=8, threshold=0.0, max_blocks=0, positions="compact")
    layers = model.model.layers
    model.model.layers, kept_config = layers[:1], model.config.num_hidden_layers
    model.config.num_hidden_layers = 1
    try:
        with attached(model):
            cache = SlidingSparseCache(model, policy)
            generate.prefill(model, ids, cache, 120)
            rows = cache.own[0].rows.live.token
            ours = model(ids[:, :1], cache=cache, use_cache=True).logits[0, -1]
        shorter = torch.cat([ids[:, rows], ids[:, :1]], 1)
        expected = model(shorter, use_cache=False).logits[0, -1]
    finally:
        model.model.layers, model.config.num_hidden_layers = layers, kept_config
    assert len(rows) < 48
    assert far(ours, expected) < EXACT


def test_dynamic_ntk_stepwise_equals_one_pass_since_no_old_angle_is_stored() -> None:
    """Where rotated keys are cached, keys of the first steps keep the angles of a shorter context."""
    model, ids = build("llama-dynamic"), tokens(100)
    with attached(model, check=False):
        one = SlidingSparseCache(model, LOSSLESS)
        expected = model(ids, cache=one, use_cache=True).logits[:, -1]
        step = SlidingSparseCache(model, LOSSLESS)
        ours = through(model, ids, step, 10, 90)[:, -1]
        with pytest.raises(InvalidInput, match="host_blocks"):
            SlidingSparseCache(model, TWO_TIERS)
    # hidden states of earlier tokens were computed under earlier angles, so only the first layer is comparable
    k = [cache.own[0].rows.live.k for cache in (one, step)]
    assert torch.allclose(k[0], k[1], atol=1e-5)
    assert bool(torch.isfinite(ours).all()) and ours.shape == expected.shape


# -- with transformers -----------------------------------------------------------------------------------------------


def test_generate_without_eviction_gives_the_tokens_of_the_standard_cache(model_of: Any) -> None:
    for family in ("llama", "gemma3"):
        model, ids = model_of(family), tokens(90)
        settings: dict[str, Any] = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        expected = model.generate(ids, **settings)
        with attached(model):
            ours = model.generate(ids, cache=SlidingSparseCache(model, LOSSLESS), **settings)
            sparse = [model.generate(ids, cache=SlidingSparseCache(model, CAPPED), **settings) for _ in range(2)]
        assert torch.equal(ours, expected)
        assert torch.equal(*sparse)


def test_the_standard_cache_still_works_beside_it(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(60)
    with attached(model):
        pass
    cache = DynamicCache(config=model.config)
    assert far(through(model, ids, cache, 25, 50), model(ids, use_cache=False).logits) < EXACT


def test_beams_are_reordered_and_repeated_like_the_standard_cache(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(50, batch=2)
    order = torch.tensor([1, 0, 1])

    def run(cache: Cache) -> torch.Tensor:
        model(ids, cache=cache, use_cache=True)
        cache.batch_select_indices(order)
        cache.batch_repeat_interleave(2)
        logits: torch.Tensor = model(tokens(1, batch=6), cache=cache, use_cache=True).logits
        return logits

    expected = run(DynamicCache(config=model.config))
    with attached(model):
        assert far(run(SlidingSparseCache(model, LOSSLESS)), expected) < EXACT


def test_a_rollback_is_refused_and_a_reset_is_a_new_cache(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(80)
    with attached(model):
        cache = SlidingSparseCache(model, CAPPED)
        first = generate.prefill(model, ids, cache, 40)
        with pytest.raises(InvalidInput, match="rolled back"):
            cache.crop(-3)
        assert not cache.is_croppable
        cache.reset()
        assert (cache.held_bytes, cache.get_seq_length()) == (0, 0)
        assert torch.equal(generate.prefill(model, ids, cache, 40), first)


# -- refusals --------------------------------------------------------------------------------------------------------


def _strange(name: str) -> Any:
    import transformers as t

    small: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
    }
    torch.manual_seed(0)
    if name == "interleaved":
        return t.CohereForCausalLM(t.CohereConfig(**small)).eval()
    if name == "soft-cap":
        return t.Gemma2ForCausalLM(t.Gemma2Config(**small, head_dim=16, attn_logit_softcapping=1.0)).eval()
    if name == "no positions":
        return t.SmolLM3ForCausalLM(
            t.SmolLM3Config(**small, pad_token_id=0, no_rope_layers=[1, 0], no_rope_layer_interval=2)
        ).eval()
    if name == "sinks":
        model = t.GptOssForCausalLM(
            t.GptOssConfig(**small, head_dim=16, num_local_experts=2, num_experts_per_tok=1, sliding_window=8)
        ).eval()
        return model
    if name == "learned positions":
        return t.GPT2LMHeadModel(t.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=64)).eval()
    assert name == "latent"
    return t.DeepseekV3ForCausalLM(
        t.DeepseekV3Config(
            **{**small, "num_key_value_heads": 2},
            q_lora_rank=8,
            kv_lora_rank=8,
            qk_rope_head_dim=8,
            v_head_dim=16,
            qk_nope_head_dim=8,
            n_routed_experts=2,
            num_experts_per_tok=1,
            n_group=1,
            topk_group=1,
            first_k_dense_replace=2,
            moe_intermediate_size=16,
        )
    ).eval()


@pytest.fixture(params=["interleaved", "soft-cap", "no positions", "sinks", "learned positions", "latent"])
def strange(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    yield request.param, _strange(request.param)


def test_what_cannot_be_served_exactly_is_refused_when_it_is_attached(strange: tuple[str, Any]) -> None:
    name, model = strange
    before = model(tokens(10) % 60, use_cache=False).logits
    try:
        with attached(model), torch.no_grad():
            ours = through(model, tokens(60) % 60, SlidingSparseCache(model, LOSSLESS), 20, 50)
            full_error = far(ours, model(tokens(60) % 60, use_cache=False).logits)
    except Unsupported:
        pass
    else:
        pytest.fail(f"{name} was attached (error {full_error:.1e})")
    assert torch.equal(model(tokens(10) % 60, use_cache=False).logits, before)


def test_a_cache_for_a_model_that_is_not_attached_is_refused(model_of: Any) -> None:
    with pytest.raises(InvalidInput, match="not attached"):
        SlidingSparseCache(model_of("llama"))


def test_a_second_attachment_and_another_cache_on_an_attached_model_are_refused(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(20)
    with attached(model):
        with pytest.raises(InvalidInput, match="already"), attached(model):
            pass
        cache = DynamicCache(config=model.config)
        model(ids, cache=cache, use_cache=True)
        with pytest.raises(InvalidInput, match="another cache"):
            model(ids[:, :1], cache=cache, use_cache=True)


def test_positions_far_beyond_the_length_are_served(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(6)
    places = torch.arange(9000, 9006)[None]
    expected = model(ids, position_ids=places, use_cache=False).logits
    with attached(model):
        ours = model(ids, position_ids=places, cache=SlidingSparseCache(model, LOSSLESS), use_cache=True).logits
    assert far(ours, expected) < EXACT


def test_a_mask_per_query_is_refused(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(6)
    with attached(model), pytest.raises(InvalidInput, match="padding mask"):
        model(ids, attention_mask=torch.ones(1, 1, 6, 6), use_cache=False)


def test_the_registered_names_are_those_transformers_knows() -> None:
    assert kv.NAME in AttentionInterface._global_mapping
    assert kv.NAME in AttentionMaskInterface._global_mapping
