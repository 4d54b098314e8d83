from __future__ import annotations

import gc
import weakref

from testbed.core.types import Key
from testbed.fixes.invalidate import ByProvenance
from tests.dict_cache import DictCache

KEY = Key.of(text="q")
ANSWER = {"text": "30 ms", "sources": [["d1", 1, "the timeout is 30 ms"]]}


def test_a_partition_hears_of_changes_for_as_long_as_it_is_used() -> None:
    whole = ByProvenance(DictCache())
    part, dropped = whole.fresh(), whole.fresh()
    for cache in (whole, part):
        cache.put(KEY, ANSWER)
    gone = weakref.ref(dropped)
    del dropped
    gc.collect()
    assert gone() is None
    whole.invalidate("d1")
    assert whole.get(KEY) is part.get(KEY) is None
    part.put(KEY, ANSWER)
    part.invalidate("d2")
    assert part.get(KEY) == ANSWER
