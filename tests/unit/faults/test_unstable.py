from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from testbed.core.clock import LogicalClock
from testbed.core.names import ValueNames
from testbed.core.types import Key
from testbed.faults.unstable import KeyTurns, PublishedSignature, RawTextKey, WeakHash
from testbed.fixes.keys import RobustKey
from testbed.probes.trace import Recorder
from testbed.run.context import RunContext
from tests.contract.small_stack import Trace, small_stack


class Service:
    """A small stack under changes, with a clock to move."""

    def __init__(self, *changes: Any) -> None:
        self.clock = LogicalClock()
        ctx = RunContext(1, 1.0, self.clock, Recorder(Trace(), ValueNames(), self.clock.now))
        self.stack = small_stack(self.clock)
        self.on = ExitStack()
        for change in changes:
            self.on.enter_context(change.applied(self.stack, ctx))

    def put(self, at_s: float, value: Any, **parts: str) -> None:
        self.clock.move_to(at_s)
        self.stack.layers["answer"].put(Key.of(**parts), value)

    def get(self, at_s: float, **parts: str) -> Any:
        self.clock.move_to(at_s)
        return self.stack.layers["answer"].get(Key.of(**parts))


ASKED = {"text": "how long is the request timeout of the payment gateway?", "tenant": "a", "epoch": "1"}


@pytest.mark.parametrize(
    ("fault", "found_at", "lost_at"),
    [
        (KeyTurns("process", n=4), 4.0, 5.0),
        (KeyTurns("modified"), 0.5, 1.0),
        (KeyTurns("release", n=40), 39.0, 40.0),
        (KeyTurns("dtype"), 2.0, 1.0),
        (PublishedSignature(), 0.9, 1.0),
    ],
)
def test_a_key_that_turns_loses_its_entry_and_a_finished_key_does_not(
    fault: Any, found_at: float, lost_at: float
) -> None:
    for at_s, found in ((found_at, "v"), (lost_at, None)):
        service = Service(fault)
        service.put(0.0, "v", **ASKED)
        assert service.get(at_s, **ASKED) == found
    service = Service(fault, RobustKey())
    service.put(0.0, "v", **ASKED)
    assert service.get(lost_at, **ASKED) == "v"


def test_a_hash_of_the_request_hides_every_other_wording() -> None:
    longer = {**ASKED, "text": "how long is the request timeout of the payment gateway"}  # one vector, another text
    for fault, found in ((KeyTurns("request"), None), (KeyTurns("process", n=1), "v")):
        service = Service(fault)
        service.stack.semantic.gate = lambda a, b: True
        service.put(0.0, "v", **ASKED)
        assert service.get(0.0, **longer) == found
        assert service.get(0.0, **ASKED) == "v"


def test_a_text_that_the_store_refuses_is_never_found() -> None:
    service = Service(RawTextKey(limit_bytes=10))
    service.put(0.0, "v", **ASKED)
    service.put(0.0, "w", text="how long?", tenant="a")
    assert service.get(0.0, **ASKED) is None
    assert service.get(0.0, text="how long?", tenant="a") == "w"


@pytest.mark.parametrize("fault", [WeakHash(bits=1), PublishedSignature(salted=False)])
def test_a_key_that_says_too_little_is_shared_and_a_finished_one_is_not(fault: Any) -> None:
    others = [{**ASKED, "tenant": f"t{n}"} for n in range(8)]
    shared = Service(fault)
    shared.put(0.0, "v", **ASKED)
    assert any(shared.get(0.0, **other) == "v" for other in others)
    apart = Service(fault, RobustKey())
    apart.put(0.0, "v", **ASKED)
    assert all(apart.get(0.0, **other) is None for other in others)
    assert apart.get(0.0, **ASKED) == "v"
