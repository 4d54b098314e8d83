from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from testbed.core.errors import Unavailable
from testbed.report.charts import charts, write_charts
from tests.unit.report.pages_of import POLLUTION, record
from tests.unit.report.summaries import SUMMARY, summary

needs_extra = pytest.mark.skipif(
    any(name not in sys.modules and not pytest.importorskip(name) for name in ("altair", "vl_convert")),
    reason="needs the report extra",
)


@needs_extra
def test_each_figure_is_a_chart_and_the_same_summary_gives_the_same_ones() -> None:
    found = charts(summary(pollution=POLLUTION))
    assert list(found) == ["heatmap", "outcomes", "poisoned", "blame", "fixes"]
    assert found == charts(summary(pollution=POLLUTION))


@needs_extra
def test_a_run_without_figures_has_no_charts() -> None:
    empty = {"heatmap": None, "pollution": None, "blame": [], "fixes": [], "deltas": {}}
    assert charts(SUMMARY | empty) == {}


@needs_extra
def test_charts_are_written_as_svg_and_png(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    found = summary()["fixes"][0] | {"fix": hostile}
    arms = SUMMARY["arms"] | {f"faulty+{hostile}": SUMMARY["arms"]["clean"]}
    deltas = SUMMARY["deltas"] | {f"faulty+{hostile}": SUMMARY["deltas"]["faulty+typed-tenant-key"]}
    folder = record(tmp_path / "results", summary={"fixes": [found], "arms": arms, "deltas": deltas})
    paths = write_charts(folder, tmp_path / "charts")
    assert sorted(path.suffix for path in paths) == [".png"] * 5 + [".svg"] * 5
    for path in paths:
        if path.suffix == ".svg":
            tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
            assert "path" in tags and "script" not in tags
        else:
            assert path.read_bytes().startswith(b"\x89PNG")
    assert [p.read_bytes() for p in paths] == [p.read_bytes() for p in write_charts(folder, tmp_path / "again")]


def test_without_the_extra_one_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(Unavailable, match=r"vl-convert-python.*\[report\]"):
        write_charts(record(tmp_path), tmp_path / "charts")
    assert not (tmp_path / "charts").exists()
