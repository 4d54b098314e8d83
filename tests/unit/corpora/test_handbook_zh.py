from __future__ import annotations

from testbed.core.types import Gold
from testbed.corpora.handbook_zh import ENTITIES, SETTINGS, build_handbook_zh
from testbed.corpora.load import load


def test_the_same_handbook_every_time() -> None:
    corpus = build_handbook_zh()
    assert corpus.digest == load("handbook-zh").digest == build_handbook_zh().digest
    assert corpus.digest == "547e454eba0100bc6588e0a55390e3f8529f6a7ddc93496e0975260647a60e94"


def test_each_question_names_the_service_and_the_setting_of_its_page() -> None:
    corpus = build_handbook_zh()
    texts = {d.id: d.text for d in corpus.docs}
    assert len(corpus.queries) == 360 and len(texts) == 122 == len(set(texts.values()))
    versions = dict.fromkeys(texts, 1)
    for query in corpus.queries:
        gold: Gold = corpus.gold(0, query, versions)
        (page,) = gold.relevant
        named = [name for name in (*ENTITIES, *SETTINGS) if name in query.text]
        assert len(named) == 2 and all(name in texts[page] for name in named)
