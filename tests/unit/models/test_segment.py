"""Two versions of a segmenter: each finds its own documents, and the mix does not."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from testbed.core.errors import Unavailable
from testbed.corpora.handbook_zh import build_handbook_zh
from testbed.models import segment
from testbed.models.segment import SegmentedLsa, terms_in

CORPUS = build_handbook_zh()
TEXTS = [d.text for d in CORPUS.docs]


@lru_cache
def encoder(user_dict: bool) -> SegmentedLsa:
    pytest.importorskip("jieba", reason="needs jieba; install the extra 'chinese'")
    pytest.importorskip("sklearn", reason="needs scikit-learn; install the extra 'models'")
    return SegmentedLsa(TEXTS, user_dict=user_dict, name="zh")


def found_first(index: SegmentedLsa, asks: SegmentedLsa) -> float:
    """Share of questions that find their page first."""
    documents = index.encode(TEXTS, "document")
    ids = [d.id for d in CORPUS.docs]
    best = (asks.encode([q.text for q in CORPUS.queries], "query") @ documents.T).argmax(axis=1)
    return float(np.mean([ids[b] in CORPUS.relevant[q.id] for b, q in zip(best, CORPUS.queries, strict=True)]))


def test_terms_are_what_the_texts_quote() -> None:
    assert terms_in(["「支付网关」、「备份周期」。", "没有"]) == ("备份周期", "支付网关")


def test_each_version_is_good_and_the_mix_is_not() -> None:
    plain, user = encoder(False), encoder(True)
    assert found_first(plain, plain) > 0.8 and found_first(user, user) > 0.8
    assert found_first(plain, user) < 0.3 and found_first(user, plain) < 0.3


def test_the_versions_share_a_name_and_not_a_fingerprint() -> None:
    plain, user = encoder(False), encoder(True)
    assert plain.name == user.name and plain.fingerprint != user.fingerprint and plain.dim == user.dim
    assert plain.tokenizer != user.tokenizer


def test_without_the_segmenter_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    segment._jieba.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "jieba", None)
    with pytest.raises(Unavailable, match="rag-testbed\\[chinese\\]"):
        SegmentedLsa(TEXTS, user_dict=True, name="lsa-jieba-user")
    segment._jieba.cache_clear()
