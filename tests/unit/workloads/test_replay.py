from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.core.types import Doc, Query, Revision, Upgrade
from testbed.corpora.answers import AnswerCorpus, answer_corpus
from testbed.workloads.replay import Replay

LATER = Doc("a", "A, later.", version=2)


def corpus() -> AnswerCorpus:
    queries = [Query("q1", "One?"), Query("q2", "Two?")]
    return answer_corpus(
        "x", [Doc("a", "A.")], queries, {"q1": {"a": 1}}, {}, subjects={"q1": "s1", "q2": "s2"},
        revisions=(Revision(LATER, "value"),),
    )  # fmt: skip


def log(tmp_path: Path, text: str, name: str = "log.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_log_of_query_ids_is_replayed_in_order(tmp_path: Path) -> None:
    ops = Replay(log(tmp_path, "query\nq2\n\nq1\nq2\n"), gap_s=2.0).ops(corpus(), 1, 10)
    assert [(op.index, op.at_s, op.do) for op in ops] == [(0, 0.0, "load"), *((i, 2.0 * i, "ask") for i in (1, 2, 3))]
    assert [op.item.id for op in ops[1:] if isinstance(op.item, Query)] == ["q2", "q1", "q2"]


def test_csv_and_jsonl_give_the_same_ops(tmp_path: Path) -> None:
    rows = [
        {"do": "ask", "query": "q1", "session": "t-1", "prompt": "brief", "at_s": 5},
        {"do": "upsert", "doc": "a", "version": 2, "at_s": 5.5},
        {"do": "upgrade", "encoder": "lsa"},
        {"query": "q2"},
        {"do": "delete", "doc": "a"},
    ]
    lines = (
        "do,query,doc,version,encoder,session,prompt,at_s\n"
        "ask,q1,,,,t-1,brief,5\nupsert,,a,2,,,,5.5\nupgrade,,,,lsa,,,\n,q2,,,,,,\ndelete,,a,,,,,\n"
    )
    one = Replay(log(tmp_path, lines)).ops(corpus(), 1, 10)
    two = Replay(log(tmp_path, "".join(json.dumps(r) + "\n" for r in rows), "log.jsonl")).ops(corpus(), 2, 10)
    assert one == two
    assert [(op.at_s, op.do) for op in one[1:]] == [
        (5.0, "ask"), (5.5, "upsert"), (6.5, "upgrade"), (7.5, "ask"), (8.5, "delete"),
    ]  # fmt: skip
    assert one[1].item == Query("q1", "One?", "", "t-1", "brief")
    assert (one[2].item, one[3].item) == (LATER, Upgrade("lsa"))


def test_a_log_is_cut_after_the_last_ask_wanted(tmp_path: Path) -> None:
    ops = Replay(log(tmp_path, "query\nq2\nq1\nno-such\n")).ops(corpus(), 1, 2)
    assert len(ops) == 3


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("query\nq1\nq9\n", "l.csv", "l.csv:3: query='q9' is not a question"),
        ("name\nq1\n", "l.csv", "l.csv:1: expected a header"),
        ("query,at_s\nq1,5\nq1,4\n", "l.csv", "l.csv:3: at_s='4' must be a number >= 5.0"),
        ("query,at_s\nq1,nan\n", "l.csv", "at_s='nan'"),
        ("query,at_s\nq1,inf\n", "l.csv", "at_s='inf'"),
        ("query,at_s\nq1,soon\n", "l.csv", "at_s='soon'"),
        ("query,at_s\nq1\n", "l.csv", "l.csv:2: expected 2 cells"),
        ("query\nq1,3\n", "l.csv", "l.csv:2: expected 1 cells"),
        ("do,doc,version\nupsert,a,3\n", "l.csv", "doc='a' version='3' is not in the data set"),
        ("do,doc,version\nupsert,a,x\n", "l.csv", "version='x'"),
        ("do,doc\ndelete,z\n", "l.csv", "doc='z' is not in the data set"),
        ("do,query\nshout,q1\n", "l.csv", "do='shout' must be ask"),
        ("do,encoder\nupgrade,\n", "l.csv", "do='upgrade' must be"),
        ("do,doc\ndelete,a\n", "l.csv", "holds no asks"),
        ("", "l.csv", "holds no asks"),
        ('{"query": "q1"}\n{oops\n', "l.jsonl", "l.jsonl:2: not a JSON object"),
        ("[]\n", "l.jsonl", "l.jsonl:1: not a JSON object"),
        ('{"query": null}\n', "l.jsonl", "query='' is not a question"),
    ],
)
def test_a_wrong_row_is_one_line_with_its_place(text: str, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        Replay(log(tmp_path, text, name)).ops(corpus(), 1, 10)


def test_a_log_that_is_not_there_or_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        Replay(tmp_path / "none.csv").ops(corpus(), 1, 10)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="not a UTF-8 text file"):
        Replay(tmp_path / "b.csv").ops(corpus(), 1, 10)
