from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.core.names import ValueNames
from testbed.models import encoders
from testbed.models.lsa import LatentSemantic
from testbed.models.tokenizers import first_words


def test_an_unknown_name_gets_the_nearest_known_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="unknown encoder 'minilm-case'; did you mean 'minilm-cased'"):
        encoders.build("minilm-case", [], tmp_path, ValueNames())


def test_a_fitted_encoder_is_named_by_its_corpus_whatever_the_order() -> None:
    one = LatentSemantic(["a b", "c d"], name="n").fingerprint
    assert one == LatentSemantic(["c d", "a b", "a b"], name="other name").fingerprint
    assert one != LatentSemantic(["c d", "a b", "e f"], name="n").fingerprint


def test_a_short_chunk_is_the_first_words() -> None:
    assert first_words("one  two\nthree four", 3) == "one two three"
    assert first_words("one", 3) == "one"
