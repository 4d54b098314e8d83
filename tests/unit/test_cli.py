"""Arguments in, exit code out: nothing here starts a run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import __version__, cli
from testbed.core import errors
from tests.unit.record.recorded import DESCRIBED, crash, fill, start
from tests.unit.report.summaries import SUMMARY

Call = Callable[..., tuple[int, str, str]]
KNOBS = ("VARIANT", "SEED", "POLLUTION_LEVEL", "STACK", "STORE", "DATASET", "QUERIES", "BACKEND", "REDIS_URL")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for knob in (*KNOBS, "CHROMA_URL", "SCENARIOS_DIR", "COLUMNS"):
        monkeypatch.delenv(knob, raising=False)
    monkeypatch.setenv("RESULTS_DIR", str(tmp_path / "results"))
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def _call(*argv: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(argv)
        said = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, said.out, said.err

    return _call


def record(results: Path, **changed: object) -> Path:
    with start(results, **changed) as writer:
        fill(writer)
        return writer.finish(SUMMARY, [])


def one_line(text: str) -> str:
    assert text.startswith("testbed: ") and text.count("\n") == 1, text
    return text


@pytest.mark.parametrize(
    ("knob", "value", "says"),
    [
        ("SEED", "x", "SEED=x must be an integer >= 0"),
        ("SEED", "-1", "SEED=-1 must be an integer >= 0"),
        ("SEED", "1.5", "SEED=1.5 must be an integer >= 0"),
        ("POLLUTION_LEVEL", "7", "POLLUTION_LEVEL=7 must be low, medium, high, or a number from 0 to 1"),
        ("POLLUTION_LEVEL", "nan", "must be low, medium, high"),
        ("POLLUTION_LEVEL", "hgih", "must be low, medium, high"),
        ("STACK", "llamaindex", "did you mean 'llama-index'?"),
        ("STORE", "fais", "did you mean 'faiss'?"),
        ("STORE", "oracle", "one of: chroma, exact, faiss"),
        ("BACKEND", "cloud", "one of: compose, embedded"),
        ("QUERIES", "many", "QUERIES=many must be a whole number"),
        ("QUERIES", "0", "QUERIES=0 must be from 10"),
        ("VARIANT", "answr-key", "did you mean 'answer-key'?"),
        ("DATASET", "no-such-set", "no-such-set"),
    ],
)
def test_a_wrong_knob_says_what_is_allowed(
    call: Call, monkeypatch: pytest.MonkeyPatch, knob: str, value: str, says: str
) -> None:
    monkeypatch.setenv(knob, value)
    code, out, err = call("run", "tenant-leak")
    assert (code, out) == (2, "")
    assert says in one_line(err)


@pytest.mark.parametrize("stack", ["nomod.sub:build", "nomod:build", "sys:build", ":build", "llamaindex"])
@pytest.mark.parametrize("argv", [["run", "tenant-leak"], ["sweep", "tenant-leak", "--seeds", "1", "--queries", "10"]])
def test_a_stack_that_is_not_there_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, argv: list[str], stack: str
) -> None:
    monkeypatch.setenv("STACK", stack)
    code, out, err = call(*argv)
    assert (code, out) == (2, "")
    assert f"STACK={stack}" in one_line(err) or "did you mean 'llama-index'?" in err


def test_an_empty_knob_is_as_good_as_none(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in KNOBS:
        monkeypatch.setenv(knob, "")
    code, _, err = call("run", "tenant-lek")
    assert code == 2
    assert "unknown scenario 'tenant-lek'; did you mean 'tenant-leak'?" in one_line(err)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["run"], "Missing argument"),
        (["rnu"], "No such command 'rnu'"),
        (["run", "tenant-leak", "--sead", "1"], "No such option"),
        (["compare", "a"], "Missing argument"),
        (["compare", "a", "b", "--format", "pdf"], "'pdf'"),
        (["gate", "tenant-lek"], "did you mean 'tenant-leak'?"),
        (["gate", "--must-see", "2"], "MUST_SEE=2 must be a number above 0 and up to 1"),
        (["baseline", "tenant-lek"], "did you mean 'tenant-leak'?"),
        (["init", "--ci", "jenkins"], "'jenkins'"),
        (["show", "no-such-run"], "testbed list --runs"),
        (["run", ""], ", tenant-leak, "),
    ],
)
def test_a_typo_is_one_line_and_exit_code_2(call: Call, argv: list[str], says: str) -> None:
    code, out, err = call(*argv)
    assert (code, out) == (2, "")
    assert says in one_line(err)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInput("a"), 2),
        (errors.Unavailable("a"), 3),
        (errors.BrokenContract("a"), 3),
        (errors.HarnessError("a"), 3),
        (errors.Incomparable("a"), 4),
        (errors.Undecided("a"), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_error_has_its_exit_code_and_no_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(results: Path, name: str) -> Path:
        raise error

    monkeypatch.setattr("testbed.record.runs.find", fail)
    found, _, err = call("show", "x")
    assert found == code
    assert "Traceback" not in one_line(err)


def test_a_bug_shows_its_traceback_and_is_exit_code_3(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.record.runs.find", lambda results, name: 1 // 0)
    code, _, err = call("show", "x")
    assert code == 3
    assert "Traceback" in err and "ZeroDivisionError" in err.splitlines()[-1]


def test_sigterm_unwinds_and_is_exit_code_143(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    unwound = []

    def find(results: Path, name: str) -> Path:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("not reached")
        finally:
            unwound.append(True)

    monkeypatch.setattr("testbed.record.runs.find", find)
    code, _, _ = call("show", "x")
    assert (code, unwound) == (143, [True])


def test_list_names_every_scenario_and_variant(call: Call) -> None:
    code, out, _ = call("list")
    assert code == 0
    for name in ("tenant-leak", "answer-key", "version-skew", "semantic-drift"):
        assert name in out


def test_list_as_json_is_what_a_matrix_is_made_of(call: Call) -> None:
    code, out, _ = call("list", "--json")
    found = json.loads(out)
    assert code == 0
    assert {"tenant-leak", "version-skew", "semantic-drift"} <= {scenario["name"] for scenario in found}
    assert all(scenario["variants"] for scenario in found)


def test_list_runs_tells_whole_from_half(call: Call, tmp_path: Path) -> None:
    whole = record(tmp_path / "results")
    crash(tmp_path / "results")
    _, out, _ = call("list", "--runs")
    assert f"{whole.name}  finished" in out and "half (started)" in out
    _, out, _ = call("list", "--runs", "--json")
    assert sorted(row["status"] for row in json.loads(out)) == ["finished", "half (started)"]


def test_show_prints_a_recorded_run_again(call: Call, tmp_path: Path) -> None:
    folder = record(tmp_path / "results")
    code, out, _ = call("show", "tenant-leak")
    assert code == 0
    assert SUMMARY["digest"] in out and str(folder) in out


def test_show_refuses_a_run_that_was_changed(call: Call, tmp_path: Path) -> None:
    folder = record(tmp_path / "results")
    (folder / "gold.jsonl").write_text("")
    code, out, err = call("show", "tenant-leak")
    assert (code, out) == (2, "")
    assert "gold.jsonl" in one_line(err)


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "latex", "json"])
def test_compare_prints_every_form(call: Call, tmp_path: Path, form: str) -> None:
    a, b = record(tmp_path / "results"), record(tmp_path / "results")
    code, out, _ = call("compare", str(a), str(b), "--format", form)
    assert code == 0
    assert "clean" in out and "MRR@5" in out
    if form == "json":
        assert json.loads(out)["same_digest"] is True


def test_compare_refuses_what_is_not_comparable_unless_told(call: Call, tmp_path: Path) -> None:
    a = record(tmp_path / "results")
    b = record(tmp_path / "results", settings=DESCRIBED["settings"] | {"stack": "llama-index"})
    code, out, err = call("compare", str(a), str(b))
    assert (code, out) == (4, "")
    assert "settings.stack: 'reference' against 'llama-index'" in one_line(err)
    assert call("compare", str(a), str(b), "--across", "stack")[0] == 0


def test_version(call: Call) -> None:
    assert call("version")[1].strip() == __version__


@pytest.mark.parametrize("command", ["run", "list", "show", "compare", "baseline", "gate", "init", "doctor", "version"])
def test_every_command_explains_itself(call: Call, command: str) -> None:
    code, out, _ = call(command, "--help")
    assert code == 0 and command in out


def test_doctor_names_the_extra_of_what_is_missing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.run import doctor

    there = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name in ("torch", "chromadb") else there(name))
    code, out, _ = call("doctor", "--json")
    rows = {(row["group"], row["name"]): row for row in json.loads(out)}
    assert code == 3
    assert rows["packages", "models"]["state"] == "missing" and "torch" in rows["packages", "models"]["found"]
    assert ".[models]" in rows["packages", "models"]["advice"]
    assert rows["packages", "chroma"]["state"] == "optional"


def test_doctor_says_when_no_server_answers(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    code, out, _ = call("doctor")
    assert code == 3
    assert "127.0.0.1:1" in out and "does not work here" in out


def test_doctor_sees_two_builds_of_one_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.run import doctor

    monkeypatch.setattr(doctor, "_version", lambda name: "1.15.1")
    (clash,) = doctor.faiss_clash()
    assert clash.state == "missing" and "overwrite" in clash.found


def test_no_colour_where_none_is_wanted(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record(tmp_path / "results")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31m" in call("show", "tenant-leak")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" not in call("show", "tenant-leak")[1]


def test_spans_that_are_not_spans_are_one_line_with_file_and_line(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text('{"resourceSpans": []}\n{"resource\n')
    code, out, err = call("import-traces", str(path))
    assert (code, out) == (2, "")
    assert err.startswith(f"testbed: {path}:2: not JSON: ") and err.count("\n") == 1


def test_imported_spans_are_told_as_json_too(call: Call) -> None:
    path = Path(__file__).resolve().parents[1] / "fixtures" / "spans" / "service.jsonl"
    code, out, _ = call("import-traces", str(path), "--json")
    told = json.loads(out)
    assert (code, told["requests"], told["mrr"]) == (0, 7, None)
    assert [s["kind"] for s in told["suspicions"]] == ["shared", "old"]
    code, out, _ = call("import-traces", str(path), "--tenant", "metadata-that-is-not-there")
    assert "7 requests of 0 tenants" in out and "shared" not in out


@pytest.mark.parametrize("command", ["shrink", "repro"])
def test_a_run_that_is_not_there_cannot_be_shrunk(call: Call, command: str) -> None:
    code, out, err = call(command, "nothing")
    assert (code, out) == (2, "") and "names no whole run" in err
