"""Decoding by a CUDA graph: one launch for a token instead of some thirty for each layer.

The step is captured once, and replayed for every token that is only read and added. Tokens at which blocks are pruned
or come back (three in a block of 64 at most) go through the model as always: what they do depends on what they find.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from testbed.core.errors import Unavailable, Unsupported
from testbed.models.runner.generate import steps_of
from testbed.models.runner.kv import SlidingSparseCache

_log = logging.getLogger("testbed")

WARM_UPS = 3  # runs before a capture: libraries make their workspaces in the first ones

Step = Callable[[], torch.Tensor]
Capture = Callable[[Step, Callable[[], None]], Step]


def cuda_graph(step: Step, undo: Callable[[], None]) -> Step:
    """Record the kernels of ``step``; what is returned runs them again. ``undo`` takes back what a run has changed.

    On the current device, in the current stream.
    """
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
    with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
        out = step()
    undo()

    def replay() -> torch.Tensor:
        graph.replay()
        return out

    return replay


class GraphedSteps:
    """Decodes with caches that lie in one arena. The capture serves all of them: their buffers are the same.

    A model whose step cannot be captured is decoded plainly from then on, with a warning, unless ``must_capture``.
    ``captures`` and ``replays`` count.
    """

    def __init__(self, model: Any, capture: Capture = cuda_graph, *, must_capture: bool = False) -> None:
        self.captures = self.replays = 0
        self._model = model
        self._plain = steps_of(model)
        self._capture = capture
        self._must_capture = must_capture
        self._is_off = False
        self._token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        self._replay: Step | None = None
        self._captured: object = None

    def __call__(self, cache: SlidingSparseCache, token: int) -> torch.Tensor:
        """Logits (vocabulary,) after one more token."""
        with self._on_device():
            if self._is_off or not cache.is_quiet or not self._is_ready(cache):
                return self._plain(cache, token)
            assert self._replay is not None
            self._token.fill_(token)
            # a copy: the next replay writes to the same place
            logits = self._replay()[0, -1].float().clone()
        cache.count_one()
        self.replays += 1
        return logits

    def _is_ready(self, cache: SlidingSparseCache) -> bool:
        """Whether a replay continues this cache; captures what it needs for that."""
        if not cache.is_settled:
            cache.settle()
        if self._replay is not None and self._captured == cache.addresses:
            return True
        cache.settle()  # what was replayed since the last time is part of it
        self._replay = self._captured = None  # the memory of an old graph goes before a new one's comes
        try:
            self._replay = self._capture(lambda: self._step(cache), cache.settle)
        except RuntimeError as e:
            if self._must_capture:
                raise Unsupported(f"a decoding step cannot be captured as a CUDA graph: {e}") from e
            cache.settle()
            _log.warning("decoding without CUDA graphs, since a step cannot be captured: %s", e)
            self._is_off = True
            return False
        self._captured = cache.addresses
        self.captures += 1
        return True

    def _step(self, cache: SlidingSparseCache) -> torch.Tensor:
        assert cache.arena is not None
        with cache.arena.stepping():
            out = self._model(self._token, position_ids=cache.arena.position, cache=cache, use_cache=True)
        cache.arena.position.add_(1)
        return out.logits  # type: ignore[no-any-return]

    def _on_device(self) -> AbstractContextManager[object]:
        """The model's own GPU: streams and graphs are of the current one."""
        device = self._model.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
