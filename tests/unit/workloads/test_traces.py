"""Readers of public traces: their forms by small files, their row counts by the files themselves where they are."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.workloads import traces

DATA = Path(os.environ.get("TESTBED_SHARED_DATA", Path(__file__).parents[3] / "../shared/data"))


def test_key_traces_are_read_in_order(tmp_path):
    (tmp_path / "web07.csv").write_text("seq,key\n0,7\n1,9\n2,7\n")
    (tmp_path / "ps.csv").write_text("seq,key\n0,1\n")
    assert traces.cache2k_web(tmp_path) == [7, 9, 7]
    assert traces.lirs(tmp_path, "ps") == [1]


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"web07\.csv"):
        traces.cache2k_web(tmp_path)
    (tmp_path / "web07.csv").write_text("seq,id\n0,7\n")
    with pytest.raises(InvalidInput, match="key"):
        traces.cache2k_web(tmp_path)
    with pytest.raises(InvalidInput, match="loop"):
        traces.lirs(tmp_path, "lop")


def test_llm_requests_have_seconds_and_prefix_blocks(tmp_path):
    (tmp_path / "trace.jsonl").write_text(
        '{"timestamp": 1500, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
        '{"timestamp": 2000, "input_length": 10, "output_length": 6, "hash_ids": [0]}\n'
    )
    requests = traces.mooncake(tmp_path)
    assert requests[0] == traces.LlmRequest(1.5, 600, 5, (0, 1))
    assert traces.prefix_blocks(requests) == [0, 1, 0]


def test_changes_and_questions_of_a_knowledge_base(tmp_path):
    (tmp_path / "events.csv").write_text(
        "unix_time,doc_id,cycle,field,old,new,query_id,commit\n5,d,1.15,latest,1.0,1.1,,c\n"
    )
    (tmp_path / "queries.jsonl").write_text(
        '{"query_id": "q", "doc_id": "d", "question": "?", "paraphrases": ["!"],'
        ' "answers": {"2023": ["1", "one"], "2024": null}}\n'
    )
    assert traces.eol_updates(tmp_path) == [traces.FactChange(5, "d", "1.15", "latest", "1.0", "1.1", "")]
    (question,) = traces.eol_versions(tmp_path)
    assert question.answers == {"2023": ("1", "one"), "2024": None} and question.paraphrases == ("!",)


@pytest.mark.shared_data
@pytest.mark.skipif(not DATA.is_dir(), reason="the public traces are not there (TESTBED_SHARED_DATA)")
def test_the_public_files_have_the_rows_they_are_said_to_have():
    keys = traces.cache2k_web(DATA / "cache2k_web")
    assert (len(keys), len(set(keys))) == (76118, 20484)
    multi2 = traces.lirs(DATA / "lirs_traces", "multi2")
    assert (len(multi2), len(set(multi2))) == (26311, 5684)
    requests = traces.mooncake(DATA / "mooncake_conversation")
    assert len(requests) == 11500 and all(a.at_s <= b.at_s for a, b in itertools.pairwise(requests))
    changes = traces.eol_updates(DATA / "eol_updates")
    assert len(changes) == 5191 and all(a.at_s <= b.at_s for a, b in itertools.pairwise(changes))
    assert len(traces.eol_versions(DATA / "eol_versions")) == 441
