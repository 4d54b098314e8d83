from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import BrokenContract, InvalidInput, Unavailable
from testbed.core.types import Query
from testbed.corpora import load as loading
from testbed.corpora import rows
from testbed.corpora.answers import AnswerCorpus
from testbed.corpora.beir import write_beir
from testbed.corpora.ledger import build_ledger
from testbed.corpora.lifecycle import build_lifecycle
from testbed.corpora.load import load

Rows = list[dict[str, Any]]
Write = Callable[..., Path]


def jsonl(found: Rows | list[str]) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in found)


BEIR: dict[str, str] = {
    "corpus.jsonl": jsonl([
        {"_id": "d1", "title": "Heron", "text": "Waits 30 s.",
         "metadata": {"tenant": "a", "kind": "record", "refs": ["d2"]}},
        {"_id": "d2", "title": "", "text": "Seconds.", "metadata": {"tenant": "a"}},
    ]),
    "queries.jsonl": jsonl([
        {"_id": "q1", "text": "How long?", "metadata": {"tenant": "a", "answers": ["30 s"]}},
        {"_id": "q2", "text": "Not judged?"},
    ]),
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n",
}  # fmt: skip
FLAT: dict[str, str] = {
    "corpus.jsonl": jsonl([
        {"doc_id": "d1", "title": "Oslo", "text": "It lies in Norway."},
        {"doc_id": "d2", "title": "Lima", "text": "Lima lies in Peru."},
    ]),
    "queries.jsonl": jsonl([
        {"query_id": "q1", "question": "Where is Lima?", "answers": [["Peru", "in Peru"], "Peru"]},
    ]),
    "qrels.tsv": "query_id\tdoc_id\trelevance\nq1\td2\t1\n",
}  # fmt: skip
TENANTS: dict[str, str] = {
    "documents.jsonl": jsonl([
        {"tenant": "go", "doc_id": "go#0", "title": "Go",
         "text": "# Go\n\nPage state of 2026-07-01.\n\nGo 1.8 and 18."},
        {"tenant": "go", "doc_id": "go#1", "title": "Go", "text": "Latest: 8."},
        {"tenant": "qt", "doc_id": "qt#0", "title": "Qt", "text": "Qt 6.1 is out."},
    ]),
    "queries.jsonl": jsonl([
        {"query_id": "q1", "tenant": "go", "question": "Newest?", "answer": "8", "stale_answer": None, "unique": True},
        {"query_id": "q2", "tenant": "qt", "question": "Newest?", "answer": "6.1", "unique": True},
        {"query_id": "q3", "tenant": "qt", "question": "Where?", "answer": "nowhere", "unique": True},
    ]),
}  # fmt: skip
PAGE = "# Go\n\nPage state of {day}.\n\n> A language.\n\n## Policy\n\n{policy}\n\n## Releases\n\n- Go {line} is out.\n"
VERSIONS: dict[str, str] = {
    "documents.jsonl": jsonl([
        {"doc_id": "go", "version": "2024-01-01", "title": "Go",
         "text": PAGE.format(day="2024-01-01", policy="Two lines.", line="1.2")},
        {"doc_id": "go", "version": "2025-01-01", "title": "Go",
         "text": PAGE.format(day="2025-01-01", policy="Two lines.", line="1.20")},
        {"doc_id": "go", "version": "2026-01-01", "title": "Go",
         "text": PAGE.format(day="2026-01-01", policy="", line="1.21")},
    ]),
    "queries.jsonl": jsonl([
        {"query_id": "q1", "doc_id": "go", "question": "Newest line of Go?", "paraphrases": ["Go: newest?"],
         "answers": {"2024-01-01": ["1.2"], "2025-01-01": ["1.20", "Go 1.20"], "2026-01-01": ["1.21"]}},
        {"query_id": "q2", "doc_id": "go", "question": "How many lines?", "paraphrases": [],
         "answers": {"2024-01-01": ["Two lines"], "2025-01-01": ["Two lines"], "2026-01-01": None}},
        {"query_id": "q3", "doc_id": "go", "question": "When is 1.21 out?", "paraphrases": [],
         "answers": {"2024-01-01": None, "2025-01-01": None, "2026-01-01": ["1.21"]}},
    ]),
}  # fmt: skip


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def writing(files: dict[str, str], **changed: str | None) -> Path:
        folder = tmp_path / "data-set"
        for name, content in {
            **files,
            **{k.replace("__", "/").replace("_", "."): v for k, v in changed.items()},
        }.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(content, encoding="utf-8")
        return folder

    return writing


def versions(corpus: AnswerCorpus) -> dict[str, int]:
    return {d.id: d.version for d in corpus.docs}


# --- by name


@pytest.mark.parametrize("name", ["ledger", "lifecycle", "twins"])
def test_a_generated_set_is_what_its_checksums_say(name: str) -> None:
    assert (loading.DATASETS / name / "SHA256SUMS").is_file()
    assert load(name).name == name


def test_a_generated_set_that_differs_from_its_checksums_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ledger").mkdir()
    listed = (loading.DATASETS / "ledger" / "SHA256SUMS").read_text().splitlines()
    listed[0] = "0" * 64 + listed[0][64:]
    (tmp_path / "ledger" / "SHA256SUMS").write_text("\n".join(listed[:-1]))
    monkeypatch.setattr(loading, "DATASETS", tmp_path)
    with pytest.raises(
        BrokenContract, match=r"corpus.jsonl is \w+\.\.\., expected 0{12}.*revisions.jsonl is not listed"
    ):
        load("ledger")


@pytest.mark.parametrize("corpus", [build_ledger(7, n_tenants=2), build_lifecycle()], ids=lambda c: c.name)
def test_a_ledger_survives_the_way_to_files_and_back(corpus: Any, tmp_path: Path) -> None:
    write_beir(corpus, tmp_path / "out")
    assert load(str(tmp_path / "out")) == corpus


def test_a_changed_file_is_told_by_the_checksums_beside_it(tmp_path: Path) -> None:
    write_beir(build_ledger(7, n_tenants=1), tmp_path)
    path = tmp_path / "queries.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(InvalidInput, match=r"differs from its SHA256SUMS: queries.jsonl is \w{12}"):
        load(str(tmp_path))
    path.unlink()
    with pytest.raises(InvalidInput, match=r"queries\.jsonl is missing"):
        load(str(tmp_path))


def test_checksums_reach_no_file_outside_of_the_folder(write: Write) -> None:
    folder = write(FLAT)
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  ../../secret\n")
    with pytest.raises(InvalidInput, match="outside of the folder"):
        load(str(folder))


def test_a_life_cycle_set_without_its_facts_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="run from a checkout"):
        build_lifecycle(tmp_path / "lines.csv")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ledgr", "unknown data set 'ledgr'; did you mean 'ledger'?"),
        ("./nowhere", "DATASET='./nowhere' does not exist"),
        ("~nobody-at-all/x", "does not exist"),
        ("", "neither a name nor a path"),
        ("a\0b", "neither a name nor a path"),
        ("a\nb", "neither a name nor a path"),
        ("x" * 5000, "unknown data set"),
        ("./" + "x" * 5000, "does not exist"),
        ("../" * 3000, "does not exist"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line(spec: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message.replace("?", r"\?")) as caught:
        load(spec)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("{}")
    with pytest.raises(InvalidInput, match="is a file; give the folder"):
        load(str(path))


def test_a_folder_without_data_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"neither corpus.jsonl .* nor documents.jsonl"):
        load(str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_one_line(write: Write) -> None:
    folder = write(FLAT)
    folder.chmod(0)
    try:
        with pytest.raises(InvalidInput, match="permission denied"):
            load(str(folder))
    finally:
        folder.chmod(0o755)


# --- forms


def test_beir(write: Write) -> None:
    corpus = load(str(write(BEIR)))
    assert corpus.name == "data-set"
    assert [(d.id, d.text, d.tenant, d.kind, d.refs) for d in corpus.docs] == [
        ("d1", "Heron\nWaits 30 s.", "a", "record", ("d2",)),
        ("d2", "Seconds.", "a", "", ()),
    ]
    assert corpus.queries == (Query("q1", "How long?", "a"),)  # q2 is not judged
    gold = corpus.gold(4, corpus.queries[0], {"d1": 1, "d2": 1})
    assert (gold.op, gold.relevant, gold.accept, gold.claim) == (4, {"d1": 1}, ("30 s",), None)
    assert gold.subject == corpus.subjects["q1"] != ""
    assert (corpus.lexicon, dict(corpus.canaries), corpus.revisions) == (None, {}, ())


def test_beir_with_revisions_and_answers_by_version(write: Write) -> None:
    later = {"_id": "d1", "text": "Waits 45 s.", "metadata": {"tenant": "a", "version": 3, "drift": "unit"}}
    asked = {"_id": "q1", "text": "How long?", "metadata": {"answers": {"1": ["30 s"], "3": ["45 s"]}}}
    corpus = load(str(write(BEIR, revisions_jsonl=jsonl([later]), queries_jsonl=jsonl([asked]))))
    assert [(r.doc.id, r.doc.version, r.drift) for r in corpus.revisions] == [("d1", 3, "unit")]
    accepted = [corpus.gold(0, corpus.queries[0], {"d1": v}).accept for v in (1, 2, 3)]
    assert accepted == [("30 s",), ("30 s",), ("45 s",)]
    gone = corpus.gold(0, corpus.queries[0], {"d2": 1})
    assert (gone.relevant, gone.accept) == ({}, ())


def test_flat(write: Write) -> None:
    corpus = load(str(write(FLAT)))
    assert [d.text for d in corpus.docs] == ["Oslo\nIt lies in Norway.", "Lima lies in Peru."]
    gold = corpus.gold(0, corpus.queries[0], {"d1": 1, "d2": 1})
    assert (gold.relevant, gold.accept, gold.tenant) == ({"d2": 1}, ("Peru", "in Peru"), "")


def test_one_answer_need_not_be_a_list(write: Write) -> None:
    corpus = load(str(write(FLAT, queries_jsonl='{"query_id": "q1", "question": "x", "answers": "Peru"}')))
    assert corpus.gold(0, corpus.queries[0], {"d2": 1}).accept == ("Peru",)


def test_tenants(write: Write) -> None:
    corpus = load(str(write(TENANTS)))
    assert [d.text for d in corpus.docs] == ["# Go\n\nGo 1.8 and 18.", "Go\nLatest: 8.", "Qt 6.1 is out."]
    assert [q.id for q in corpus.queries] == ["q1", "q2"]  # nothing says q3
    gold = corpus.gold(0, corpus.queries[0], {d.id: 1 for d in corpus.docs})
    assert (gold.relevant, gold.accept, gold.tenant) == ({"go#1": 1}, ("8",), "go")
    assert corpus.subjects["q1"] == corpus.subjects["q2"]  # word-identical
    assert dict(corpus.canaries) == {}


def test_versions(write: Write) -> None:
    corpus = load(str(write(VERSIONS)))
    assert [(d.id, d.text) for d in corpus.docs] == [
        ("go#policy", "Go: Policy\nTwo lines."),
        ("go#releases", "Go: Releases\n- Go 1.2 is out."),
        ("go#top", "Go\n> A language."),
    ]
    assert [(r.doc.id, r.doc.version, r.drift) for r in corpus.revisions] == [
        ("go#releases", 2, "value"), ("go#policy", 3, "removed"), ("go#releases", 3, "value"),
    ]  # fmt: skip
    assert [q.id for q in corpus.queries] == ["q1-q0", "q1-q1", "q2-q0"]  # nothing answers q3 at first
    assert corpus.subjects["q1-q0"] == corpus.subjects["q1-q1"] != corpus.subjects["q2-q0"]
    assert corpus.topics == {"q1-q0": "value", "q1-q1": "value", "q2-q0": "value"}
    now = {d.id: 1 for d in corpus.docs}
    query = corpus.queries[0]
    assert corpus.gold(0, query, now).accept == ("1.2",)
    assert corpus.gold(0, query, now | {"go#releases": 2}).accept == ("1.20", "Go 1.20")
    assert corpus.gold(0, query, now | {"go#releases": 3}).accept == ("1.21",)
    assert corpus.gold(0, query, now).relevant == {"go#releases": 1}
    assert corpus.gold(0, corpus.queries[2], {"go#releases": 3}).relevant == {}


def test_a_question_of_another_set_is_refused(write: Write) -> None:
    corpus = load(str(write(FLAT)))
    with pytest.raises(InvalidInput, match="'other' is not a question"):
        corpus.gold(0, Query("other", "?"), {})


@pytest.mark.parametrize("files", [BEIR, FLAT, TENANTS, VERSIONS], ids=["beir", "flat", "tenants", "versions"])
def test_the_order_of_rows_and_the_place_of_the_folder_do_not_count(
    files: dict[str, str], write: Write, tmp_path: Path
) -> None:
    one = load(str(write(files)))
    turned = tmp_path / "elsewhere"
    for name, content in files.items():
        lines = content.splitlines(keepends=True)
        head, rest = (lines[:1], lines[1:]) if name.endswith(".tsv") else ([], lines)
        (turned / name).parent.mkdir(parents=True, exist_ok=True)
        (turned / name).write_text("".join(head + rest[::-1]))
    assert load(str(turned)).digest == one.digest
    (turned / "queries.jsonl").write_text(files["queries.jsonl"].replace("?", "!", 1))
    assert load(str(turned)).digest != one.digest


# --- what can be wrong with a file

BAD = [
    (BEIR, {"qrels__test_tsv": None}, "qrels/test.tsv is missing; relevance is needed"),
    (BEIR, {"queries_jsonl": None}, "queries.jsonl is missing"),
    (BEIR, {"corpus_jsonl": ""}, "corpus.jsonl holds no rows"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "x"}\n{oops\n'}, r"corpus.jsonl:2: not a JSON object \(Expecting"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "x"}\n\n[1]\n'},
     "corpus.jsonl:3: expected a JSON object, found a list"),
    (BEIR, {"corpus_jsonl": '{"_id": 7, "text": "x"}\n'},
     "corpus.jsonl:1: field '_id' must be a string, found a number"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": null}\n'}, r"field 'text' is missing \(null\)"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "body": "x"}\n'}, r"field 'text' is missing \(fields: _id, body\)"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": " \\n"}\n'}, "corpus.jsonl:1: field 'text' is empty"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "a\\u0000b"}\n'}, "NUL character in field 'text'"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "a\0b"}\n'}, "corpus.jsonl:1: NUL character in the line"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "\\ud800"}\n'}, "half a surrogate pair"),
    (BEIR, {"corpus_jsonl": '{"_id": "d 1", "text": "x"}\n'}, "_id='d 1' must hold no blanks"),
    (BEIR, {"corpus_jsonl": '{"_id": "d\\u001b[1m", "text": "x"}\n'}, "must hold no blanks or control characters"),
    (BEIR, {"corpus_jsonl": json.dumps({"_id": "d" * 600, "text": "x"})}, "_id has 600 characters"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "x", "metadata": 3}\n'}, "field 'metadata' must be an object"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "x", "metadata": {"version": "2"}}\n'}, "'version' must be a whole"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "x", "metadata": {"version": true}}\n'}, "found true or false"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "x", "metadata": {"refs": [1]}}\n'}, "must be a list of strings"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "x", "metadata": {"refs": ["d9"]}}\n'}, "refers to 'd9'"),
    (BEIR, {"corpus_jsonl": '{"_id": "d1", "text": "x"}\n{"_id": "d1", "text": "y"}\n'},
     "corpus.jsonl:2: .*occurs twice"),
    (BEIR, {"corpus_jsonl": "[" * 100_000}, "not a JSON object"),
    (BEIR, {"corpus_jsonl": '{"title": "x", "text": "y"}\n'}, "expected a field '_id'"),
    (BEIR, {"queries_jsonl": '{"_id": "q1", "text": "x"}\n{"_id": "q1", "text": "y"}\n'},
     "queries.jsonl:2: .*occurs twice"),
    (BEIR, {"queries_jsonl": '{"_id": "q1", "text": "x", "metadata": {"answers": {"v": []}}}\n'},
     "by document version"),
    (BEIR, {"qrels__test_tsv": "h\tc\ts\nq9\td1\t1\n"}, "test.tsv:2: query id 'q9' is not in the queries file"),
    (BEIR, {"qrels__test_tsv": "h\tc\ts\nq1\td9\t1\n"}, "test.tsv:2: document id 'd9' is not in the corpus file"),
    (BEIR, {"qrels__test_tsv": "h\tc\ts\nq1\td1\tx\n"}, "relevance='x' must be a whole number"),
    (BEIR, {"qrels__test_tsv": "h\tc\ts\nq1\td1\t-1\n"}, "relevance='-1' must be a whole number"),
    (BEIR, {"qrels__test_tsv": "h\tc\ts\nq1 d1 1\n"}, "expected 3 tab-separated columns, found 1"),
    (BEIR, {"qrels__test_tsv": "h\tc\ts\nq1\td1\t1\nq1\td1\t1\n"}, "test.tsv:3: .*occur twice"),
    (BEIR, {"qrels__test_tsv": "h\tc\ts\nq1\td1\t0\n"}, "no row with a relevance >= 1"),
    (BEIR, {"qrels__test_tsv": ""}, "no row with a relevance >= 1"),
    (BEIR, {"revisions_jsonl": '{"_id": "d9", "text": "x"}\n'}, "revision of 'd9', which is not in corpus.jsonl"),
    (BEIR, {"revisions_jsonl": '{"_id": "d1", "text": "x"}\n'}, "version=1 of 'd1' must be > 1"),
    (BEIR, {"ledger_json": "{}"}, "field 'name' is missing"),
    (BEIR, {"ledger_json": "[1"}, "ledger.json is not a JSON object"),
    (BEIR, {"ledger_json": '{"name": "x"}'}, "query 'q1' is answered by 'd1', which states no fact"),
    (FLAT, {"qrels_tsv": None}, "qrels.tsv is missing"),
    (FLAT, {"queries_jsonl": '{"query_id": "q1", "question": 3}\n'}, "field 'question' must be a string"),
    (FLAT, {"queries_jsonl": '{"query_id": "q1", "question": "x", "answers": [{}]}\n'}, "found an object in it"),
    (TENANTS, {"documents_jsonl": '{"doc_id": "d", "text": "x"}\n'}, "expected a field 'tenant' or 'version'"),
    (TENANTS, {"queries_jsonl": '{"query_id": "q", "tenant": "zz", "question": "x", "answer": "y"}\n'},
     "'zz' has no doc"),
    (TENANTS, {"queries_jsonl": '{"query_id": "q", "tenant": "go", "question": "x", "answer": "y"}\n'},
     "no answer occurs"),
    (VERSIONS, {"queries_jsonl": '{"query_id": "q", "doc_id": "zz", "question": "x"}\n'}, "doc_id='zz' is not in"),
    (VERSIONS, {"queries_jsonl": '{"query_id": "q", "doc_id": "go", "question": "x", "answers": {"1999": ["1"]}}\n'},
     "answers for version '1999', which no document has"),
    (VERSIONS, {"queries_jsonl": '{"query_id": "q", "doc_id": "go", "question": "x"}\n'},
     "no answer occurs in its page"),
    (VERSIONS, {"documents_jsonl": '{"doc_id": "a#b", "version": "1", "text": "x"}\n'}, "must hold no '#'"),
    (VERSIONS, {"documents_jsonl": 2 * '{"doc_id": "a", "version": "1", "text": "x"}\n'}, "has version '1' twice"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "changed", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_a_wrong_file_is_one_line_with_its_place(
    files: dict[str, str], changed: dict[str, str | None], message: str, write: Write
) -> None:
    folder = write(files, **changed)
    with pytest.raises(InvalidInput, match=message) as caught:
        load(str(folder))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_one_line(write: Write) -> None:
    folder = write(FLAT)
    (folder / "corpus.jsonl").write_bytes(b'{"doc_id": "\xff\xfe"}\n')
    with pytest.raises(InvalidInput, match=r"corpus\.jsonl:1: not UTF-8"):
        load(str(folder))


def test_a_huge_line_is_refused_before_it_is_parsed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_LINE", 1000)
    folder = write(FLAT, corpus_jsonl=json.dumps({"doc_id": "d", "text": "x" * 2000}))
    with pytest.raises(InvalidInput, match=r"corpus\.jsonl:1: line is longer than 1000 characters"):
        load(str(folder))


def test_a_folder_in_the_place_of_a_file_is_one_line(write: Write) -> None:
    folder = write({"queries.jsonl": "x", "qrels.tsv": ""})
    (folder / "corpus.jsonl").mkdir()
    with pytest.raises(InvalidInput, match=r"corpus\.jsonl cannot be read"):
        load(str(folder))


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(write: Write) -> None:
    plain = load(str(write(FLAT)))
    folder = write({})
    for name, content in FLAT.items():
        (folder / name).write_bytes(b"\xef\xbb\xbf" * (name != "qrels.tsv") + content.replace("\n", "\r\n").encode())
    assert load(str(folder)).digest == plain.digest
