"""Two faults, three fixes: the matrix gives what single runs of the same arms give, and what anybody would expect."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from rich.console import Console

from testbed.diagnose.matrix import Meeting
from testbed.diagnose.summary import Summarize
from testbed.report import matrix
from testbed.run import scenarios
from testbed.run.execute import run_scenario
from testbed.run.settings import Settings

FIXES = ("typed-tenant-key", "re-embed", "tenant-scoped-context")
VARIANTS = (("tenant-leak", "answer-key"), ("version-skew", "half-index"))
SEED, QUERIES = 42, 120


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Meeting]:
    folder = tmp_path_factory.mktemp("matrix")
    with pytest.MonkeyPatch.context() as patch:
        known = scenarios.fixes()
        patch.setattr(scenarios, "fixes", lambda given=None: {name: known[name] for name in FIXES})
        variants = []
        for name, variant in VARIANTS:
            loaded = scenarios.load(name).variant(variant)
            assert loaded is not None
            variants.append((name, loaded))
        met = matrix.play(variants, SEED, QUERIES, folder, lambda what, done, of: None, every=True)
    assert matrix.print_matrix(met, SEED, folder, Console(quiet=True)) == 0
    rows = list(csv.DictReader((folder / "matrix-s42.csv").read_text().splitlines()))
    assert len(rows) == len(met) and (folder / "matrix-s42.svg").read_text().count("<title>") == len(met)
    assert len(json.loads((folder / "matrix-s42.json").read_text())) == len(met)
    return {(m.scenario, m.fix): m for m in met}


def test_a_fix_cures_its_own_fault_and_does_nothing_to_the_other(found: dict[tuple[str, str], Meeting]) -> None:
    assert found["tenant-leak", "typed-tenant-key"].effect == "cures" and found["tenant-leak", "typed-tenant-key"].own
    assert found["version-skew", "re-embed"].effect == "cures" and found["version-skew", "re-embed"].own
    for scenario, fix in (("tenant-leak", "re-embed"), ("version-skew", "typed-tenant-key")):
        met = found[scenario, fix]
        assert (met.effect, met.own, met.opens, met.recovered) == ("nothing", False, (), 0.0)
        assert met.still, "the fault is still there, and says so"


def test_a_cured_stack_violates_nothing(found: dict[tuple[str, str], Meeting]) -> None:
    assert found["tenant-leak", "typed-tenant-key"].still == {} == found["version-skew", "re-embed"].still


def test_the_figures_are_those_of_a_single_run(found: dict[tuple[str, str], Meeting], tmp_path: Path) -> None:
    arms = ("clean", "faulty", "faulty+typed-tenant-key", "clean+typed-tenant-key")
    settings = Settings(*VARIANTS[0], seed=SEED, queries=QUERIES, arms=arms, results_dir=tmp_path)
    summary = json.loads((run_scenario(settings, Summarize()) / "summary.json").read_text())["arms"]
    clean, faulty, cured, priced = (summary[arm]["means"]["true"] for arm in arms)
    met = found["tenant-leak", "typed-tenant-key"]
    assert met.recovered == pytest.approx((cured - faulty) / (clean - faulty))
    assert met.residual == pytest.approx(clean - cured)
    assert met.metric_lost == pytest.approx(clean - priced)
    assert met.hits_lost == pytest.approx(summary["clean"]["hits"] - summary[arms[3]]["hits"])
    assert met.held_bytes_added == summary[arms[3]]["held_bytes"] - summary["clean"]["held_bytes"]
