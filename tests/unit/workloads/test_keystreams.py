"""Streams of keys: seeded, shaped as they say."""

from __future__ import annotations

from collections import Counter

import pytest

from testbed.core.errors import InvalidInput
from testbed.workloads import keystreams


def test_zipf_is_seeded_and_has_its_shape():
    keys = keystreams.zipf(100, 1.0, 20_000, seed=1)
    assert keys == keystreams.zipf(100, 1.0, 20_000, seed=1) != keystreams.zipf(100, 1.0, 20_000, seed=2)
    counts = Counter(keys)
    assert counts[0] / counts[1] == pytest.approx(2.0, rel=0.1)
    assert max(keys) < 100


def test_drift_moves_every_rank():
    still = keystreams.zipf(50, 1.0, 300, seed=1)
    moved = keystreams.drifting(50, 1.0, 300, seed=1, every=100, by=7)
    assert moved[:100] == still[:100]
    assert moved[100:200] == [(key + 7) % 50 for key in still[100:200]]


@pytest.mark.parametrize("kind", keystreams.POLLUTIONS)
def test_pollution_keeps_the_clean_requests_in_order(kind):
    clean = keystreams.zipf(100, 1.0, 5000, seed=1)
    dirty = keystreams.polluted(clean, kind, 0.3, seed=2)
    assert [key for key in dirty if key >= 0] == clean
    foreign = [key for key in dirty if key < 0]
    assert len(foreign) / len(dirty) == pytest.approx(0.3, abs=0.05)
    assert set(Counter(foreign).values()) == ({3} if kind == "k-touch" else {1})


def test_a_scan_runs_in_one_piece_or_between_others():
    dirty = keystreams.polluted([0] * 3000, "scan", 0.2, seed=1)
    at = [i for i, key in enumerate(dirty) if key < 0]
    assert at[-1] - at[0] == len(at) - 1 or len(at) > 500


def test_no_pollution_changes_nothing():
    assert keystreams.polluted([1, 2, 3], "one-hit", 0.0, seed=1) == [1, 2, 3]
    with pytest.raises(InvalidInput):
        keystreams.polluted([1], "one-hit", 1.0, seed=1)
