from __future__ import annotations

import os

import pytest

from testbed.core.errors import InvalidInput
from testbed.run import workers


def test_small_runs_stay_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(workers.ENV, raising=False)
    assert workers.workers_for(workers.WORTH_WORKERS - 1) == 1
    assert workers.workers_for(workers.WORTH_WORKERS) == min(workers.MAX_WORKERS, os.cpu_count() or 1)


def test_the_number_of_workers_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workers.ENV, "3")
    assert workers.workers_for(1) == 3
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv(workers.ENV, wrong)
        with pytest.raises(InvalidInput, match=f"{workers.ENV}={wrong} must be a whole number >= 1"):
            workers.workers_for(1)
