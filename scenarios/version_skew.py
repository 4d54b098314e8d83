"""Parts of different versions under one name: old vectors beside new ones, with no error anywhere."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.keys import KeyPartDropped
from testbed.faults.skew import UnchangedSkipped
from testbed.fixes.keys import VersionedKey
from testbed.fixes.versions import Adapter, ManifestAssertion, ReEmbed
from testbed.workloads.stream import Stream

FIXES = (ManifestAssertion(), ReEmbed(), Adapter(), VersionedKey())

SCENARIO = Scenario(
    name="version-skew",
    summary="tokenizer, model and index of different versions, all called by the same name",
    dataset="ledger",
    shows_versions=True,
    variants=(
        Variant(
            name="half-index",
            summary="the encoder is swapped for another of the same dimension; half of the old vectors stay",
            faults=(UnchangedSkipped(share=0.5),),
            fixes=FIXES,
            workload=Stream(upgrade="minilm", upgrade_at=0.2),
            encoder="lsa-384",
            expect=Expect("MRR@5", 0.10, "index", ("re-embed",), ("lineage",)),
            anomalies=("F5-01", "F5-02", "F5-03", "F5-06", "F5-11"),
        ),
        Variant(
            name="query-cache",
            summary="query vectors of the old model stay in the embedding cache, whose key holds the model's name only",
            faults=(KeyPartDropped("embedding", "model", role="query"),),
            fixes=FIXES,
            workload=Stream(upgrade="minilm", upgrade_at=0.5),
            encoder="lsa-384",
            expect=Expect("MRR@5", 0.05, "embedding", ("versioned-key",), ("lineage", "dict-with-losses")),
            anomalies=("F3-06", "F3-08"),
        ),
        Variant(
            name="tokenizer",
            summary="the index was built with a cased tokenizer, questions are cut by an uncased one; same weights",
            faults=(UnchangedSkipped(share=1.0),),
            fixes=FIXES,
            workload=Stream(upgrade="minilm", upgrade_at=0.2),
            encoder="minilm-cased",
            expect=Expect("MRR@5", 0.05, "index", ("re-embed",), ("lineage",)),
            anomalies=("F5-13", "F5-16", "F5-17"),
        ),
        Variant(
            name="chunker",
            summary="the index was built from documents cut after a few words; what comes later cannot be found",
            faults=(UnchangedSkipped(share=1.0),),
            fixes=FIXES,
            workload=Stream(upgrade="minilm", upgrade_at=0.2),
            encoder="minilm-short",
            expect=Expect("MRR@5", 0.05, "index", ("re-embed",), ("lineage",)),
            anomalies=("F5-15",),
        ),
    ),
)
