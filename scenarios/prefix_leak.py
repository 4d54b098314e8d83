"""KV blocks of another text, adapter or tenant: a language model's prefix cache names them by too little."""

from testbed.core.ports import Change, Corpus
from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.prefix import LossyRows, NotPinned, WeakKey
from testbed.fixes.prefix import PinBlocks, TypedPrefixKey, VerifyBlocks
from testbed.metrics.grounding import ANSWER_CONTAINMENT
from testbed.metrics.scores import LEAK_RATE
from testbed.workloads.stream import Stream

RIGHT = ANSWER_CONTAINMENT  # the answer is the one that the model gives when it computes everything anew
KEYS = ("typed-prefix-key", "verify-blocks")
LOSSES, LEAKS = ("dict-with-losses",), ("dict-with-losses", "no-cross-tenant")


def corpus() -> Corpus:
    """The prompts, with the answers of a model that keeps nothing."""
    from testbed.stacks import prefixed

    return prefixed.corpus()


def variant(
    name: str, summary: str, fault: Change, expect: Expect, anomalies: tuple[str, ...], reload: bool
) -> Variant:
    return Variant(
        name=name,
        summary=summary,
        faults=(fault,),
        fixes=(TypedPrefixKey(), VerifyBlocks(), PinBlocks()),
        workload=Stream(edits=("reload",) if reload else ()),
        expect=expect,
        anomalies=anomalies,
        encoder="",
        expands_questions=False,
    )


SCENARIO = Scenario(
    name="prefix-leak",
    summary="a language model reads on from KV blocks of another text, adapter or tenant",
    dataset="prompts",
    corpus=corpus,
    stack="testbed.stacks.prefixed:build",
    layers=("prefix", "text"),
    variants=(
        variant(
            "salt-is-adapter",
            "adapter and salt are one untyped tuple: a tenant called like an adapter gets the adapter's blocks",
            WeakKey("untagged-parts"),
            Expect(RIGHT, 0.10, "prefix", KEYS, LEAKS),
            ("F10-01",),
            reload=False,
        ),
        variant(
            "reload",
            "the adapter's name stands for its weights: after a reload, blocks of the old ones are used",
            WeakKey("adapter-by-name", ("keys", "outer_keys")),
            Expect(RIGHT, 0.20, "prefix", KEYS, (*LOSSES, "freshness")),
            ("F10-02", "F10-03"),
            reload=True,
        ),
        variant(
            "no-adapter",
            "the adapter is not in the key: its requests and the base model's share blocks",
            WeakKey("no-adapter"),
            Expect(RIGHT, 0.10, "prefix", KEYS, LOSSES),
            ("F10-04", "F10-07"),
            reload=False,
        ),
        variant(
            "outer-tier",
            "the tier behind the cache derives a key of its own, from the tokens alone",
            WeakKey("tokens-only", ("outer_keys",)),
            Expect(RIGHT, 0.10, "prefix", KEYS, LEAKS),
            ("F10-05", "F10-06"),
            reload=False,
        ),
        variant(
            "no-tenant",
            "the tenant is not in the key: what one has asked is a hit for another",
            WeakKey("no-tenant"),
            Expect(LEAK_RATE, 0.10, "prefix", KEYS, LEAKS),
            (),
            reload=False,
        ),
        variant(
            "truncated-hash",
            "names are cut to a few bits: texts share blocks, of one tenant and of several",
            WeakKey("truncated-hash"),
            Expect(RIGHT, 0.10, "prefix", KEYS, LEAKS),
            (),
            reload=False,
        ),
        variant(
            "hit-path",
            "blocks are kept in fewer bits than they are computed in: a hit is answered otherwise than a miss",
            LossyRows(),
            Expect(RIGHT, 0.10, "prefix", ("verify-blocks",), LOSSES),
            (),
            reload=False,
        ),
        variant(
            "load-back",
            "blocks of a prompt are evicted while the rest of it is loaded back from the outer tier",
            NotPinned(),
            Expect(RIGHT, 0.05, "prefix", ("pin-blocks", "verify-blocks"), LOSSES),
            (),
            reload=False,
        ),
    ),
)
