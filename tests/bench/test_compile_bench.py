"""What watching compilation costs per step of a compiled network, beside the same step unwatched in the same run.

Both are compiled by the same backend, and both are called under a stance, so that the watch is all they differ in.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the runner extra")

from testbed.models.runner.compiling import CompileWatch  # noqa: E402

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),  # torch's own compiler uses it
]
STEPS = 20  # in one timed call: changing the stance takes as long as a small step, and is the same on both sides


@pytest.mark.parametrize(("width", "rounds"), [(32, 500), (256, 150), (512, 60)])
def test_step_of_a_watched_network(beside: Callable[..., None], width: int, rounds: int) -> None:
    """Two layers, as in ``compile-report``, on batches of 64."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch._dynamo.reset()
    layers = (torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width))
    fast = torch.compile(torch.nn.Sequential(*layers).requires_grad_(False), dynamic=False)
    x = torch.randn(64, width)

    def steps() -> None:
        for _ in range(STEPS):
            fast(x)

    def unwatched() -> None:
        with torch.compiler.set_stance("default"):
            steps()

    def watched() -> None:
        with torch.compiler.set_stance("default"):
            pass
        steps()

    with CompileWatch() as watch:
        watched()  # first, so that its graph is the first one
        unwatched()
        beside(watched, unwatched, tuple, rounds=rounds)
    graphs: Any = watch.report().graphs
    assert [(g.cause, g.calls % STEPS) for g in graphs] == [("first", 0)], "one graph, and every watched call counted"
