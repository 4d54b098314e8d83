"""Answers that a pruned KV cache has lost: what nobody had asked for yet drew no attention, and was dropped."""

from testbed.core.ports import Corpus
from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.pruning import RowsDropped
from testbed.fixes.pruning import HostTier, LargerWindow
from testbed.metrics.grounding import ANSWER_CONTAINMENT
from testbed.workloads.stream import Stream


def corpus() -> Corpus:
    from testbed.corpora.pages import PageCorpus

    return PageCorpus()


def variant(name: str, summary: str, fault: RowsDropped) -> Variant:
    return Variant(
        name=name,
        summary=summary,
        faults=(fault,),
        fixes=(HostTier(), LargerWindow()),
        workload=Stream(zipf_s=0.0),
        expect=Expect(ANSWER_CONTAINMENT, 0.20, "kv", ("host-tier",)),
        encoder="",
        expands_questions=False,
    )


SCENARIO = Scenario(
    name="kv-pruning",
    summary="a long page is read before it is asked about, and the KV rows that hold the answer are gone",
    dataset="pages",
    corpus=corpus,
    stack="testbed.stacks.pruned:build",
    layers=("kv", "text"),
    variants=(
        variant("cap", "the best blocks by attention stay, the rest is dropped", RowsDropped("dropped")),
        variant("window", "only the first and the last tokens stay", RowsDropped("window-only", max_blocks=0)),
        variant(
            "threshold",
            "blocks below a share of the best one are dropped, whatever room there is",
            RowsDropped("threshold", threshold=0.6, max_blocks=64),
        ),
    ),
)
