from __future__ import annotations

import numpy as np

from testbed.core.scenario import Arm
from testbed.core.types import Doc, Upgrade
from testbed.faults.skew import UnchangedSkipped
from testbed.fixes.versions import Adapter, ManifestAssertion, ReEmbed
from testbed.run.arms import changed
from tests.contract.small_stack import DOCS, WordEncoder, small_stack
from tests.contract.test_changes import context

NEW = "words-2"


def upgraded(*fixes: object) -> tuple[dict[str, str], list[str]]:
    """Who made the rows after an upgrade that left them all behind, and what a search then finds."""
    stack = small_stack()
    arm = Arm("x", (UnchangedSkipped(share=1.0),), fixes)  # type: ignore[arg-type]
    with changed(stack, arm, context()):
        stack.upsert(DOCS)
        stack.upgrade(Upgrade(NEW))
        vector = WordEncoder(NEW).encode(["request timeout gateway"], "query")[0]
        found = [h.doc_id for h in stack.search(vector, "acme")]
        return {i: row.made_by for i, row in stack.index.rows().items()}, found


def test_skipping_what_has_not_changed_leaves_every_old_vector() -> None:
    made_by, _ = upgraded()
    assert set(made_by.values()) == {"words-1"} and len(made_by) == len(DOCS)


def test_re_embedding_brings_every_row_to_the_encoder_in_force() -> None:
    made_by, found = upgraded(ReEmbed())
    assert set(made_by.values()) == {NEW} and len(made_by) == len(DOCS)
    assert found[0] == "acme-gateway"


def test_an_assertion_refuses_every_row_of_another_encoder() -> None:
    assert upgraded(ManifestAssertion()) == ({}, [])


def test_an_adapter_maps_every_row_and_keeps_unit_norm() -> None:
    made_by, found = upgraded(Adapter(sample=50, ridge=1e-6))
    assert set(made_by.values()) == {NEW}
    assert found[0] == "acme-gateway"


def test_changed_documents_are_never_skipped() -> None:
    stack = small_stack()
    with changed(stack, Arm("x", (UnchangedSkipped(share=1.0),)), context()):
        stack.upsert(DOCS)
        stack.upsert([Doc("acme-gateway", "Something else.", "acme", 2)])
        assert stack.index.rows()["acme-gateway"].version == 2
        assert np.isfinite(stack.encoder.encode(["x"], "query")).all()
