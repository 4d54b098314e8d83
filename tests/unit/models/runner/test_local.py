from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.core.errors import HarnessError, InvalidInput
from testbed.core.ports import Passage
from testbed.models.llm import LlmReader
from testbed.models.runner import weak_keys, weights
from testbed.models.runner.engine import Engine, Stopping
from testbed.models.runner.local import LocalModel
from testbed.models.runner.policy import Policy
from testbed.models.runner.prefix import PrefixCache

pytestmark = pytest.mark.models


@pytest.fixture
def local() -> Iterator[LocalModel]:
    model = LocalModel(Engine(weights.load("tiny"), prefix_cache=PrefixCache(2**24, block=16)))
    yield model
    model.close()


def test_the_reader_in_this_process_answers_the_same_twice_and_the_second_time_from_the_prefix(
    local: LocalModel,
) -> None:
    reader = LlmReader(local, name="tiny", max_tokens=12)
    passages = [Passage("a", 1, "The refund window is 30 days."), Passage("b", 3, "Shipping takes a week.")]
    first, again = (reader.read("How long is the refund window?", passages, {}) for _ in range(2))
    assert first == again
    assert local.engine.metrics.value("prefix_cache_requests_total", result="hit") == 1


def test_one_tenant_cannot_tell_what_another_asked_unless_the_key_is_weakened(local: LocalModel) -> None:
    text = "a question with a secret in it that is long enough for two blocks"
    local.salt = "a"
    local.complete(text, max_tokens=2)
    local.salt = "b"
    assert local.complete(text, max_tokens=2).n_cached == 0
    prefix = local.engine.prefix
    assert prefix is not None
    prefix.clear()
    prefix.keys, prefix.checks_hits = weak_keys.NoSalt(), False
    local.salt = "a"
    local.complete(text, max_tokens=2)
    local.salt = "b"
    assert local.complete(text, max_tokens=2).n_cached == 64


def test_what_cannot_be_served_is_said(local: LocalModel) -> None:
    with pytest.raises(InvalidInput, match="exceed 8192"):
        local.complete("x" * 9000)
    local.adapter = "nobody"
    with pytest.raises(InvalidInput, match="not loaded"):
        local.complete("x")
    local.adapter = ""
    assert local.complete("x", max_tokens=1).n_completion == 1
    local.close()
    with pytest.raises(Stopping):
        local.complete("x")


def test_a_prefix_cache_of_pruned_blocks_is_refused() -> None:
    with pytest.raises(HarnessError, match="no prefix"):
        Engine(weights.load("tiny"), strategy="sliding", policy=Policy(), prefix_cache=PrefixCache(1))
