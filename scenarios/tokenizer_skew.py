"""Index and questions are cut into words by two versions of a segmenter: Chinese, with or without a user dictionary."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.skew import UnchangedSkipped
from testbed.fixes.versions import Adapter, ManifestAssertion, ReEmbed
from testbed.workloads.stream import Stream

FIXES = (ManifestAssertion(), ReEmbed(), Adapter(sample=60))


def cut_by(name: str, summary: str, before: str, after: str) -> Variant:
    return Variant(
        name=name,
        summary=summary,
        faults=(UnchangedSkipped(share=1.0),),
        fixes=FIXES,
        workload=Stream(upgrade=after, upgrade_at=0.2),
        encoder=before,
        expect=Expect("MRR@5", 0.10, "index", ("re-embed",), ("lineage",)),
        anomalies=("F5-13", "F5-17"),
    )


SCENARIO = Scenario(
    name="tokenizer-skew",
    summary="the words of the index are not the words of the questions; same weights, same name, same dimension",
    dataset="handbook-zh",
    shows_versions=True,
    variants=(
        cut_by(
            "dictionary-added",
            "a user dictionary is deployed with the questions' side; the index keeps its words",
            "lsa-jieba",
            "lsa-jieba-user",
        ),
        cut_by(
            "dictionary-lost",
            "the index was built with a user dictionary, which the new release does not load",
            "lsa-jieba-user",
            "lsa-jieba",
        ),
    ),
)
