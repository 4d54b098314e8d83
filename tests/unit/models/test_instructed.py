from __future__ import annotations

from pathlib import Path

import numpy as np

from testbed.core import digest
from testbed.core.names import ValueNames
from testbed.models.instructed import INSTRUCTION, Instructed
from testbed.models.memo import Memo, MemoEncoder
from tests.contract.small_stack import WordEncoder


def test_the_vector_of_a_text_depends_on_its_role() -> None:
    encoder = Instructed(WordEncoder(), name="words")
    query, document = (encoder.encode(["how long"], role)[0] for role in ("query", "document"))  # type: ignore[arg-type]
    assert not np.array_equal(query, document)
    assert np.array_equal(document, WordEncoder().encode(["how long"], "document")[0])
    assert np.array_equal(query, WordEncoder().encode([INSTRUCTION + "how long"], "query")[0])


def test_two_instructions_are_two_encoders() -> None:
    inner = WordEncoder()
    found = {Instructed(inner, name="words", instruction=i).fingerprint for i in ("a: ", "b: ")}
    assert len(found | {inner.fingerprint}) == 3


def test_the_two_vectors_of_one_text_have_two_names_in_a_trace(tmp_path: Path) -> None:
    names = ValueNames()
    encoder = MemoEncoder(Instructed(WordEncoder(), name="words"), Memo(tmp_path), names)
    vectors = [encoder.encode(["how long"], role)[0] for role in ("query", "document")]  # type: ignore[arg-type]
    told = [names.of(v).split(":")[2] for v in vectors]
    assert told == [digest.of_text(INSTRUCTION + "how long"), digest.of_text("how long")]
