"""C7 by arithmetic that is checked by hand, and C11 by counts that can be nothing else."""

from __future__ import annotations

import pytest

from testbed.claims import c7_sparse_kv as c7
from testbed.claims import c11_compile_hook as c11
from testbed.claims.register import measured


def test_the_floor_of_a_prefill_is_two_operations_a_weight_and_four_a_pair() -> None:
    one = c7.Model("one", 10.0, 8.0, layers=1, heads=1, kv_heads=1, head_dim=1)
    assert c7.cold_s(one, 4, 4) * c7.FLOPS == pytest.approx(2 * 8 * 4 + 4 * 4 * 4 / 2)
    assert c7.cold_s(one, 4, 2) * c7.FLOPS == pytest.approx(2 * 8 * 4 + 4 * (2 * 2 / 2 + 2 * 2))
    assert one.row_bytes == 4


def test_the_published_times_are_under_the_floor_of_every_model_and_fit_a_warm_turn() -> None:
    findings = measured(c7.C7, "small")
    rows = findings.tables["floors"]
    assert len(rows) == 12 and findings.ruling == "ill-defined"
    assert all(float(row["cold floor over published"]) > 3 for row in rows)
    assert all(float(row["warm floor s"]) < float(row["published first token s"]) for row in rows)
    # the same arithmetic done on paper for 7B at 32K: 428 + 215 TFLOP at 312 TFLOP/s
    seven = next(row for row in rows if row["model"] == "Qwen2.5-7B" and row["cache"] == "full")
    assert float(seven["cold floor s"]) == pytest.approx(2.06, abs=0.01)


def test_a_table_that_a_model_could_keep_would_change_the_ruling(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tuple(row._replace(first_token_s=60.0) for row in c7.TABLE)
    monkeypatch.setattr(c7, "TABLE", slow)
    assert measured(c7.C7, "small").ruling == "holds only if"
    monkeypatch.setattr(c7, "TABLE", tuple(row._replace(first_token_s=1e-4) for row in c7.TABLE))
    assert measured(c7.C7, "small").ruling == "refuted"


def test_kept_rows_are_bounded_and_never_more_than_there_are() -> None:
    assert c7.rows_kept(1000) == 1000
    assert c7.rows_kept(10**9) == c7.KEPT.rows_bound()


@pytest.mark.models
def test_the_counters_tell_causes_apart_and_the_published_option_is_not_there() -> None:
    pytest.importorskip("torch", reason="needs the runner extra")
    findings = measured(c11.C11, "small")
    assert tuple(row["cause"] for row in findings.tables["graphs"]) == c11.EXPECTED
    assert [row["calls"] for row in findings.tables["graphs"]] == [2, 3, 1, 1]
    drift = {row["way"]: row for row in findings.tables["drifting lengths"]}
    assert (drift["fixed"]["graphs"], drift["fixed"]["uncompiled"]) == (8, 64)
    assert (drift["automatic"]["graphs"], drift["automatic"]["uncompiled"]) == (2, 0)
    assert (drift["buckets"]["graphs"], drift["buckets"]["uncompiled"]) == (4, 0)
    assert findings.ruling == "holds only if"
