"""The published second level, by example: what it merges rightly and what wrongly."""

from __future__ import annotations

import pytest

from testbed.caches.memory import MemoryCache
from testbed.caches.normal_form import ClusterCache, normal_form, stem
from testbed.core.errors import InvalidInput
from testbed.core.types import Key


def key(text, tenant="a"):
    return Key.of(text=text, tenant=tenant)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("buy a phone", "Purchase a phone!"),
        ("book a flight", "buy an airline ticket"),
        ("What are shipping costs?", "What is the shipping cost?"),
    ],
)
def test_the_published_examples_converge(one, other):
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Which plans include support?", "Which plans do not include support?"),
        ("Can a manager overrule an auditor?", "Can an auditor overrule a manager?"),
        ("What did it price?", "What does it price?"),
        ("Are all documents encrypted?", "Are some documents encrypted?"),
    ],
)
def test_so_do_questions_with_other_answers(one, other):
    assert normal_form(one) == normal_form(other)


def test_numbers_are_kept():
    assert normal_form("version 2.1") != normal_form("version 2.2")
    assert (stem("21"), stem("bed"), stem("shipped"), stem("invoices")) == ("21", "bed", "shipp", "invoic")


def test_a_cluster_shares_one_entry_and_is_forgotten_as_one():
    cache = ClusterCache(MemoryCache())
    cache.put(key("buy a phone"), 1)
    cache.put(key("purchase a phone"), 2)
    assert cache.get(key("order the phone")) == 2
    assert cache.cluster(key("buy a phone")) == ("buy a phone", "purchase a phone")
    assert cache.get(key("buy a phone", tenant="b")) is None
    cache.delete(key("acquire phone"))
    assert cache.get(key("buy a phone")) is None and cache.cluster(key("buy a phone")) == ()


def test_a_batched_put_is_not_there_before_the_merge_and_hides_the_older_value():
    cache = ClusterCache(MemoryCache(), batch=2)
    cache.put(key("buy a phone"), 1)
    assert cache.get(key("buy a phone")) is None
    cache.flush()
    cache.put(key("purchase a phone"), 2)
    assert cache.get(key("buy a phone")) is None
    cache.put(key("unrelated"), 3)
    assert cache.get(key("buy a phone")) == 2


def test_a_deleted_text_does_not_come_back_with_its_batch():
    cache = ClusterCache(MemoryCache(), batch=9)
    cache.put(key("buy a phone"), 1)
    cache.delete(key("purchase a phone"))
    cache.flush()
    assert cache.get(key("buy a phone")) is None


def test_a_cluster_is_bounded_and_a_fresh_cache_is_empty():
    cache = ClusterCache(MemoryCache(), most=2)
    for text in ("buy phone", "buy a phone", "buy the phone"):
        cache.put(key(text), text)
    assert cache.cluster(key("buy phone")) == ("buy the phone",)
    assert cache.fresh().get(key("buy phone")) is None
    with pytest.raises(InvalidInput):
        ClusterCache(MemoryCache(), most=0)
