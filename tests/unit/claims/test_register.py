"""The register measures, writes, prints, and refuses figures that cannot be."""

from __future__ import annotations

import dataclasses
import json

import pytest

from testbed.claims import c10_joint_attribution as c10
from testbed.claims import register
from testbed.claims.claim import Claim, Findings, Limit
from testbed.core.errors import BrokenContract, InvalidInput, Unavailable


def claim(measure):
    return Claim("C0", "t", "s", "src", ("d",), "g", "tol", "lim", measure)


def test_every_claim_of_the_list_has_a_place():
    assert [c.id for c in register.CLAIMS] == [f"C{i}" for i in range(1, 12)]
    for each in register.CLAIMS:
        told = (each.statement, each.source, each.generator, each.tolerance, each.limit, *each.definitions)
        assert all(told)


def test_a_run_writes_what_was_found_and_prints_a_line(tmp_path, monkeypatch):
    monkeypatch.setitem(c10.SCALES, "small", c10.Scale((1, 2), 512))
    said = []
    for folder in ("one", "two"):
        (result,) = register.run("small", only=["C10"], out=tmp_path / folder, say=said.append)
    assert len(said) == 2 and said[0] == said[1] and said[0].startswith("C10")
    texts = [(tmp_path / folder / "C10.json").read_text() for folder in ("one", "two")]
    assert texts[0] == texts[1]
    data = json.loads(texts[0])
    assert data["ruling"] == result.findings.ruling
    assert data["claim"]["id"] == "C10" and data["seeds"] == [1, 2] and data["tables"]["trials"]
    assert (tmp_path / "one" / "C10.svg").read_text().startswith("<svg")


def test_an_unknown_claim_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="C12"):
        register.run(only=["C12"], out=tmp_path, say=str)


def test_what_is_not_installed_is_not_measurable_here():
    def measure(tier):
        raise Unavailable("the encoder")

    found = register.measured(claim(measure), "small")
    assert found.ruling == "not measurable here" and "the encoder" in found.why


def test_a_figure_past_its_limit_stops_the_run():
    with pytest.raises(BrokenContract):
        register.measured(claim(lambda tier: Findings("holds", "", (), limits=(Limit("x", 2.0, 1.0),))), "small")


def test_wall_clock_figures_stay_in_their_own_place(tmp_path):
    found = Findings("holds", "why", (1,), timings={"us": 3.0}, timing_note="fast")
    result = register.Result(claim(lambda tier: found), found)
    register.write(result, "small", tmp_path)
    data = json.loads((tmp_path / "C0.json").read_text())
    assert data.pop("timings") == {"us": 3.0, "note": "fast"}
    register.write(
        register.Result(result.claim, dataclasses.replace(found, timings={}, timing_note="")), "small", tmp_path
    )
    again = json.loads((tmp_path / "C0.json").read_text())
    again.pop("timings")
    assert data == again
    assert register.line(result).endswith("why [fast]")
