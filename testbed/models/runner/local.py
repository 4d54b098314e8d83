"""The runner inside this process: what ``LlmClient`` does over HTTP, without a server."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from testbed.core.errors import HarnessError, InvalidInput
from testbed.models.llm import Completion
from testbed.models.runner.engine import Engine, Job, Result
from testbed.models.runner.generate import Sampling


class LocalModel:
    """Completions of one engine. ``LlmReader(LocalModel(engine), name=...)`` is a reader that runs here.

    ``salt`` and ``adapter`` go with every request and may be set between two of them. The engine's ``prefix`` is the
    layer between requests that a fault may weaken and a fix may mend.
    """

    def __init__(self, engine: Engine, *, salt: str = "", adapter: str = "") -> None:
        self.engine = engine
        self.salt = salt
        self.adapter = adapter

    def complete(self, prompt: str, *, max_tokens: int = 64, stop: Sequence[str] = (), seed: int = 0) -> Completion:
        """Greedy, as over HTTP; InvalidInput when prompt and answer do not fit the model's context."""
        loaded = self.engine.loaded
        ids = tuple(loaded.tokenizer.encode(prompt))
        if len(ids) + max_tokens > loaded.max_tokens:
            raise InvalidInput(f"{len(ids)} prompt tokens and {max_tokens} more exceed {loaded.max_tokens} tokens")
        results: queue.SimpleQueue[Result | HarnessError] = queue.SimpleQueue()
        sampling = Sampling(max_tokens, seed=seed, stop=tuple(stop))
        self.engine.submit(Job(ids, sampling, results.put, self.salt, self.adapter))
        text = ""
        while True:
            result = results.get()
            if isinstance(result, HarnessError):
                raise result
            text += result.text
            if result.finish:
                return Completion(text, result.finish, result.n_prompt, result.n_completion, result.n_cached)

    def close(self) -> None:
        self.engine.stop()
