"""Every violation has a witness of few operations that really replays, and a stand-alone file that shows it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import cli
from testbed.core.errors import BrokenContract, InvalidInput
from testbed.core.history import History
from testbed.diagnose.summary import Summarize
from testbed.diagnose.witness import MAX_OPS, Case, Shown, invariant_named
from testbed.record import shrunk
from testbed.record.folder import RunReader
from testbed.report import witness as printed
from testbed.report.repro import source
from testbed.run import plan as planning
from testbed.run import recall, replay, scenarios
from testbed.run.execute import run_scenario
from testbed.run.replay import Player
from testbed.run.settings import Settings
from tests.integration.test_witnesses_script import witnesses

pytest.importorskip("torch", reason="the models extra is not installed")
ROOT = Path(__file__).resolve().parents[2]
ALL = os.environ.get("PROMISES") == "all"
VARIANTS = [
    (scenario.name, variant.name)
    for scenario in map(scenarios.load, scenarios.names(ROOT / "scenarios"))
    for variant in (scenario.variants if ALL else scenario.variants[:1])
    if ALL or scenario.name in ("tenant-leak", "version-skew", "semantic-drift")
]


def recorded(results: Path, scenario: str, variant: str = "", **knobs: object) -> Path:
    settings = Settings(scenario, variant, queries=40, arms=("clean", "faulty"), results_dir=results)
    return run_scenario(replace(settings, **knobs), Summarize())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def leak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("leak"), "tenant-leak")


@pytest.fixture(scope="module")
def least(leak: Path) -> Shown:
    with Player() as player:
        return Case(leak).shown(1, player)


def test_a_replay_of_all_operations_is_the_run(leak: Path) -> None:
    plan, arm = replay.reopened(RunReader(leak).manifest, "faulty")
    with Player() as player:
        again = player.play(replay.script_of(plan, arm))
    then = RunReader(leak).evidence("faulty")
    assert History(again).lookups == History(then).lookups
    assert [(a.op, a.value) for a in again.answers()] == [(a.op, a.value) for a in then.answers()]


def test_a_manifest_gives_the_settings_back(tmp_path: Path) -> None:
    asked = Settings(
        "tenant-leak", "retrieval-key", seed=7, level=0.3, store="exact", queries=12, arms=("clean", "faulty"),
        dataset="ledger", results_dir=tmp_path,
    )  # fmt: skip
    manifest = RunReader(run_scenario(asked, Summarize())).manifest
    assert recall.settings_of(manifest) == replace(asked, results_dir=Settings("x").results_dir)


def test_what_changed_since_the_run_is_told(leak: Path) -> None:
    manifest = dict(RunReader(leak).manifest)
    plan = planning.make(recall.settings_of(manifest))
    manifest |= {"scenario_digest": "0", "data": {"name": "ledger", "digest": "0"}, "packages": {"numpy": "0.1"}}
    told = " ".join(recall.differences(manifest, plan))
    assert "tenant_leak.py has changed" in told and "data set ledger has changed" in told and "numpy was 0.1" in told


@pytest.mark.parametrize(("scenario", "variant"), VARIANTS)
def test_every_violation_is_shown_by_few_operations(scenario: str, variant: str, tmp_path: Path) -> None:
    case = Case(recorded(tmp_path, scenario, variant))
    names = [v.invariant for v in case.violations]
    numbers = range(1, len(names) + 1) if ALL else [n for name in dict.fromkeys(names) for n in places(names, name)]
    with Player() as player:
        for number in numbers:
            shown = case.shown(number, player)
            assert len(shown.script.ops) <= MAX_OPS, (scenario, variant, number)
            assert shown.minimal and len(shown.story) <= 6


@pytest.mark.parametrize(("scenario", "most_docs"), [("positional-ids", 4), ("batch-shift", 4)])
def test_where_positions_count_few_documents_are_enough_all_the_same(
    scenario: str, most_docs: int, tmp_path: Path
) -> None:
    """What moves them are documents that nobody asked for and no search came near."""
    with Player() as player:
        shown = Case(recorded(tmp_path, scenario)).shown(1, player)
    load = next(op.item for op in shown.script.ops if isinstance(op.item, tuple))
    assert 1 <= len(load) <= most_docs < shown.of_docs and shown.minimal


def test_few_operations_over_few_documents_need_not_show_it_over_all(tmp_path: Path) -> None:
    """Violation 28 is shown by three operations over three documents; the same three over all 632 show nothing."""
    with Player() as player:
        case = Case(recorded(tmp_path, "positional-ids", queries=60))
        shown = case.shown(28, player)
        plan, arm = replay.reopened(RunReader(next((tmp_path / "positional-ids").glob("2*"))).manifest, "faulty")
        kept = {op.index for op in shown.script.ops}
        over_all = History(player.play(replay.script_of(plan, arm, kept)))
    at = (shown.witness.ops[-1], shown.witness.layer)
    assert at not in [(w.ops[-1], w.layer) for w in invariant_named(shown.invariant).witnesses(over_all)]
    assert len(kept) <= MAX_OPS and shown.minimal


def test_a_change_goes_with_its_document_where_neither_can_go_alone(tmp_path: Path) -> None:
    """Loaded and not deleted, other pages are nearer than the deleted one that was found: they took five ops more."""
    with Player() as player:
        shown = Case(recorded(tmp_path, "deleted-comes-back", "same-text", queries=60)).shown(1, player)
    assert [op.do for op in shown.script.ops] == ["load", "upsert", "delete", "ask"]
    assert shown.minimal


def test_documents_without_which_the_stack_cannot_run_are_kept(tmp_path: Path) -> None:
    """A question to a model with an adapter is refused where the adapter was not loaded; no ask is about it."""
    pytest.importorskip("transformers", reason="the runner extra is not installed")
    with Player() as player:
        shown = Case(recorded(tmp_path, "prefix-leak", "salt-is-adapter", queries=10)).shown(1, player)
    load = next(op.item for op in shown.script.ops if isinstance(op.item, tuple))
    assert "adapter" in {doc.kind for doc in load} and len(load) < shown.of_docs
    assert len(shown.script.ops) <= MAX_OPS


def test_why_the_stack_cannot_play_any_of_it_is_told(least: Shown, leak: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Player, script: object) -> None:
        self.played += 1
        raise InvalidInput("no such layer")

    monkeypatch.setattr(Player, "play", refuse)
    case = Case(leak)
    case.notes = ()
    with Player() as player, pytest.raises(BrokenContract, match="the stack cannot play it: no such layer"):
        case.shown(1, player)


def places(names: list[str], name: str) -> list[int]:
    """The first and the last of a kind, counted from 1."""
    first = names.index(name) + 1
    return sorted({first, first + names.count(name) - 1})


def test_the_first_is_the_one_that_the_run_tells(leak: Path) -> None:
    first, summary = Case(leak).violations[0], RunReader(leak).summary
    assert first.invariant == summary["violated"]
    assert first.witness.story == summary["witness"]["story"]


def test_as_many_are_told_as_are_counted(leak: Path) -> None:
    names = [v.invariant for v in Case(leak).violations]
    counted = {v["invariant"]: v["violations"] for v in RunReader(leak).summary["arms"]["faulty"]["verdicts"]}
    assert {name: names.count(name) for name in set(names)} == {n: c for n, c in counted.items() if c}


def test_a_number_that_is_not_there_says_which_are(leak: Path) -> None:
    with pytest.raises(InvalidInput, match=r"violation=999: no-cross-tenant 1-\d+, dict-with-losses"):
        Case(leak).shown(999, None)  # type: ignore[arg-type]


def test_the_story_fits_in_six_lines_of_a_terminal(least: Shown) -> None:
    for width in (60, 100, 200):
        lines = printed.lines(least.story, width)
        assert len(lines) <= 6 and max(map(len, lines)) <= width


def test_the_stand_alone_file_exits_1_with_the_invariant_and_0_on_a_correct_stack(least: Shown, tmp_path: Path) -> None:
    text = source(least)
    broken = witnesses.run_alone(tmp_path / "broken", text)
    assert broken.returncode == 1, broken.stderr
    assert broken.stdout.startswith("no-cross-tenant is VIOLATED: op ")
    assert 'pip install "rag-testbed[models]' in text and str(ROOT) not in text
    mended = "\n".join(line for line in text.splitlines() if "KeyPartDropped(" not in line)
    assert witnesses.run_alone(tmp_path / "mended", mended).returncode == 0


def test_what_shrink_finds_is_left_with_the_run_and_its_page_tells_it(
    leak: Path, least: Shown, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tenant-leak" / leak.name
    shutil.copytree(leak, folder)
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(["shrink", str(folder)])
    printed_out = capsys.readouterr().out
    assert f"{len(least.script.ops)} of {least.of_ops} operations" in " ".join(printed_out.split())
    (found,) = shrunk.kept(RunReader(folder))
    assert (found["ops"], tuple(found["story"])) == ([op.index for op in least.script.ops], least.story)
    told = (folder / "report.html").read_text()
    assert f"{len(least.script.ops)} of {least.of_ops} operations" in told
    RunReader(folder).verify()


def test_a_run_that_cannot_be_written_to_is_shrunk_and_told_all_the_same(
    leak: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tenant-leak" / leak.name
    shutil.copytree(leak, folder)
    (folder / "shrunk").write_text("a file where the folder should be")
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(["shrink", str(folder)])
    told = capsys.readouterr()
    assert "operations" in told.out and "not left for the page" in told.err


def test_a_fault_of_a_scenario_file_cannot_be_written_down(least: Shown) -> None:

    fault = type(least.script.faults[0])("answer", "tenant")
    own = type("Own", (type(fault),), {"__module__": "scenarios_mine", "__qualname__": "Own"})("answer", "tenant")
    with pytest.raises(InvalidInput, match="move it into an installed package"):
        source(replace(least, script=replace(least.script, faults=(own,))))
