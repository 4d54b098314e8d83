"""One model, one worker thread, one bounded queue.

Requests are served first come, first served, one at a time: an answer never depends on who else is asking. A full
queue refuses at once instead of growing, and a request whose client has gone is dropped at its next token.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch

from testbed.core.errors import HarnessError, InvalidInput
from testbed.models.runner import generate, prefix, strategies
from testbed.models.runner.adapters import Adapter
from testbed.models.runner.chain import Identity
from testbed.models.runner.generate import Finish, Sampling
from testbed.models.runner.graphs import Capture
from testbed.models.runner.metrics import Metrics
from testbed.models.runner.policy import Policy
from testbed.models.runner.weights import Loaded


class Busy(HarnessError):
    """The queue is full; the request was not taken."""


class Stopping(HarnessError):
    """The server is going down; the request was not finished."""


class _Gone(Exception):
    """The client of the running job is no longer there."""


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
    """One sequence to generate, or (``sampling`` None) to embed. ``sink`` is called on the worker's thread.

    ``salt`` keeps the prefix cache of one tenant apart from others'; ``adapter`` is the name of a loaded one, or "".
    """

    prompt: tuple[int, ...]
    sampling: Sampling | None
    sink: Callable[[Result | HarnessError], None]
    salt: str = ""
    adapter: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)


class Engine:
    """Serves jobs until ``stop``; every job's sink gets an error or a result with ``finish`` set, exactly once last."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        strategy: str = "full",
        policy: Policy | None = None,
        max_queue: int = 64,
        chunk: int = 1024,
        prefix_cache: prefix.Prefixes | None = None,
        metrics: Metrics | None = None,
        capture: Capture | None = None,
        must_capture: bool = False,
    ) -> None:
        if prefix_cache is not None and strategy != "full":
            raise InvalidInput(f"a prefix cache needs the strategy full, not {strategy!r}: a pruned block is no prefix")
        self.loaded = loaded
        self.metrics = metrics or Metrics()
        self.prefix = prefix_cache
        self.adapters: dict[str, Adapter] = {}
        self._caches = strategies.Caches(loaded.model, strategy, policy or Policy(), capture, must_capture)
        self._steps = self._caches.steps()
        self._chunk = chunk
        self._jobs: queue.Queue[Job | None] = queue.Queue(maxsize=max_queue)
        self._stopping = threading.Event()
        self._model = ExitStack()
        self._model.enter_context(self._caches.ready())
        self._worker = threading.Thread(target=self._work, name="model", daemon=True)
        self._worker.start()

    @property
    def names(self) -> list[str]:
        """What a request may ask for: the model, then its adapters."""
        return [self.loaded.name, *sorted(self.adapters)]

    def add_adapter(self, adapter: Adapter) -> None:
        """Serve an adapter under its name; one of that name that is already there is replaced."""
        if adapter.name == self.loaded.name:
            raise InvalidInput(f"adapter {adapter.name!r} has the name of the model")
        self.adapters = {**self.adapters, adapter.name: adapter}

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
            except _Gone:
                continue
            except HarnessError as e:
                job.sink(e)
            except Exception as e:  # one bad request must not end the server: its client is told, the next is served
                job.sink(HarnessError(f"the model failed on this request: {type(e).__name__}: {e}"))
        self._model.close()

    def _serve(self, job: Job) -> None:
        adapter = self.adapters.get(job.adapter)
        if job.adapter and adapter is None:
            raise InvalidInput(f"adapter {job.adapter!r} is not loaded")
        with adapter.applied(self.loaded.model) if adapter else nullcontext():
            if job.sampling is None:
                job.sink(Result("", "stop", len(job.prompt), vector=self._embed(job.prompt)))
            else:
                self._generate(job, job.sampling, adapter)

    def _generate(self, job: Job, sampling: Sampling, adapter: Adapter | None) -> None:
        def went_on() -> None:
            if self._stopping.is_set():
                raise Stopping("the server is stopping")
            if job.cancelled.is_set():
                raise _Gone

        start = time.perf_counter()
        logits, cache, n_cached = self._read(job, adapter, went_on)
        first = time.perf_counter()
        self.metrics.observe("first_token_seconds", first - start)
        # a captured step knows nothing of an adapter
        steps = generate.steps_of(self.loaded.model) if adapter else self._steps
        for piece in generate.stream(logits, partial(steps, cache), self.loaded.tokenizer, job.prompt, sampling):
            went_on()
            if piece.finish:  # counted before the client hears of it
                self._count(len(job.prompt), piece.n_tokens, n_cached, time.perf_counter() - first, cache)
            job.sink(Result(piece.text, piece.finish, len(job.prompt), piece.n_tokens, n_cached))

    def _read(self, job: Job, adapter: Adapter | None, went_on: Callable[[], None]) -> tuple[torch.Tensor, Any, int]:
        """Last logits of the prompt, the cache that holds it, and how many tokens were found in the prefix cache."""
        model = self.loaded.model
        if self.prefix is not None:
            layout = f"{model.dtype}:{self.prefix.block}"
            fingerprint, name = (adapter.fingerprint, adapter.name) if adapter else ("", "")
            identity = Identity(self.loaded.fingerprint, fingerprint, job.salt, layout, name)
            return prefix.prefill(model, job.prompt, self.prefix, identity, went_on)
        cache = self._caches.new()
        ids = torch.tensor([job.prompt], device=model.device)
        return generate.prefill(model, ids, cache, self._chunk, went_on), cache, 0

    def _count(self, n_prompt: int, n_new: int, n_cached: int, decode_s: float, cache: Any) -> None:
        m, used = self.metrics, strategies.usage(cache)
        m.add("prompt_tokens_total", n_prompt)
        m.add("completion_tokens_total", n_new)
        m.add("decode_seconds_total", decode_s)
        m.set("kv_live_bytes", used.live_bytes)
        m.set("kv_peak_bytes", used.peak_bytes)
        m.set("kv_host_bytes", used.host_bytes)
        m.set("kv_keep_ratio", used.keep_ratio)
        if self.prefix is not None:
            m.add("prefix_cached_tokens_total", n_cached)
            m.add("prefix_cache_requests_total", result="hit" if n_cached else "miss")
            m.set("prefix_cache_bytes", self.prefix.held_bytes)

    def _embed(self, prompt: tuple[int, ...]) -> tuple[float, ...]:
        """Mean of the last hidden states over the prompt, to norm 1."""
        model = self.loaded.model
        ids = torch.tensor([prompt], device=model.device)
        hidden = model.get_decoder()(ids, use_cache=False).last_hidden_state[0].float()
        vector = torch.nn.functional.normalize(hidden.mean(0), dim=0)
        return tuple(vector.tolist())
