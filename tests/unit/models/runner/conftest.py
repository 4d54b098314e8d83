from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the runner extra")
pytest.importorskip("transformers", reason="needs the runner extra")

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))  # for runner_families


@pytest.fixture(autouse=True)
def no_gradients() -> object:
    with torch.inference_mode():
        yield
