from __future__ import annotations

import base64
import hashlib
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from testbed import cli
from testbed.core.errors import Incomparable, InvalidInput, Unavailable
from testbed.record import shrunk
from testbed.record.folder import RunReader
from testbed.report import html, pages, questions
from tests.unit.record.recorded import SHRUNK, crash
from tests.unit.report.pages_of import Parsed, is_leaked, record

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "end of script": "</script></style></title><h1>owned</h1>",
    "attribute": "\"><img src=https://example.org/x.png onerror='alert(1)'>",
    "template": "{{ 7 * 7 }}{% for x in y %}",
    "entity": "&lt;b&gt; &amp;nbsp;",
    "right to left": "abc \u202e gnitfihs \u2066x\u2069 \u200f",
    "NUL": "a\x00b\x1b[31m",
    "comment": "<!-- --!> <![CDATA[ ]]>",
}
CLOCK = re.compile(rb'<section id="clock".*?</section>', re.DOTALL)


def page_of(folder: Path, **knobs: Any) -> bytes:
    return html.report(RunReader(folder), **knobs)


@pytest.fixture
def page(tmp_path: Path) -> bytes:
    return page_of(record(tmp_path))


def table_rows(page: bytes) -> list[str]:
    body = page.decode().split('id="rows"')[1].split("<tbody>")[1].split("</tbody>")[0]
    return re.findall(r"<tr.*?</tr>", body, re.DOTALL)


def test_the_first_heading_is_the_verdict_and_all_parts_are_there(page: bytes) -> None:
    text = page.decode()
    (heading,) = re.findall(r'<h1 id="verdict">(.*?)</h1>', text)
    assert heading.startswith("The answer cache did it: true answers fall from 95\u00a0% to 60\u00a0%")
    for section in ("time", "served", "blame", "fixes", "witness", "questions", "run", "clock"):
        assert f'<section id="{section}"' in text
    assert "op 18: tenant b asked" in Parsed(page).text


def full_of(results: Path, text: str) -> bytes:
    """A page with the text wherever data can bring one."""
    changed: dict[str, Any] = {name: text for name in ("about", "dataset", "stack", "store", "violated")}
    changed |= {"witness": {"ops": [1], "layer": text, "story": text}, "anomalies": [text]}
    named = {"question": text, "answer": text, "tenant": text, "accept": (text,)}
    folder = record(results, summary=changed, variant=text, argv=[text], **named)
    for number in (1, 2):
        told = {"invariant": text, "story": [text, f"op 7: {text}", text], "notes": [text]}
        shrunk.keep(RunReader(folder), SHRUNK | told | {"violation": number})
    return page_of(folder)


@pytest.mark.parametrize("what", HOSTILE)
def test_whatever_the_data_holds_shows_as_text(tmp_path: Path, what: str) -> None:
    found = full_of(tmp_path / "hostile", HOSTILE[what])
    seen, plain = Parsed(found), Parsed(full_of(tmp_path / "plain", "harmless"))
    assert [tag for tag, _ in seen.elements] == [tag for tag, _ in plain.elements]
    assert [list(attributes) for _, attributes in seen.elements] == [list(a) for _, a in plain.elements]
    assert seen.text.count(" ".join(pages.visible(HOSTILE[what]).split())) >= 20
    assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", found)
    assert not set("\u202e\u2066\u2069\u200f") & set(found.decode())


def witness_of(page: bytes) -> str:
    return Parsed(page.split(b'<section id="witness"')[1].split(b"</section>")[0]).text


def test_a_violation_that_was_shrunk_is_told_by_the_least_that_shows_it(tmp_path: Path) -> None:
    folder = record(tmp_path)
    before = witness_of(page_of(folder))
    assert "op 18: tenant b asked" in before and "testbed shrink" in before
    shrunk.keep(RunReader(folder), SHRUNK)
    after = witness_of(page_of(folder))
    places = [after.index(part) for part in ("2 documents loaded: a-1, b-1", "tenant a asked", SHRUNK["story"][-1])]
    assert places == sorted(places) and "testbed shrink" not in after
    assert "3 of 61 operations and 2 of 632 documents show it; none of the operations can be left out" in after
    assert "since the run was recorded" not in after


def test_another_violation_that_was_shrunk_stands_below_the_one_that_the_run_tells(tmp_path: Path) -> None:
    folder = record(tmp_path)
    other = {"violation": 7, "story": ["op 3: edited", "op 9: stale"], "minimal": False, "notes": ["numpy was 1"]}
    shrunk.keep(RunReader(folder), SHRUNK | other)
    told = witness_of(page_of(folder))
    assert told.index("op 18: tenant b asked") < told.index("Violation 7 of 12: no-cross-tenant") < told.index("stale")
    assert "perhaps not the fewest" in told and "since the run was recorded: numpy was 1" in told


def test_a_line_of_a_megabyte_is_cut_and_says_so(tmp_path: Path) -> None:
    found = page_of(record(tmp_path, n=400, answer="x" * 1_000_000))
    assert len(found) < 3_000_000
    assert "… (1,000,000 characters)" in found.decode()


def test_a_lone_surrogate_does_not_break_the_page(tmp_path: Path) -> None:
    assert "⟨U+D800⟩" in page_of(record(tmp_path, answer="a\ud800b")).decode()


def test_letters_of_other_scripts_stay_as_they_are() -> None:
    assert pages.visible("مهلة ሰላም 超时 é\n\t") == "مهلة ሰላም 超时 é\n\t"


def test_the_page_asks_for_nothing_and_runs_only_its_own_script(page: bytes) -> None:
    seen = Parsed(page)
    addresses = [
        value for _, attributes in seen.elements for name in ("href", "src") if (value := attributes.get(name))
    ]
    assert [a for a in addresses if not a.startswith(("#", "data:"))] == []
    assert [a for _, a in seen.elements if "style" in a] == [], "the policy forbids style attributes"
    (policy,) = [m["content"] for m in seen.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy and "http" not in policy
    for tag in ("script", "style"):
        (source,) = [data for name, data in seen.texts if name == tag]
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    style = next(data for name, data in seen.texts if name == "style")
    assert "url(" not in style and "@import" not in style


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = record(tmp_path)
    assert page_of(folder) == page_of(folder)


def test_the_same_trace_gives_the_same_bytes_but_for_when_and_where(tmp_path: Path) -> None:
    host = {"cores": 2}
    one = record(tmp_path / "a", latency_ms=10.0, started="20260102T030405Z", argv=["run"], host=host)
    other = record(tmp_path / "b", latency_ms=99.0, started="20270605T040302Z", argv=["run", "-"], host={"cores": 64})
    assert RunReader(one).digest == RunReader(other).digest
    pages_of_both = page_of(one), page_of(other)
    assert pages_of_both[0] != pages_of_both[1]
    without = [CLOCK.subn(b"", page) for page in pages_of_both]
    assert without[0] == without[1] and without[0][1] == 1


def test_every_question_is_a_row_with_what_was_served_and_what_should_have_been(tmp_path: Path) -> None:
    rows = table_rows(page_of(record(tmp_path, n=6)))
    assert len(rows) == 6
    assert [("leaked" in row, "untrue" in row) for row in rows] == [(is_leaked(op),) * 2 for op in range(1, 7)]
    harmed = rows[2]
    assert ">30 ms of another<" in harmed and ">30 ms<" in harmed and ">answer<" in harmed and "clean 1.00" in harmed


def test_where_the_data_does_not_say_what_is_right_the_clean_arm_does(tmp_path: Path) -> None:
    rows = table_rows(page_of(record(tmp_path, accept=())))
    assert ">30 ms <span" in rows[2] and "clean arm" in rows[2]


def test_a_long_run_is_sampled_and_says_so(tmp_path: Path) -> None:
    folder = record(tmp_path, n=300)
    sample = questions.questions(RunReader(folder), always=[7, 18], most=40)
    ops = [row.op for row in sample.rows]
    assert ops == sorted(ops) and {7, 18} <= set(ops) and 40 <= len(ops) <= 42
    assert (sample.total, sample.harmed) == (300, 100) and 20 <= sample.shown_harmed <= 22
    for part in (ops[: len(ops) // 2], ops[len(ops) // 2 :]):
        assert len(part) >= 15 and max(b - a for a, b in pairwise(part)) < 20
    text = Parsed(page_of(folder, most=40)).text
    assert f"This is a sample: {len(ops)} of 300 questions" in text and "100 of 300 askers were harmed" in text
    assert "This is a sample" not in Parsed(page_of(folder)).text


def test_few_harmed_are_all_shown() -> None:
    chosen = questions._chosen(range(1, 1001), {5, 500}, set(), 100)
    assert {5, 500} <= chosen and len(chosen) == 100


def test_four_hundred_questions_stay_below_three_megabytes(tmp_path: Path) -> None:
    assert len(page_of(record(tmp_path, n=400, question="why? " * 60, answer="because " * 60))) < 3_000_000


def test_without_a_faulty_arm_the_page_says_what_it_cannot_tell(tmp_path: Path) -> None:
    arms = {
        "clean": {"status": "ok", "means": {"true": 1.0}, "verdicts": [], "quadrants": None},
        "faulty": {"status": "unsupported", "why": "no such layer", "means": {}, "verdicts": []},
    }
    empty = {"order": ["clean", "faulty"], "arms": arms, "deltas": {}, "blame": [], "fixes": [], "heatmap": None}
    nothing = {"pollution": None, "published_attribution": [], "witness": None, "violated": ""}
    text = Parsed(page_of(record(tmp_path, summary=empty | nothing))).text
    assert "Could not tell: the faulty arm is unsupported (no such layer)." in text
    assert "one of them did not run" in text and "No fix was tried." in text


def test_what_is_named_by_another_element_is_there_and_names_are_unique(page: bytes) -> None:
    seen = Parsed(page)
    ids = [attributes["id"] for _, attributes in seen.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [a["aria-labelledby"] for _, a in seen.elements if "aria-labelledby" in a]
    targets = [a["href"][1:] for a in seen.of("a") if a["href"].startswith("#")]
    assert set(named + targets) <= set(ids)


def test_every_drawing_is_named_and_what_scrolls_can_be_reached(page: bytes) -> None:
    seen = Parsed(page)
    assert all(svg.get("aria-label") or svg.get("aria-hidden") for svg in seen.of("svg"))
    boxes = [a for _, a in seen.elements if "scroll" in a.get("class", "").split()]
    assert boxes and all(a.get("tabindex") == "0" and a.get("role") == "region" for a in boxes)
    assert all(a.get("scope") for a in seen.of("th"))


def test_the_page_goes_into_the_folder_and_the_run_stays_whole(tmp_path: Path) -> None:
    folder = record(tmp_path)
    before = RunReader(folder).digest
    assert html.write_report(folder) == folder / "report.html"
    RunReader(folder).verify()
    assert RunReader(folder).digest == before
    elsewhere = tmp_path / "page.html"
    assert html.write_report(folder, elsewhere).read_bytes() == (folder / "report.html").read_bytes()


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot write"):
        html.write_report(record(tmp_path), tmp_path / "missing" / "page.html")


def test_half_a_run_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="half a run"):
        html.write_report(crash(tmp_path))


def test_without_the_extra_one_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    pages._environment.cache_clear()
    with pytest.raises(Unavailable, match=r"'jinja2' is missing.*\[report\]"):
        html.write_report(folder)
    cli.write_page(folder)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no report.html" in said and "extra 'report'" in said
    assert not (folder / "report.html").exists()


def test_the_index_lists_every_run_newest_first_and_links_to_the_pages(tmp_path: Path) -> None:
    first = record(tmp_path, started="20260102T030405Z")
    second = record(tmp_path, started="20260103T030405Z", seed=43)
    crash(tmp_path)
    (second / "summary.json").write_text("{}")
    html.write_report(first)
    path = html.write_index(tmp_path)
    seen = Parsed(path.read_bytes())
    assert path == tmp_path / "index.html"
    assert [a["href"] for a in seen.of("a") if not a["href"].startswith("#")] == [
        f"tenant-leak/{first.name}/report.html"
    ]
    assert "3 recorded runs of 1 scenario" in seen.text
    assert "half (started)" in seen.text and "changed since the run was recorded" in seen.text
    assert seen.text.index(second.name) < seen.text.index(first.name)


def test_the_index_of_no_runs_says_how_to_make_one(tmp_path: Path) -> None:
    assert "make scenario" in Parsed(html.write_index(tmp_path).read_bytes()).text


def test_two_runs_side_by_side_show_each_arm_and_how_far_it_moved(tmp_path: Path) -> None:
    a = record(tmp_path / "a")
    worse = {arm: dict(row) for arm, row in RunReader(a).summary["arms"].items()}
    worse["faulty"]["means"] = {"MRR@5": 0.7, "faithful": 1.0, "true": 0.35}
    b = record(tmp_path / "b", seed=43, summary={"arms": worse, "seed": 43})
    path = html.write_comparison(a, b, across=["seed"], out=None, results=tmp_path)
    seen = Parsed(path.read_bytes())
    assert path.name == f"compare-{RunReader(a).digest[:8]}-{RunReader(b).digest[:8]}.html"
    assert "The runs differ most in true of the faulty arm: 0.600 in a, 0.350 in b." in seen.text
    assert "-0.250" in seen.text
    assert len([1 for _, attributes in seen.elements if "worse" in attributes.get("class", "")]) == 1
    with pytest.raises(Incomparable):
        html.write_comparison(a, b, across=[], out=None, results=tmp_path)


def test_a_run_beside_itself_is_the_same(tmp_path: Path) -> None:
    folder = record(tmp_path)
    path = html.write_comparison(folder, folder, across=[], out=tmp_path / "c.html", results=tmp_path)
    assert "The two runs are the same, event for event." in Parsed(path.read_bytes()).text


def test_layers_that_hide_one_another_share_the_drop(tmp_path: Path) -> None:
    shares = [
        {"layer": "answer", "share": 0.25, "low": 0.2, "high": 0.3, "error": None},
        {"layer": "index", "share": 0.1, "low": None, "high": None, "error": 0.01},
    ]
    found = {"drop": 0.36, "rest": 0.01, "exact": True, "shares": shares, "why": "", "arms": []}
    text = Parsed(page_of(record(tmp_path / "a", summary={"shapley": found}))).text
    assert "the drop of 0.360 true" in text and "+0.010 is no layer" in text
    assert "+0.250 +0.20 to +0.30" in text and "+0.100 +0.08 to +0.12" in text
    untold = found | {"shares": [], "why": "arm x did not run"}
    assert (
        "Could not tell: arm x did not run."
        in Parsed(page_of(record(tmp_path / "b", summary={"shapley": untold}))).text
    )
