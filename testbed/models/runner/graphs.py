"""Decoding by a CUDA graph: one launch for a token instead of some thirty for each layer.

The step is captured once, and replayed for every token that is only read and added. Tokens at which blocks are pruned
or come back (three in a block of 64 at most) go through the model as always: what they do depends on what they find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from testbed.core.errors import Unavailable
from testbed.models.runner.kv import SlidingSparseCache

WARM_UPS = 3  # runs before a capture: libraries make their workspaces in the first ones

Step = Callable[[], torch.Tensor]
Capture = Callable[[Step, Callable[[], None]], Step]


def cuda_graph(step: Step, undo: Callable[[], None]) -> Step:
    """Record the kernels of ``step``; what is returned runs them again. ``undo`` takes back what a run has changed."""
    if not torch.cuda.is_available():
        raise Unavailable("CUDA graphs need a GPU, and torch finds none; decode without them")
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UPS):
            step()
            undo()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # other threads of a server may use the device meanwhile
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = step()
    undo()

    def replay() -> torch.Tensor:
        graph.replay()
        return out

    return replay


class GraphedSteps:
    """Decodes with caches that lie in one arena. The capture serves all of them: their buffers are the same.

    ``captures`` and ``replays`` count; ``capture`` is told in the tests.
    """

    def __init__(self, model: Any, capture: Capture = cuda_graph) -> None:
        self.captures = self.replays = 0
        self._model = model
        self._capture = capture
        self._token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        self._replay: Step | None = None
        self._captured: object = None

    def __call__(self, cache: SlidingSparseCache, token: int) -> torch.Tensor:
        """Logits (vocabulary,) after one more token."""
        self._token.fill_(token)
        if not cache.is_quiet:
            return self._model(self._token, cache=cache, use_cache=True).logits[0, -1].float()  # type: ignore[no-any-return]
        if not cache.is_settled:
            cache.settle()
        if self._replay is None or self._captured != cache.addresses:
            self._replay = self._capture(lambda: self._step(cache), cache.settle)
            self._captured = cache.addresses
            self.captures += 1
        logits = self._replay()[0, -1].float()
        cache.count_one()
        self.replays += 1
        # a copy: the next replay writes to the same place
        return logits.clone()

    def _step(self, cache: SlidingSparseCache) -> torch.Tensor:
        assert cache.arena is not None
        with cache.arena.stepping():
            out = self._model(self._token, position_ids=cache.arena.position, cache=cache, use_cache=True)
        cache.arena.position.add_(1)
        return out.logits  # type: ignore[no-any-return]
