"""The smaller parts: policy, rotation, attention, scores, storage, the host tier, strategies, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runner_families import build, tokens

from testbed.core.errors import InvalidInput, Unavailable
from testbed.models.runner import __main__ as server_main
from testbed.models.runner import dense, generate, strategies, weights
from testbed.models.runner.copies import SideStream
from testbed.models.runner.dense import attention
from testbed.models.runner.host import HostTier
from testbed.models.runner.metrics import Metrics
from testbed.models.runner.policy import Policy, served_decode_recall, threshold_from_environment
from testbed.models.runner.pruning import matched
from testbed.models.runner.rotary import rotate
from testbed.models.runner.rows import Part, Rows, joined
from testbed.models.runner.scores import BlockScores, Wanted, attention_mass, share_of_best, staying

pytestmark = pytest.mark.models


# -- policy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"window": 0}, {"sink": 10}, {"decay": 1.0}, {"threshold": -1}, {"max_blocks": -1}, {"block": 0}]
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Policy(**wrong)


def test_the_row_bound_is_the_sum_of_what_may_stay() -> None:
    policy = Policy(window=512, block=64, sink=64, max_blocks=16, host_blocks=0)
    assert policy.rows_bound() == 64 + 16 * 64 + 512 + 2 * 64 - 1
    assert Policy(max_blocks=None).rows_bound() is None
    two = Policy(window=512, block=64, sink=64, max_blocks=16, host_blocks=100, recall=2, decode_recall=1)
    assert two.rows_bound() == 64 + 16 * 64 + 512 + 2 * 64 - 1  # what decoding brings back takes others' places
    assert two.transient_rows(1000) == two.rows_bound() + 6 * 64 + 1000


def test_the_threshold_comes_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSEEK_CACHE_THRESHOLD", raising=False)
    assert threshold_from_environment() == 0.15
    monkeypatch.setenv("DEEPSEEK_CACHE_THRESHOLD", "0.3")
    assert threshold_from_environment() == 0.3
    monkeypatch.setenv("DEEPSEEK_CACHE_THRESHOLD", "much")
    with pytest.raises(InvalidInput, match="much"):
        threshold_from_environment()


def test_recall_while_decoding_comes_from_its_flag_then_its_variable_then_is_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def served(*argv: str) -> Policy:
        return server_main._policy(server_main._parser().parse_args(argv))

    monkeypatch.delenv("DEEPSEEK_CACHE_DECODE_RECALL", raising=False)
    default = served()
    assert default.decode_recall == 1 and default.host_blocks > 0
    assert served("--kv-decode-recall", "3") == replace(default, decode_recall=3)
    monkeypatch.setenv("DEEPSEEK_CACHE_DECODE_RECALL", "0")
    assert served().decode_recall == 0
    assert served("--kv-decode-recall", "2").decode_recall == 2
    # without a host tier it brings nothing back, so the bound does not count it
    assert served("--kv-decode-recall", "2", "--kv-host-blocks", "0").rows_bound() == served().rows_bound()


@pytest.mark.parametrize("wrong", ["-1", "1.5", "many", ""])
def test_a_recall_while_decoding_that_is_no_number_of_blocks_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    with pytest.raises(InvalidInput, match=r"--kv-decode-recall='.*' must be a whole number"):
        served_decode_recall(wrong)
    monkeypatch.setenv("DEEPSEEK_CACHE_DECODE_RECALL", wrong or " ")
    with pytest.raises(InvalidInput, match=r"DEEPSEEK_CACHE_DECODE_RECALL='.*' must be a whole number"):
        served_decode_recall(None)


# -- rotation and attention ------------------------------------------------------------------------------------------


def test_a_quarter_turn_swaps_the_two_halves_of_a_pair() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0, 9.0]])
    turned = rotate(x, torch.zeros(1, 2), torch.ones(1, 2))
    assert turned.tolist() == [[-3.0, -4.0, 1.0, 2.0, 9.0]]  # the fifth channel has no position


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 2**31))
def test_the_fused_and_the_sliced_path_agree(t: int, more: int, seed: int) -> None:
    """``fused`` is what a GPU takes; here it runs the same call on the CPU."""
    draw = torch.Generator().manual_seed(seed)
    q = torch.randn(1, 4, t, 8, generator=draw)
    k, v = (torch.randn(1, 2, t + more, 8, generator=draw) for _ in range(2))
    index = torch.arange(t + more)
    a, b = (attention(q, k, v, 0.3, index, None, None, fused=fused) for fused in (True, False))
    assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(st.integers(2, 40), st.integers(1, 40), st.sampled_from([(4, 4), (4, 2), (6, 1)]), st.integers(0, 2**31))
def test_a_chunk_and_what_is_before_it_weigh_what_they_weigh_together(
    dtype: torch.dtype, t: int, old: int, heads: tuple[int, int], seed: int
) -> None:
    """Against the softmax written out in float64; a padding mask without padding takes the path with masks."""
    draw = torch.Generator().manual_seed(seed)
    q = torch.randn(2, heads[0], t, 8, generator=draw).mul(3).to(dtype)
    k, v = (torch.randn(2, heads[1], old + t, 8, generator=draw).to(dtype) for _ in range(2))
    index = torch.arange(old + t)
    wide = [x.double().repeat_interleave(heads[0] // heads[1], 1) for x in (k, v)]
    later = index > torch.arange(old, old + t)[:, None]
    exact = (q.double() @ wide[0].transpose(-1, -2) * 0.3).masked_fill(later, float("-inf")).softmax(-1) @ wide[1]
    close = 1e-5 if dtype == torch.float32 else 5e-2
    for padding in (None, torch.ones(2, old + t, dtype=torch.bool)):
        found = attention(q, k, v, 0.3, index, padding, None)
        assert float((found.double() - exact).abs().max()) < close


def test_a_torch_without_the_splitting_kernel_takes_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 8)
    with_it = attention(q, k, v, 0.3, torch.arange(9), None, None)
    monkeypatch.setattr(dense, "SPLITTING_KERNEL", "a_name_that_nothing_has")
    assert torch.allclose(attention(q, k, v, 0.3, torch.arange(9), None, None), with_it, atol=1e-5)


# -- scores ----------------------------------------------------------------------------------------------------------


def test_the_mass_of_a_block_is_its_share_of_the_softmax() -> None:
    """Two heads over one key head; keys 0-5; head 0 looks at key 3 only, head 1 at all alike."""
    k = torch.zeros(1, 1, 6, 2)
    k[0, 0, 3, 0] = 1.0
    q = torch.tensor([[[[40.0, 0.0]], [[0.0, 1.0]]]])
    mass = attention_mass(q, k, 1.0, None, 1, 2, 2)
    assert mass[0, 0].tolist() == pytest.approx([0.0, 1.0], abs=1e-6)
    assert mass[0, 1].tolist() == pytest.approx([2 / 6, 2 / 6])


def test_a_block_that_one_head_needs_has_share_one() -> None:
    mass = torch.tensor([[[0.9, 0.1, 0.0], [0.0, 0.1, 0.2]]])
    assert share_of_best(mass, "max").tolist() == pytest.approx([1.0, 0.5, 1.0])
    assert share_of_best(mass, "mean").tolist() == pytest.approx([0.5, (0.1 / 0.9 + 0.5) / 2, 0.5])


def test_scores_decay_and_spread_to_their_neighbours_by_number() -> None:
    scores = BlockScores()
    scores.fold(torch.tensor([2, 3, 7]), torch.tensor([1.0, 0.0, 0.2]), 0.5)
    scores.fold(torch.tensor([2, 3, 7]), torch.tensor([0.0, 0.0, 0.2]), 0.5)
    blocks = torch.tensor([2, 3, 7])
    assert scores.of(blocks).tolist() == pytest.approx([0.5, 0.0, 0.2])
    assert scores.spread(blocks, 1).tolist() == pytest.approx([0.5, 0.5, 0.2])
    assert scores.spread(blocks, 0).tolist() == pytest.approx([0.5, 0.0, 0.2])
    scores.forget(torch.tensor([2]))
    scores.fold(torch.tensor([2]), torch.tensor([0.1]), 0.5)  # as new: the first observation counts whole
    assert scores.of(torch.tensor([2])).tolist() == pytest.approx([0.1])


def test_a_block_is_asked_for_as_much_as_its_best_neighbour_in_any_tier() -> None:
    """Block 4 is in the other tier, and what is beside it comes first, however little of it is asked for itself."""
    weight = torch.tensor([0.5, 0.05, 0.1, 0.15, 0.2]).log().reshape(1, 1, 1, 1, 5)
    assert Wanted(weight, [4, 5, 9, 12, 15], 1).first([5, 9, 12, 15]) == [5, 15, 12, 9]
    assert Wanted(weight, [4, 5, 9, 12, 15], 0).first([5, 9, 12, 15]) == [15, 12, 9, 5]
    assert Wanted(weight, [4, 5, 9, 10, 15], 1).first([4, 5, 9, 10, 15]) == [4, 5, 15, 10, 9]
    assert Wanted(weight, [4, 5, 9, 10, 15], 1).of(10) == pytest.approx(0.15)


def test_a_block_that_comes_finds_the_first_that_is_wanted_less_and_one_that_finds_none_ends_it() -> None:
    wanted = Wanted(torch.tensor([0.4, 0.3, 0.2, 0.1]).log().reshape(1, 1, 1, 1, 4), [0, 10, 20, 30], 1)
    assert matched([0], [10, 20, 30], wanted) == [10]
    assert matched([10, 20], [0, 30], wanted) == [30]  # nothing is left that 20 is wanted more than
    assert matched([10, 20], [20, 30, 0], wanted) == [20, 30]
    assert matched([11], [10, 9], wanted) == []  # neighbours of one block are wanted as much as it


def test_what_one_head_asks_for_is_asked_for() -> None:
    one, other = torch.tensor([0.9, 0.1, 1e-9]), torch.tensor([1e-9, 0.4, 0.6])
    weight = torch.stack([one, other]).log().reshape(1, 1, 2, 1, 3)
    assert Wanted(weight, [0, 3, 6], 1).first([0, 3, 6]) == [0, 6, 3]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0, 1), st.integers(0, 30))
def test_the_cap_takes_the_best_of_those_that_reach_the_threshold(
    values: list[float], threshold: float, cap: int
) -> None:
    score = torch.tensor(values)
    keep = staying(score, score, Policy(threshold=threshold, max_blocks=cap))
    reach = score >= threshold
    assert int(keep.sum()) == min(cap, int(reach.sum()))
    assert not bool((keep & ~reach).any())
    if keep.any() and (reach & ~keep).any():
        assert score[keep].min() >= score[reach & ~keep].max()


def test_where_the_cap_cuts_between_equals_the_block_itself_stays_before_those_beside_it() -> None:
    """Block 2 is wanted and lends its score to 1 and 3: by age, 1 would take the last place from it."""
    score, own = torch.tensor([0.9, 0.8, 0.8, 0.8]), torch.tensor([0.9, 0.1, 0.8, 0.3])
    kept = [staying(score, own, Policy(threshold=0.1, max_blocks=n)).tolist() for n in (2, 3)]
    assert kept == [[True, False, True, False], [True, False, True, True]]


# -- storage ---------------------------------------------------------------------------------------------------------


def part(first: int, n: int, seed: int = 0) -> Part:
    draw = torch.Generator().manual_seed(seed + first)
    k, v = torch.randn(1, n, 2, 4, generator=draw), torch.randn(1, n, 2, 4, generator=draw)
    return Part(k, v, torch.arange(first, first + n), torch.arange(first, first + n)[None])


def test_forks_share_a_buffer_until_one_of_them_writes() -> None:
    one = Rows(part(0, 5), slack=8)
    other = one.fork()
    assert one.live.k.data_ptr() == other.live.k.data_ptr()
    one.append(part(5, 1))
    other.append(part(5, 1, seed=9))
    assert one.live.k.data_ptr() != other.live.k.data_ptr()
    assert torch.equal(one.live.k, torch.cat([part(0, 5).k, part(5, 1).k], 1))
    assert torch.equal(other.live.k, torch.cat([part(0, 5).k, part(5, 1, seed=9).k], 1))


@pytest.mark.parametrize("batch", [1, 3])
def test_rows_chosen_while_storing_are_those_taken_before_it(batch: int) -> None:
    """A sequence of its own position ids each, as under left padding."""
    k, v, token, _ = part(0, 9)
    both = Part(k.repeat(batch, 1, 1, 1), v.repeat(batch, 1, 1, 1), token, torch.arange(9 * batch).reshape(batch, 9))
    for chosen in (torch.tensor([0, 4, 5, 8]), slice(3, None)):
        stored = Rows(both, 2, chosen)
        assert all(torch.equal(a, b) for a, b in zip(stored.live, both.take(chosen), strict=True))
        assert stored.capacity == stored.n + 2


def test_growing_keeps_every_row() -> None:
    rows = Rows(part(0, 1), slack=2)
    for i in range(1, 20):
        rows.append(part(i, 1))
    assert torch.equal(rows.live.k, joined([part(i, 1) for i in range(20)]).k)
    assert rows.live.token.tolist() == list(range(20))


def test_the_host_tier_drops_the_least_wanted_block_and_returns_the_rest_bit_for_bit() -> None:
    tier, blocks = HostTier(limit=2, block=4), part(8, 12)
    dropped = tier.demote([2, 3, 4], blocks, [0.5, 0.1, 0.9])
    assert (dropped, tier.blocks, len(tier)) == ([3], [2, 4], 2)
    back = tier.recall([2, 4], torch.device("cpu"))
    expected = blocks.take(torch.tensor([0, 1, 2, 3, 8, 9, 10, 11]))
    assert all(torch.equal(a, b) for a, b in zip(back, expected, strict=True))
    assert len(tier) == 0


class Told:
    """Copies that are done at once, and written down: what a stream beside the computing would be asked for."""

    pins = False

    def __init__(self) -> None:
        self.log: list[str] = []

    @contextmanager
    def writing(self, rows: torch.Tensor) -> Iterator[None]:
        yield
        self.log.append(f"write {rows.shape[1]}")

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.log.append("read")
        yield

    def handed_over(self, rows: torch.Tensor) -> None:
        self.log.append(f"use {rows.shape[1]}")

    def finish(self) -> None:
        self.log.append("finish")


def test_copies_beside_the_computing_give_the_same_rows_and_are_awaited_where_they_must_be() -> None:
    told, rows = Told(), part(0, 16 * 12)
    plain, beside = HostTier(20, 16), HostTier(20, 16, told)
    for tier in (plain, beside):
        tier.demote(list(range(8)), rows.take(slice(0, 128)), [1.0] * 8)
    assert told.log == ["write 16", "write 16"] * 8
    told.log.clear()
    for tier in (plain, beside):  # no free slot: the CPU moves the old ones
        tier.demote([8], rows.take(slice(128, 144)), [1.0])
    assert told.log == ["finish", "write 16", "write 16"]
    told.log.clear()
    both = [tier.recall([1, 5, 8], torch.device("cpu")) for tier in (plain, beside)]
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))
    assert told.log == ["read", "use 48"] * 2  # keys, values
    told.log.clear()
    forks = [tier.fork() for tier in (plain, beside)]
    assert told.log == ["finish"]
    read = [tier.read([0, 7], torch.device("cpu")) for tier in forks]
    assert all(torch.equal(a, b) for a, b in zip(*read, strict=True))


def test_a_stream_for_copies_waits_for_what_it_copies_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of calls, on a stand-in for torch's streams: on a GPU they were not run."""
    log: list[str] = []

    class Stream:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_stream(self, other: Stream) -> None:
            log.append(f"{self.name} waits for {other.name}")

        def synchronize(self) -> None:
            log.append(f"the CPU waits for {self.name}")

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        log.append(f"on {stream.name}")
        yield
        log.append("off")

    computing = Stream("computing")
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: Stream("copies"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: computing)
    monkeypatch.setattr(torch.cuda, "stream", on)
    rows = SimpleNamespace(record_stream=lambda stream: log.append(f"rows are kept for {stream.name}"))
    side = SideStream(torch.device("cuda"))
    with side.writing(rows):  # type: ignore[arg-type]
        log.append("write")
    with side.reading():
        log.append("read")
    side.handed_over(rows)  # type: ignore[arg-type]
    side.finish()
    assert log == [
        *("copies waits for computing", "on copies", "write", "off", "rows are kept for copies"),
        *("on copies", "read", "off", "computing waits for copies"),
        "rows are kept for computing",
        "the CPU waits for copies",
    ]
    with SideStream(torch.device("cuda"), aside=False).reading():
        pass
    assert log[-1] == "computing waits for computing"


def test_a_slot_of_the_host_tier_is_used_again() -> None:
    tier = HostTier(limit=3, block=4)
    for i in range(50):
        tier.demote([i], part(4 * i, 4), [float(i)])
    assert tier.held_bytes <= 2 * (3 + 1) * 4 * 2 * 4 * 4
    assert torch.equal(tier.recall([49], torch.device("cpu")).k, part(196, 4).k)


# -- strategies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_every_strategy_that_runs_here_answers_and_reports_what_it_holds(family: str) -> None:
    model, ids = build(family), tokens(300)
    policy = Policy(window=32, block=8, sink=8, max_blocks=4, host_blocks=0)
    used = {}
    for name in ("full", "sliding_sparse", "sliding", "quantized"):
        caches = strategies.Caches(model, name, policy)
        with caches.ready():
            cache = caches.new()
            logits = generate.prefill(model, ids, cache, 64)
            assert bool(torch.isfinite(logits).all())
            used[name] = strategies.usage(cache)
    assert used["sliding"].live_bytes < used["sliding_sparse"].live_bytes < used["full"].live_bytes
    assert used["quantized"].live_bytes < used["full"].live_bytes
    assert used["full"].keep_ratio == 1.0 > used["sliding_sparse"].keep_ratio > used["sliding"].keep_ratio


def test_offloading_without_a_gpu_and_an_unknown_strategy_are_refused() -> None:
    model = build("llama")
    with pytest.raises(Unavailable, match="needs a GPU"):
        strategies.Caches(model, "offload")
    with pytest.raises(InvalidInput, match="sliding_sparse"):
        strategies.Caches(model, "sliding-sparse")


# -- weights and metrics ---------------------------------------------------------------------------------------------


def test_a_fingerprint_names_the_weights_and_not_the_name() -> None:
    one, same, other = (weights.tiny(seed)[0] for seed in (7, 7, 8))
    assert weights.fingerprint(one) == weights.fingerprint(same) != weights.fingerprint(other)
    same.model.layers[0].mlp.up_proj.weight[0, 0] += 1e-3
    assert weights.fingerprint(one) != weights.fingerprint(same)


def test_metrics_render_in_the_text_format_and_refuse_unknown_names() -> None:
    metrics = Metrics()
    metrics.add("requests_total", route='a"b\\c\nd', code="200")
    metrics.observe("first_token_seconds", 0.3)
    text = metrics.render()
    assert r'testbed_runner_requests_total{code="200",route="a\"b\\c\nd"} 1' in text
    assert 'testbed_runner_first_token_seconds_bucket{le="0.25"} 0' in text
    assert 'testbed_runner_first_token_seconds_bucket{le="0.5"} 1' in text
    assert "testbed_runner_first_token_seconds_sum 0.3" in text
    with pytest.raises(KeyError):
        metrics.add("request_total")
