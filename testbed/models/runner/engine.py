"""One model, one worker thread, one bounded queue.

Requests are served first come, first served, one at a time: an answer never depends on who else is asking. A full
queue refuses at once instead of growing, and a request whose client has gone is dropped at its next token.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from testbed.core.errors import HarnessError
from testbed.models.runner import generate, strategies
from testbed.models.runner.generate import Finish, Sampling
from testbed.models.runner.metrics import Metrics
from testbed.models.runner.weights import Loaded


class Busy(HarnessError):
    """The queue is full; the request was not taken."""


class Stopping(HarnessError):
    """The server is going down; the request was not finished."""


class Result(NamedTuple):
    """A settled piece of one request's answer; the last one carries ``finish`` and the counts."""

    text: str
    finish: Finish = ""
    n_prompt: int = 0
    n_completion: int = 0
    n_cached: int = 0
    vector: tuple[float, ...] = ()


@dataclass(slots=True)
class Job:
    """One sequence to generate, or (``sampling`` None) to embed. ``sink`` is called on the worker's thread."""

    prompt: tuple[int, ...]
    sampling: Sampling | None
    sink: Callable[[Result | HarnessError], None]
    salt: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)


class Engine:
    """Serves jobs until ``stop``; every job's sink gets an error or a result with ``finish`` set, exactly once last."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        strategy: str = "full",
        max_queue: int = 64,
        chunk: int = 1024,
        metrics: Metrics | None = None,
    ) -> None:
        self.loaded = loaded
        self.metrics = metrics or Metrics()
        self._strategy = strategy
        self._chunk = chunk
        self._jobs: queue.Queue[Job | None] = queue.Queue(maxsize=max_queue)
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name="model", daemon=True)
        self._worker.start()

    def submit(self, job: Job) -> None:
        if self._stopping.is_set():
            raise Stopping("the server is stopping")
        try:
            self._jobs.put_nowait(job)
        except queue.Full as e:
            raise Busy(f"{self._jobs.maxsize} requests are waiting already; try again later") from e
        self.metrics.set("queue_depth", self._jobs.qsize())

    def stop(self, timeout_s: float = 10.0) -> None:
        """Refuse new jobs, end the running one at its next token, fail those that wait."""
        self._stopping.set()
        while True:
            try:
                waiting = self._jobs.get_nowait()
            except queue.Empty:
                break
            if waiting is not None:
                waiting.sink(Stopping("the server is stopping"))
        self._jobs.put(None)
        self._worker.join(timeout_s)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.metrics.set("queue_depth", self._jobs.qsize())
            if job.cancelled.is_set():
                continue
            try:
                with torch.inference_mode():
                    self._serve(job)
            except HarnessError as e:
                job.sink(e)
            except Exception as e:  # one bad request must not end the server: its client is told, the next is served
                job.sink(HarnessError(f"the model failed on this request: {type(e).__name__}: {e}"))

    def _serve(self, job: Job) -> None:
        if job.sampling is None:
            job.sink(Result("", "stop", len(job.prompt), vector=self._embed(job.prompt)))
            return
        start = time.perf_counter()
        cache = strategies.build(self._strategy, self.loaded.model)
        ids = torch.tensor([job.prompt], device=self.loaded.model.device)
        logits = generate.prefill(self.loaded.model, ids, cache, self._chunk)
        first = time.perf_counter()
        self.metrics.observe("first_token_seconds", first - start)
        n_cached = 0
        for piece in generate.stream(logits, self._step(cache), self.loaded.tokenizer, job.prompt, job.sampling):
            if self._stopping.is_set():
                raise Stopping("the server is stopping")
            if job.cancelled.is_set():
                return
            job.sink(Result(piece.text, piece.finish, len(job.prompt), piece.n_tokens, n_cached))
            if piece.finish:
                self.metrics.add("prompt_tokens_total", len(job.prompt))
                self.metrics.add("completion_tokens_total", piece.n_tokens)
        self.metrics.add("decode_seconds_total", time.perf_counter() - first)

    def _step(self, cache: Any) -> Callable[[int], torch.Tensor]:
        model = self.loaded.model

        def step(token: int) -> torch.Tensor:
            ids = torch.tensor([[token]], device=model.device)
            logits: torch.Tensor = model(ids, cache=cache, use_cache=True).logits
            return logits[0, -1].float()

        return step

    def _embed(self, prompt: tuple[int, ...]) -> tuple[float, ...]:
        """Mean of the last hidden states over the prompt, to norm 1."""
        model = self.loaded.model
        ids = torch.tensor([prompt], device=model.device)
        hidden = model.get_decoder()(ids, use_cache=False).last_hidden_state[0].float()
        vector = torch.nn.functional.normalize(hidden.mean(0), dim=0)
        return tuple(vector.tolist())
