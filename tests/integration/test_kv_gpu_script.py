"""``scripts/bench_kv_gpu.py``: what of it needs no GPU, and what it says where there is none."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the runner extra")
pytest.importorskip("transformers", reason="needs the runner extra")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests.scripts import loaded  # noqa: E402

pytestmark = pytest.mark.models
bench = loaded("bench_kv_gpu")
SMALL = [
    *("--device", "cpu", "--model", "small", "--dtype", "float32", "--tokens", "256", "--chunk", "64"),
    *("--window", "32", "--block", "8", "--max-blocks", "4", "--decode", "20"),
]


def said(monkeypatch: pytest.MonkeyPatch, capsys: Any, *argv: str) -> tuple[int, list[dict[str, Any]], str]:
    monkeypatch.setattr(sys, "argv", ["bench_kv_gpu.py", *argv])
    code = bench.main()
    out = capsys.readouterr()
    return code, [json.loads(line) for line in out.out.splitlines()], out.err


def test_three_strategies_are_measured_without_a_gpu_and_say_so(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    code, (head, *rows), _ = said(monkeypatch, capsys, "table", *SMALL)
    assert code == 0 and head["device"] == "cpu" and head["name"] is None
    assert [(row["setting"], row["graphs"]) for row in rows] == [
        ("full", False),
        ("sliding", False),
        ("sliding_sparse", False),
    ]
    full, sliding, sparse = rows
    assert full["live_bytes"] == 2 * 2 * 2 * 16 * 4 * (256 + 20 + 64)  # k and v, layers, heads, channels, bytes, rows
    assert sliding["live_bytes"] < sparse["live_bytes"] < full["live_bytes"] and sparse["host_bytes"] > 0
    assert all(row["first_token_s"] > 0 and row["replays"] == 0 for row in rows)


@pytest.mark.parametrize("what", [["table"], ["overlap"], ["overlap", "--device", "cpu", "--model", "small"]])
def test_without_a_gpu_the_rest_is_one_line_and_status_3(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, what: list[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, _, error = said(monkeypatch, capsys, *what)
    assert code == 3 and error.count("\n") == 1 and "GPU" in error


@pytest.mark.parametrize("strategy", ["full", "sliding", "sliding_sparse"])
def test_the_rows_with_graphs_replay_what_they_captured(monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    """With the trace of a step in the place of its graph."""

    def traced(step: Callable[[], Any], undo: Callable[[], None]) -> Callable[[], Any]:
        graph: Callable[[], Any] = make_fx(step)()
        undo()
        return graph

    monkeypatch.setattr(sys, "argv", ["bench_kv_gpu.py", "table", *SMALL])
    monkeypatch.setattr(bench, "cuda_graph", traced)
    args = bench._arguments()
    model = bench._model(args)
    (plain,) = (row for row in bench.rows(args, 256) if row.strategy == strategy)
    with torch.inference_mode():
        found = bench._measured(model, plain._replace(is_graphed=True), 256, args)
        expected = bench._measured(model, plain, 256, args)
    assert found["captures"] == 1 and found["replays"] >= 12 + 12  # of 16 and 20 tokens: the first run warms up
    assert found["live_bytes"] == expected["live_bytes"] and found["host_bytes"] == expected["host_bytes"]


def test_a_floor_is_the_arithmetic_of_the_linear_layers_and_the_bytes_of_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_kv_gpu.py", "table", *SMALL])
    args = bench._arguments()
    floor = bench.floors(bench._model(args), 1000, 4_000, args)
    layer = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128  # q, k and v, o, and the three of the MLP
    assert floor.first_token_s == pytest.approx(2 * 2 * layer * 1000 / 989e12)
    assert floor.decode_s == pytest.approx(((2 * layer + 512 * 64) * 4 + 4_000) / 4.8e12)
