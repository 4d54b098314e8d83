"""What watching compilation costs per step of a compiled network, beside the same step unwatched in the same run.

Both are compiled by the same backend. Between the timed calls the watch is switched off and on again, so that a step
that is not watched pays nothing of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle

import pytest

torch = pytest.importorskip("torch", reason="needs the runner extra")

from testbed.models.runner.compiling import CompileWatch, forced  # noqa: E402

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),  # torch's own compiler uses it
]
STEPS = 20  # in one timed call


@pytest.mark.parametrize(("width", "rounds"), [(32, 1500), (256, 200), (512, 60)])
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

    with CompileWatch() as watch:
        steps()
    assert [(g.cause, g.calls) for g in watch.report().graphs] == [("first", STEPS)], "one graph, every call counted"
    steps()

    on = ExitStack()
    is_next_watched = cycle((False, True))

    def switched() -> tuple[()]:
        on.close()
        if next(is_next_watched):
            on.enter_context(forced(watch.backend))
        steps()  # what is called first after a switch is slower
        return ()

    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    with on:
        beside(steps, steps, switched, rounds=rounds)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before, "each side found the graph it had"
