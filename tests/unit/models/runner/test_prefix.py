from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runner_families import build
from safetensors.torch import save_file

from testbed.core.errors import InvalidInput
from testbed.models.runner import adapters, weak_keys
from testbed.models.runner.adapters import Adapter, LowRank
from testbed.models.runner.chain import Identity, TypedKeys
from testbed.models.runner.prefix import PrefixCache, prefill

pytestmark = pytest.mark.models
BLOCK = 8
MEBIBYTE = 2**20
MODEL = "m" * 32


@pytest.fixture(scope="module")
def model() -> Any:
    return build("llama")


def adapter(name: str, seed: int) -> Adapter:
    draw = torch.Generator().manual_seed(seed)
    low = LowRank(torch.randn(2, 64, generator=draw), torch.randn(64, 2, generator=draw), 0.5)
    return Adapter.of(name, {"model.layers.1.self_attn.q_proj": low, "model.layers.0.mlp.down_proj": low._replace(
        a=torch.randn(2, 96, generator=draw)
    )})  # fmt: skip


def prompt(*heads: int, n: int = 30) -> list[int]:
    """A text that begins with blocks named by ``heads`` and goes on in a way of its own."""
    body = [5 + (h * 37 + i * 11) % 200 for h in heads for i in range(BLOCK)]
    return (body + [7 + (sum(heads) * 13 + i * 5) % 190 for i in range(n)])[:n]


def answer(model: Any, ids: Sequence[int], prefix: PrefixCache, identity: Identity, lora: Adapter | None = None) -> Any:
    """(logits after the prompt and 3 greedy tokens, tokens found)."""
    with lora.applied(model) if lora else torch.inference_mode():
        logits, cache, found = prefill(model, ids, prefix, identity)
        out = [logits]
        for _ in range(3):
            token = int(out[-1].argmax())
            out.append(model(torch.tensor([[token]]), cache=cache, use_cache=True).logits[0, -1].float())
    return torch.stack(out), found


def alone(model: Any, ids: Sequence[int], identity: Identity, lora: Adapter | None = None) -> torch.Tensor:
    logits: torch.Tensor = answer(model, ids, PrefixCache(0, block=BLOCK), identity, lora)[0]
    return logits


def test_the_second_request_finds_the_blocks_of_the_first_and_says_the_same_bits(model: Any) -> None:
    prefix, me = PrefixCache(MEBIBYTE, block=BLOCK), Identity(MODEL, salt="a")
    first, n_first = answer(model, prompt(1, 2), prefix, me)
    again, n_again = answer(model, prompt(1, 2), prefix, me)
    assert (n_first, n_again) == (0, 24)
    assert torch.equal(first, again) and torch.equal(first, alone(model, prompt(1, 2), me))


def test_the_last_token_is_never_found(model: Any) -> None:
    prefix, me = PrefixCache(MEBIBYTE, block=BLOCK), Identity(MODEL)
    ids = prompt(1, 2, n=16)
    answer(model, ids, prefix, me)
    logits, found = answer(model, ids, prefix, me)
    assert found == 8
    assert torch.equal(logits, alone(model, ids, me))


@pytest.mark.parametrize("family", ["gemma3", "mistral", "qwen3", "phi3"])
def test_layers_with_a_window_of_their_own_are_rebuilt_exactly(family: str) -> None:
    model, prefix, me = build(family), PrefixCache(MEBIBYTE, block=BLOCK), Identity(MODEL)
    ids = prompt(1, 2, 3, 4, n=120)
    first, _ = answer(model, ids, prefix, me)
    again, found = answer(model, ids, prefix, me)
    assert found == 112 and torch.equal(first, again)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_output_on_a_hit_is_output_on_a_miss(model: Any, data: st.DataObject) -> None:
    """Any sequence of requests, tenants and adapters, with room for few blocks and an outer tier for a few more."""
    one = 2 * 3 * 2 * 16 * BLOCK * 4
    prefix = PrefixCache(
        data.draw(st.integers(0, 6)) * one, block=BLOCK, outer_bytes=data.draw(st.integers(0, 4)) * one
    )
    loras = [None, adapter("x", 1), adapter("x", 2), adapter("y", 1)]
    requests = st.tuples(
        st.lists(st.integers(1, 2), min_size=1, max_size=3), st.integers(2, 30), st.sampled_from(["", "x", "t"]),
        st.sampled_from(range(4)),
    )  # fmt: skip
    for heads, n, salt, which in data.draw(st.lists(requests, min_size=2, max_size=6)):
        lora = loras[which]
        me = Identity(MODEL, lora.fingerprint if lora else "", salt, "f32", lora.name if lora else "")
        ids = prompt(*heads, n=n)
        logits, found = answer(model, ids, prefix, me, lora)
        assert torch.equal(logits, alone(model, ids, me, lora))
        assert found < len(ids)


# -- typed keys ------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=6), min_size=8, max_size=8))
def test_identities_that_differ_in_any_sound_part_have_different_roots(parts: list[str]) -> None:
    one, other = Identity(*parts[:4]), Identity(*parts[4:])
    assert (TypedKeys().root(one) == TypedKeys().root(other)) == (one == other)


def test_the_layout_of_the_keys_is_pinned_for_whoever_implements_it_again() -> None:
    root = TypedKeys().root(Identity("model", "adapter", "salt", "layout"))
    assert root.hex() == "ada18788ccb5d2e48072e511c2c8697ce8e47e8117a1b91023b9f7e3b9fc3bd9"
    assert (
        TypedKeys().child(root, [1, 2, 300]).hex() == "2212b0ddfe939797168d8bb90a663eb650b7ceac0a171f578c2626865ace2d0e"
    )


# -- class F10: each hole, what it does to an answer, and that the typed key closes it ---------------------------------

BASE = Identity(MODEL, salt="x")
LORA, RELOADED = adapter("x", 1), adapter("x", 2)
OF_LORA = Identity(MODEL, LORA.fingerprint, "", adapter_name="x")
OF_RELOADED = Identity(MODEL, RELOADED.fingerprint, "", adapter_name="x")
HOLES: list[tuple[str, Any, tuple[Identity, Adapter | None], tuple[Identity, Adapter | None]]] = [
    ("salt equals adapter name", weak_keys.UntaggedParts(), (OF_LORA, LORA), (Identity(MODEL, salt="x"), None)),
    ("reload under the same name", weak_keys.AdapterByName(), (OF_LORA, LORA), (OF_RELOADED, RELOADED)),
    ("adapter not in the key", weak_keys.NoAdapter(), (OF_LORA, LORA), (Identity(MODEL), None)),
    ("tokens only", weak_keys.TokensOnly(), (OF_LORA, LORA), (Identity("another"), None)),
]


@pytest.mark.parametrize(("name", "hole", "first", "second"), HOLES)
def test_a_weak_key_changes_the_answer_and_the_typed_key_cures_it(
    model: Any, name: str, hole: Any, first: tuple[Identity, Any], second: tuple[Identity, Any]
) -> None:
    ids = prompt(1, 2)
    expected = alone(model, ids, *second)
    for keys, checks, is_right in ((hole, False, False), (hole, True, True), (TypedKeys(), False, True)):
        prefix = PrefixCache(MEBIBYTE, block=BLOCK)
        prefix.keys, prefix.checks_hits = keys, checks
        answer(model, ids, prefix, *first)
        logits, found = answer(model, ids, prefix, *second)
        assert torch.equal(logits, expected) == is_right, name
        assert bool(found) != is_right, name


def test_without_the_tenant_in_the_key_one_tenant_can_tell_what_another_asked(model: Any) -> None:
    ids = prompt(1, 2)
    for keys, is_seen in ((weak_keys.NoSalt(), True), (TypedKeys(), False)):
        prefix = PrefixCache(MEBIBYTE, block=BLOCK)
        prefix.keys, prefix.checks_hits = keys, False
        answer(model, ids, prefix, Identity(MODEL, salt="a"))
        _, found = answer(model, ids, prefix, Identity(MODEL, salt="b"))
        assert bool(found) == is_seen


def test_a_truncated_hash_serves_another_text_unless_hits_are_checked(model: Any) -> None:
    me = BASE
    texts = [prompt(h, h + 1) for h in range(1, 13)]
    wrong = {}
    for checks in (False, True):
        prefix = PrefixCache(MEBIBYTE, block=BLOCK)
        prefix.keys, prefix.checks_hits = weak_keys.Truncated(bits=2), checks
        answers = [answer(model, ids, prefix, me)[0] for ids in texts]
        wrong[checks] = sum(not torch.equal(a, alone(model, ids, me)) for a, ids in zip(answers, texts, strict=True))
    assert wrong[False] > 0 and wrong[True] == 0


def test_an_outer_tier_with_a_weaker_key_of_its_own_leaks_across_adapters(model: Any) -> None:
    one = 2 * 3 * 2 * 16 * BLOCK * 4
    for outer_keys, is_right in ((weak_keys.TokensOnly(), False), (TypedKeys(), True)):
        prefix = PrefixCache(3 * one, block=BLOCK, outer_bytes=20 * one)
        prefix.outer_keys, prefix.checks_hits = outer_keys, False
        answer(model, prompt(1, 2), prefix, OF_LORA, LORA)
        answer(model, prompt(8, 9), prefix, OF_LORA, LORA)  # pushes the first text out to the outer tier
        logits, _ = answer(model, prompt(1, 2), prefix, BASE)
        assert torch.equal(logits, alone(model, prompt(1, 2), BASE)) == is_right


def test_a_mirror_of_the_key_that_has_drifted_never_matches(model: Any) -> None:
    one = 2 * 3 * 2 * 16 * BLOCK * 4
    ids, me = prompt(1, 2), BASE
    for outer_keys, n_found in ((TypedKeys(), 24), (_DriftsAfterPut(), 0)):
        prefix = PrefixCache(3 * one, block=BLOCK, outer_bytes=20 * one)
        prefix.outer_keys = outer_keys
        answer(model, ids, prefix, me)
        answer(model, prompt(8, 9), prefix, me)
        if isinstance(outer_keys, _DriftsAfterPut):
            prefix.outer_keys = weak_keys.Mirror()
        assert answer(model, ids, prefix, me)[1] == n_found


class _DriftsAfterPut(TypedKeys):
    """The writer's side; the reader uses ``Mirror``."""


def test_eviction_while_loading_back_mixes_texts_unless_blocks_are_pinned(model: Any) -> None:
    one = 2 * 3 * 2 * 16 * BLOCK * 4
    ids, me = prompt(1, 2), BASE
    for pins, is_right in ((False, False), (True, True)):
        prefix = PrefixCache(2 * one, block=BLOCK, outer_bytes=20 * one)
        prefix.pins, prefix.checks_hits = pins, False
        answer(model, ids, prefix, me)  # three blocks, room for two: some are in the outer tier
        answer(model, prompt(8, 9), prefix, me)
        logits, found = answer(model, ids, prefix, me)
        assert torch.equal(logits, alone(model, ids, me)) == is_right, (pins, found)


def test_a_prompt_that_was_given_up_halfway_leaves_nothing_behind(model: Any) -> None:
    prefix, calls = PrefixCache(MEBIBYTE, block=BLOCK), []

    def stop_at_the_third() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        prefill(model, prompt(1, 2), prefix, BASE, stop_at_the_third)
    assert len(prefix) == 0 and prefix.held_bytes == 0


def test_it_never_holds_more_than_it_may(model: Any) -> None:
    one = 2 * 3 * 2 * 16 * BLOCK * 4
    prefix = PrefixCache(5 * one, block=BLOCK, outer_bytes=3 * one)
    for h in range(20):
        answer(model, prompt(h, h + 1), prefix, BASE)
        assert prefix.held_bytes <= 8 * one and len(prefix) <= 5
    prefix.clear()
    assert prefix.held_bytes == 0
    with pytest.raises(InvalidInput):
        PrefixCache(1, block=0)


# -- adapters --------------------------------------------------------------------------------------------------------


def test_an_adapter_changes_the_answer_inside_its_block_only(model: Any) -> None:
    ids = torch.tensor([prompt(1)])
    before = model(ids, use_cache=False).logits
    with LORA.applied(model):
        inside = model(ids, use_cache=False).logits
    assert not torch.equal(inside, before)
    assert torch.equal(model(ids, use_cache=False).logits, before)


def test_two_adapters_of_one_name_have_two_fingerprints() -> None:
    assert LORA.fingerprint != RELOADED.fingerprint == adapter("other", 2).fingerprint


def test_a_lora_folder_equals_the_merged_weights(model: Any, tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.q_proj"
    a, b = torch.randn(2, 64), torch.randn(64, 2)
    key = f"base_model.model.{name}.lora_"
    save_file({f"{key}A.weight": a, f"{key}B.weight": b}, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 4}))
    ids = torch.tensor([prompt(1)])
    with adapters.load("mine", tmp_path, model).applied(model):
        ours = model(ids, use_cache=False).logits
    weight = model.get_submodule(name).weight
    kept = weight.clone()
    weight.add_(2.0 * b @ a)
    merged = model(ids, use_cache=False).logits
    weight.copy_(kept)
    assert float((ours - merged).abs().max()) < 1e-4


def test_an_adapter_of_another_shape_is_refused_when_it_is_loaded(model: Any, tmp_path: Path) -> None:
    key = "model.layers.1.self_attn.q_proj.lora_"
    save_file(
        {f"{key}A.weight": torch.zeros(2, 64), f"{key}B.weight": torch.zeros(8, 2)},
        tmp_path / "adapter_model.safetensors",
    )
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 4}))
    with pytest.raises(InvalidInput, match="does not fit"):
        adapters.load("mine", tmp_path, model)


def test_a_folder_that_is_no_plain_lora_is_refused(model: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not a LoRA folder"):
        adapters.load("x", tmp_path, model)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 4, "use_dora": True}))
    save_file({"nowhere.lora_A.weight": torch.zeros(2, 4)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(InvalidInput, match="more than plain LoRA"):
        adapters.load("x", tmp_path, model)
