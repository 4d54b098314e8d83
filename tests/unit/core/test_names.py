from __future__ import annotations

import numpy as np

from testbed.core.names import ValueNames

SAME = np.ones(4, dtype=np.float32)


def test_a_vector_that_two_texts_have_is_called_after_the_one_it_is_held_for() -> None:
    names = ValueNames()
    names.learn(SAME, "encoder", "first")
    names.learn(SAME.copy(), "encoder", "second")
    assert names.of(SAME, "first") == "vector:encoder:first"
    assert names.of(SAME, "second") == names.of(SAME, "third") == names.of(SAME) == "vector:encoder:second"


def test_the_encoder_that_handed_it_out_last_gives_the_name() -> None:
    names = ValueNames()
    names.learn(SAME, "one", "text")
    names.learn(SAME, "two", "text")
    assert names.of(SAME, "text") == "vector:two:text"
    assert names.of(np.zeros(4, dtype=np.float32), "text") == "vector:unknown:"
