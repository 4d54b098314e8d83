"""Waves move edits together and change nothing else."""

from __future__ import annotations

import itertools

from testbed.corpora.load import load
from testbed.workloads.bulk import Waves
from testbed.workloads.stream import Stream

STREAM = Stream(edits=("*",), max_edits=10)


def test_edits_come_in_as_many_waves_as_asked_for() -> None:
    ops = Waves(STREAM, n_waves=3).ops(load("ledger"), 1, 60)
    verbs = "".join({"upsert": "U", "ask": "a", "load": "L"}[op.do] for op in ops)
    assert [len(w) for w in verbs.replace("L", "").replace("a", " ").split()] == [3, 4, 3]
    assert verbs.startswith("La") and verbs.endswith("a")


def test_nothing_is_lost_or_reordered_among_edits_and_among_asks() -> None:
    corpus = load("ledger")
    plain, waves = STREAM.ops(corpus, 1, 60), Waves(STREAM, n_waves=3).ops(corpus, 1, 60)
    for verb in ("ask", "upsert", "load"):
        assert [op.item for op in waves if op.do == verb] == [op.item for op in plain if op.do == verb]
    assert [op.index for op in waves] == list(range(len(waves)))
    assert all(a.at_s < b.at_s for a, b in itertools.pairwise(waves))


def test_a_stream_without_edits_stays_as_it_is() -> None:
    corpus = load("ledger")
    assert Waves(Stream(), n_waves=3).ops(corpus, 1, 20) == Stream().ops(corpus, 1, 20)
