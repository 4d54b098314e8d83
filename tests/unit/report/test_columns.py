from __future__ import annotations

import math

import pytest

from testbed.report.columns import Column, fitted, number, percent, to_csv, to_markdown
from testbed.report.shades import ASCII, BLOCKS, ramp, shade


def test_the_least_important_column_goes_first() -> None:
    columns = [Column("arm", ("clean",)), Column("abcdef", ("1",), 2), Column("ghijkl", ("1",), 1)]
    assert [c.name for c in fitted(columns, 21)] == ["arm", "abcdef", "ghijkl"]
    assert [c.name for c in fitted(columns, 20)] == ["arm", "ghijkl"]
    assert [c.name for c in fitted(columns, 1)] == ["arm"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.12345, "0.123"), (None, "-"), (math.nan, "-"), (-0.5, "-0.500"), (0.9996, "1.000")]
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.1, "+0.100"), (-0.1, "-0.100"), (-0.00001, "+0.000"), (0.0, "+0.000")])
def test_differences_have_a_sign_and_no_negative_zero(value: float, text: str) -> None:
    assert number(value, signed=True) == text


@pytest.mark.parametrize(
    ("share", "text"), [(1.0, "100 %"), (-0.001, "0 %"), (-0.2, "-20 %"), (None, "unknown"), (0.955, "96 %")]
)
def test_shares(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_cells_cannot_break_a_table() -> None:
    columns = [Column("a|b", ("x|y",)), Column("c", ('say "hi", you',))]
    assert to_markdown(columns).splitlines()[2] == '| x\\|y | say "hi", you |'
    assert to_csv(columns).splitlines()[1] == 'x|y,"say ""hi"", you"'


def test_shades_tell_none_little_and_all_apart() -> None:
    assert shade([0.0, 0.01, 0.5, 1.0, 2.0, None, math.nan, -1.0], ASCII) == " .:##?? "


def test_shades_of_nothing_at_all_are_blank() -> None:
    assert shade([0.0, 0.0], BLOCKS, top=0.0) == "  "


@pytest.mark.parametrize(("encoding", "characters"), [("utf-8", BLOCKS), ("ascii", ASCII), ("no-such", ASCII)])
def test_blocks_only_where_they_can_be_shown(encoding: str, characters: str) -> None:
    assert ramp(encoding) == characters
