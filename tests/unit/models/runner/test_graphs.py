"""Steps that are captured once and replayed, without a GPU: the trace of one step stands for the graph.

A trace is what a CUDA graph is: the operations of one run on the tensors they ran on, and none of the Python around
them. A number that Python put in, or a buffer that moved, is wrong in it as it is in a graph; a step that asks the
device for a number cannot be traced at all.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runner_families import FAMILIES, build, tokens
from torch.fx.experimental.proxy_tensor import make_fx

from testbed.core.errors import InvalidInput, Unavailable, Unsupported
from testbed.models.runner import __main__ as server_main
from testbed.models.runner import generate, weights
from testbed.models.runner.adapters import Adapter, LowRank
from testbed.models.runner.dense import one_query
from testbed.models.runner.engine import Engine
from testbed.models.runner.graphs import GraphedSteps, cuda_graph
from testbed.models.runner.kv import SlidingSparseCache, arena_for, attached
from testbed.models.runner.local import LocalModel
from testbed.models.runner.policy import Policy
from testbed.models.runner.strategies import Caches

pytestmark = pytest.mark.models
EXACT = 1e-5
POLICY = Policy(window=32, block=8, sink=8, threshold=0.1, max_blocks=6, observe=5)
TWO_TIERS = replace(POLICY, host_blocks=100, recall=2, decode_recall=1)


def traced(step: Callable[[], torch.Tensor], undo: Callable[[], None]) -> Callable[[], torch.Tensor]:
    graph: Callable[[], torch.Tensor] = make_fx(step)()
    undo()
    return graph


@pytest.fixture(scope="module")
def model_of() -> Callable[[str], Any]:
    models: dict[str, Any] = {}
    return lambda family: models.setdefault(family, build(family))


def said(model: Any, cache: Any, prompt: torch.Tensor, n: int, step: Callable[[Any, int], torch.Tensor]) -> Any:
    """Logits (n, vocabulary) of the prompt's end and of n - 1 tokens, each the likeliest one."""
    out = [generate.prefill(model, prompt, cache, 40)]
    for _ in range(n - 1):
        out.append(step(cache, int(out[-1].argmax())))
    return torch.stack(out)


def plain(model: Any) -> Callable[[Any, int], torch.Tensor]:
    return lambda cache, token: model(torch.tensor([[token]]), cache=cache, use_cache=True).logits[0, -1]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("policy", "split"), [(POLICY, False), (TWO_TIERS, True)], ids=["dropped", "two tiers"])
def test_a_replayed_step_says_what_the_step_says(
    model_of: Any, family: str, policy: Policy, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``split`` rows, as on a GPU, or the product of a CPU."""
    monkeypatch.setattr("testbed.models.runner.fixed.one_query", partial(one_query, split=split))
    model, n = model_of(family), 40
    with attached(model):
        expected_cache = SlidingSparseCache(model, policy)
        expected = said(model, expected_cache, tokens(150), n, plain(model))
        steps = GraphedSteps(model, traced)
        cache = SlidingSparseCache(model, policy, arena_for(model, policy))
        found = said(model, cache, tokens(150), n, steps)
    assert float((found - expected).abs().max()) < EXACT
    assert steps.captures == 1 and steps.replays > 20
    assert cache.get_seq_length() == expected_cache.get_seq_length()
    for ours, theirs in zip(cache.own, expected_cache.own, strict=True):
        assert ours.rows.n == theirs.rows.n and ours.recalled == theirs.recalled
        assert torch.equal(ours.rows.live.token, theirs.rows.live.token)
        assert torch.equal(ours.rows.live.pos, theirs.rows.live.pos)
        assert float((ours.rows.live.k - theirs.rows.live.k).abs().max()) < EXACT


def test_one_capture_serves_one_cache_after_another_and_nothing_is_left_of_the_last(model_of: Any) -> None:
    model = model_of("gemma3")
    with attached(model):
        arena, steps = arena_for(model, TWO_TIERS), GraphedSteps(model, traced)
        for seed in (3, 4):
            prompt = tokens(100 + seed, seed=seed)
            expected = said(model, SlidingSparseCache(model, TWO_TIERS), prompt, 30, plain(model))
            found = said(model, SlidingSparseCache(model, TWO_TIERS, arena), prompt, 30, steps)
            assert float((found - expected).abs().max()) < EXACT
    assert steps.captures == 1


@pytest.mark.parametrize("split", [False, True])
def test_what_a_request_left_behind_is_no_part_of_the_next_one(
    model_of: Any, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.models.runner.fixed.one_query", partial(one_query, split=split))
    model = model_of("gemma3")
    with attached(model):
        arena, steps = arena_for(model, POLICY), GraphedSteps(model, traced)
        expected = said(model, SlidingSparseCache(model, POLICY), tokens(60), 20, plain(model))
        said(model, SlidingSparseCache(model, POLICY, arena), tokens(150), 4, steps)
        for rows in arena.layers:
            for buffer in (rows.memo, rows._buffer.k, rows._buffer.v):
                buffer.fill_(float("nan"))
        found = said(model, SlidingSparseCache(model, POLICY, arena), tokens(60), 20, steps)
    assert float((found - expected).abs().max()) < EXACT and steps.captures == 1


def test_a_model_of_windows_alone_decodes_beyond_the_table_of_angles(monkeypatch: pytest.MonkeyPatch) -> None:
    """No layer is pruned, so that a long row of tokens is quiet."""
    monkeypatch.setattr("testbed.models.runner.rotary.SMALLEST_TABLE", 64)
    model = build("mistral")
    with attached(model):
        expected = said(model, SlidingSparseCache(model, POLICY), tokens(50), 60, plain(model))
        model.model.rotary_emb._tables.clear()
        steps = GraphedSteps(model, traced)
        found = said(model, SlidingSparseCache(model, POLICY, arena_for(model, POLICY)), tokens(50), 60, steps)
    assert float((found - expected).abs().max()) < EXACT and steps.replays > 50


def test_another_arena_and_another_attachment_are_another_capture(model_of: Any) -> None:
    model, steps = model_of("llama"), None
    with attached(model):
        expected = said(model, SlidingSparseCache(model, POLICY), tokens(60), 6, plain(model))
        steps = GraphedSteps(model, traced)
        for captures in (1, 2):
            found = said(model, SlidingSparseCache(model, POLICY, arena_for(model, POLICY)), tokens(60), 6, steps)
            assert float((found - expected).abs().max()) < EXACT and steps.captures == captures
    with attached(model):
        found = said(model, SlidingSparseCache(model, POLICY, arena_for(model, POLICY)), tokens(60), 6, steps)
    assert float((found - expected).abs().max()) < EXACT and steps.captures == 3


def test_a_capture_in_the_middle_of_a_block_changes_nothing_that_is_kept(model_of: Any) -> None:
    model = model_of("llama")
    with attached(model):
        expected = said(model, SlidingSparseCache(model, POLICY), tokens(60), 30, plain(model))
        first, second = GraphedSteps(model, traced), GraphedSteps(model, traced)
        cache, count = SlidingSparseCache(model, POLICY, arena_for(model, POLICY)), []

        def either(cache: Any, token: int) -> torch.Tensor:
            count.append(token)
            return (first if len(count) % 8 < 4 else second)(cache, token)

        found = said(model, cache, tokens(60), 30, either)
    assert float((found - expected).abs().max()) < EXACT and first.captures and second.captures


def test_rows_that_just_fit_do_not_move(model_of: Any) -> None:
    model, lossless = model_of("llama"), Policy(threshold=0.0, max_blocks=None, block=8, sink=8)
    with attached(model):
        arena = arena_for(model, lossless, room=96)
        cache = SlidingSparseCache(model, lossless, arena)
        said(model, cache, tokens(60), 17, GraphedSteps(model, traced))
        moves = [layer.moves for layer in arena.layers]
        generate.prefill(model, tokens(20), cache, 40)
        assert [layer.moves for layer in arena.layers] == moves and cache.own[0].rows.n == 96
        model(tokens(1), cache=cache, use_cache=True)
        assert [layer.moves for layer in arena.layers] > moves and cache.own[0].rows.n == 97


def test_a_step_that_cannot_be_captured_is_decoded_plainly_or_refused(
    model_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of("llama")

    def fails(step: Callable[[], torch.Tensor], undo: Callable[[], None]) -> Any:
        step()
        raise RuntimeError("operation not permitted when stream is capturing")

    with attached(model):
        expected = said(model, SlidingSparseCache(model, POLICY), tokens(60), 20, plain(model))
        steps, arena = GraphedSteps(model, fails), arena_for(model, POLICY)
        found = said(model, SlidingSparseCache(model, POLICY, arena), tokens(60), 20, steps)
        assert torch.equal(found, expected)
        assert [r.levelname for r in caplog.records] == ["WARNING"] and "not permitted" in caplog.text
        with pytest.raises(Unsupported, match="cannot be captured"):
            said(
                model,
                SlidingSparseCache(model, POLICY, arena),
                tokens(60),
                9,
                GraphedSteps(model, fails, must_capture=True),
            )


@pytest.mark.parametrize("change", [{"observe": 7}, {"window": 64}])
def test_an_arena_of_another_policy_or_model_is_refused(model_of: Any, change: dict[str, Any]) -> None:
    model = model_of("llama")
    with attached(model), pytest.raises(InvalidInput, match="the policy and the model that it was made for"):
        SlidingSparseCache(model, replace(POLICY, **change), arena_for(model, POLICY))
    with attached(model), pytest.raises(InvalidInput, match="the policy and the model that it was made for"):
        SlidingSparseCache(model, POLICY, arena_for(model_of("gemma3"), POLICY))


def test_a_cache_whose_place_was_taken_is_refused_and_its_fork_is_not(model_of: Any) -> None:
    model, ids = model_of("llama"), tokens(60)
    with attached(model):
        arena, steps = arena_for(model, POLICY), GraphedSteps(model, traced)
        old = SlidingSparseCache(model, POLICY, arena)
        said(model, old, ids, 5, steps)
        fork = old.fork()
        expected = plain(model)(fork.fork(), 9)
        new = SlidingSparseCache(model, POLICY, arena)
        found = said(model, new, ids, 5, steps)
        for use in (lambda: steps(old, 9), lambda: generate.prefill(model, ids, old, 40), old.fork):
            with pytest.raises(InvalidInput, match="another cache lies in this arena"):
                use()
        assert torch.equal(plain(model)(fork, 9), expected)
        again = said(model, SlidingSparseCache(model, POLICY), ids, 6, plain(model))
        assert float((steps(new, int(found[-1].argmax())) - again[-1]).abs().max()) < EXACT


def test_a_prompt_may_follow_an_answer(model_of: Any) -> None:
    model, out = model_of("llama"), []
    with attached(model):
        for steps, arena in ((plain(model), None), (GraphedSteps(model, traced), arena_for(model, TWO_TIERS))):
            cache = SlidingSparseCache(model, TWO_TIERS, arena)
            turns = [said(model, cache, tokens(n, seed=n), 21, steps) for n in (90, 30, 7)]
            out.append(torch.cat(turns))
    assert float((out[0] - out[1]).abs().max()) < EXACT


@pytest.mark.parametrize("policy", [replace(POLICY, max_blocks=None), Policy(threshold=0.0, max_blocks=None, block=8)])
def test_rows_that_nothing_bounds_move_and_the_step_is_captured_again(
    model_of: Any, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.models.runner.fixed.GROWTH", 16)
    model = model_of("llama")
    policy = replace(policy, sink=8)
    with attached(model):
        expected = said(model, SlidingSparseCache(model, policy), tokens(60), 60, plain(model))
        steps = GraphedSteps(model, traced)
        found = said(model, SlidingSparseCache(model, policy, arena_for(model, policy)), tokens(60), 60, steps)
    assert float((found - expected).abs().max()) < EXACT
    assert steps.captures > 1


def test_a_longer_table_of_angles_is_a_new_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.models.runner.rotary.SMALLEST_TABLE", 64)
    model = build("llama")
    with attached(model):
        expected = said(model, SlidingSparseCache(model, POLICY), tokens(200), 60, plain(model))
        model.model.rotary_emb._tables.clear()  # attaching asks for far positions, to compare
        steps = GraphedSteps(model, traced)
        found = said(model, SlidingSparseCache(model, POLICY, arena_for(model, POLICY)), tokens(200), 60, steps)
    assert float((found - expected).abs().max()) < EXACT
    assert steps.captures == 2


def test_a_fork_does_not_see_what_its_origin_writes(model_of: Any) -> None:
    model = model_of("llama")
    with attached(model):
        alone = SlidingSparseCache(model, TWO_TIERS)
        expected = said(model, alone, tokens(100), 12, plain(model))
        expected_later = plain(model)(alone, 7)
        cache, steps = SlidingSparseCache(model, TWO_TIERS, arena_for(model, TWO_TIERS)), GraphedSteps(model, traced)
        said(model, cache, tokens(100), 12, steps)
        fork = cache.fork()
        for token in range(20, 30):
            steps(cache, token)
        found = plain(model)(fork, 7)
    assert fork.get_seq_length() == 100 + 12
    assert float((found - expected_later).abs().max()) < EXACT
    assert expected.shape[0] == 12


def test_the_memory_of_an_arena_is_counted_and_bounded(model_of: Any) -> None:
    model = model_of("gemma3")
    with attached(model):
        cache = SlidingSparseCache(model, TWO_TIERS, arena_for(model, TWO_TIERS))
        said(model, cache, tokens(150), 30, GraphedSteps(model, traced))
        held = sum(3 * layer._fixed.capacity for layer in cache.own) * 2 * 16 * 4  # heads, channels, bytes
        held += POLICY.observe * 4 * 16 * 4  # the queries of the one layer that is scored
    assert cache.live_bytes <= cache.held_bytes == held <= cache.peak_bytes


@pytest.mark.parametrize("change", [{"positions": "compact"}, {"memo": False}])
def test_a_policy_whose_rotated_keys_are_not_kept_is_refused(model_of: Any, change: dict[str, Any]) -> None:
    model = model_of("llama")
    with pytest.raises(InvalidInput, match="never move"):
        arena_for(model, replace(POLICY, **change))


def test_angles_that_depend_on_the_length_and_batches_are_refused(model_of: Any) -> None:
    dynamic, model = build("llama-dynamic"), model_of("llama")
    with attached(dynamic), pytest.raises(InvalidInput, match="an arena needs positions"):
        SlidingSparseCache(dynamic, POLICY, arena_for(dynamic, POLICY))
    with attached(model), pytest.raises(InvalidInput, match="not a batch of 2"):
        cache = SlidingSparseCache(model, POLICY, arena_for(model, POLICY))
        model(tokens(20, batch=2), cache=cache, use_cache=True)


def test_what_stands_for_a_graph_here_refuses_and_repeats_as_one_would() -> None:
    """Else the tests above would show nothing."""
    count, at = torch.zeros(1, dtype=torch.long), [0]

    def asks() -> torch.Tensor:
        return torch.zeros(int(count.sum()) + 1)

    def remembers() -> torch.Tensor:
        at[0] += 1
        return count.add_(1) * 0 + at[0]

    with pytest.raises(RuntimeError, match="tracing tensor"):
        traced(asks, lambda: None)
    graph = traced(remembers, lambda: count.zero_() and None)
    assert [int(graph()) for _ in range(3)] == [1, 1, 1] and int(count) == 3 and at == [1]


@pytest.mark.parametrize("n", [1, 31, 64, 96])
@pytest.mark.parametrize("heads", [(4, 2), (6, 1)])
def test_rows_in_parts_weigh_what_they_weigh_together(n: int, heads: tuple[int, int]) -> None:
    draw = torch.Generator().manual_seed(n)
    q, k, v = (
        torch.randn(2, count, rows, d, generator=draw)
        for count, rows, d in ((heads[0], 1, 8), (heads[1], n, 8), (heads[1], n, 5))
    )
    mask = (torch.arange(n) <= n // 2)[None, None, None]
    together, parts = (one_query(q, k, v, 0.3, mask, split=split) for split in (False, True))
    assert torch.allclose(together, parts, atol=1e-6)


def test_without_a_gpu_there_is_no_graph() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(Unavailable, match="need a GPU"):
        cuda_graph(lambda: torch.zeros(1), lambda: None)


def test_a_capture_warms_up_and_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of calls, on a stand-in for torch's graphs: the kernels themselves were not run."""
    state, ran = torch.zeros(1), []

    def step() -> torch.Tensor:
        ran.append("step")
        return state.add_(1)

    def undo() -> None:
        ran.append("undo")
        state.zero_()

    class Graph:
        def replay(self) -> None:
            state.add_(1)

    stream = SimpleNamespace(wait_stream=lambda _: ran.append("wait"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    replay = cuda_graph(step, undo)
    assert ran == ["wait", *["step", "undo"] * 3, "wait", "step", "undo"]
    assert int(state) == 0
    assert [int(replay()) for _ in range(2)] == [1, 2]


def test_an_engine_answers_with_replayed_steps_as_without_and_an_adapter_is_no_part_of_a_capture() -> None:
    tiny = weights.load("tiny")
    policy = Policy(window=32, block=8, sink=8, max_blocks=4, host_blocks=50, decode_recall=1)
    low = LowRank(torch.ones(2, 64), torch.ones(32, 2) * 0.3, 1.0)
    asked = [("the first of two questions " * 5, ""), ("another one", "polite"), ("another one", ""), ("third", "")]
    texts = []
    for capture in (None, traced):
        engine = Engine(tiny, strategy="sliding_sparse", policy=policy, capture=capture)
        engine.add_adapter(Adapter.of("polite", {"model.layers.0.self_attn.v_proj": low}))
        local = LocalModel(engine)
        said_now = []
        for prompt, local.adapter in asked:
            said_now.append(local.complete(prompt, max_tokens=24).text)
        texts.append(said_now)
        steps = engine._steps
        local.close()
    assert texts[0] == texts[1] and texts[0][1] != texts[0][2]
    assert isinstance(steps, GraphedSteps) and steps.captures == 1 and 0 < steps.replays < 3 * 24


@pytest.mark.parametrize(
    ("argv", "code", "why"),
    [
        (["--kv-cache-strategy", "sliding_sparse"], 3, "needs a GPU; --device is cpu"),
        (["--kv-cache-strategy", "quantized"], 2, "needs --kv-cache-strategy sliding_sparse or sliding"),
    ],
)
def test_graphs_that_cannot_be_are_refused_before_a_model_is_loaded(
    argv: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert server_main.main([*argv, "--cuda-graphs", "on", "--model", "tiny", "--port", "0"]) == code
    error = capsys.readouterr().err
    assert why in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "graphed"),
    [
        (["--device", "cuda", "--kv-cache-strategy", "sliding"], True),
        (["--device", "cuda:1", "--kv-cache-strategy", "sliding_sparse", "--cuda-graphs", "on"], True),
        (["--device", "cuda", "--kv-cache-strategy", "sliding_sparse", "--cuda-graphs", "off"], False),
        (["--device", "cuda"], False),
        (["--kv-cache-strategy", "sliding_sparse"], False),
    ],
)
def test_graphs_are_on_where_a_gpu_has_a_sliding_strategy(argv: list[str], graphed: bool) -> None:
    assert server_main._is_graphed(server_main._parser().parse_args(argv)) is graphed


def test_a_strategy_whose_rows_move_has_no_graphs(model_of: Any) -> None:
    with pytest.raises(InvalidInput, match="graphs need the strategy sliding_sparse or sliding, not full"):
        Caches(model_of("llama"), "full", capture=traced)
