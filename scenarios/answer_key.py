"""An answer key that leaves out what made the answer: the model, its weights, the prompt and its settings."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.keys import KeyPartDropped
from testbed.fixes.given import BRIEF, TwoPrompts
from testbed.fixes.keys import PromptKey, RobustKey, VersionedKey
from testbed.workloads.stream import Stream

SCENARIO = Scenario(
    name="answer-key",
    summary="the answer cache serves what another model, prompt or setting has said",
    dataset="ledger",
    variants=(
        Variant(
            name="prompt",
            summary="two prompts in one service, and neither it nor its settings are in the key",
            faults=(KeyPartDropped("answer", "prompt"),),
            fixes=(PromptKey(), RobustKey()),
            workload=Stream(prompts=("", BRIEF)),
            expect=Expect("bad hits[answer]", 0.05, "answer", ("prompt-key", "robust-key"), ("dict-with-losses",)),
            anomalies=("F2-02", "F2-04", "F2-05", "F2-07"),
            given=(TwoPrompts(),),
        ),
        Variant(
            name="model",
            summary="the model is replaced by a better one, and answers of the old one stay under its name",
            faults=(KeyPartDropped("answer", "model"),),
            fixes=(VersionedKey(), RobustKey()),
            workload=Stream(upgrade="minilm", upgrade_at=0.5),
            encoder="lsa-384",
            expect=Expect("bad hits[answer]", 0.05, "answer", ("versioned-key", "robust-key"), ("dict-with-losses",)),
            anomalies=("F2-01",),
        ),
    ),
)
