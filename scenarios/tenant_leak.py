"""Another tenant's answers, rankings or vectors: a cache key, an index or a request context forgets who asks."""

from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.keys import KeyPartDropped
from testbed.faults.tenancy import PostFilter, SharedTraceContext, TenantInText
from testbed.fixes.guard import VerifyOnRead
from testbed.fixes.keys import TypedTenantKey
from testbed.fixes.partition import HardPartition, TenantScopedContext
from testbed.workloads.stream import Stream

FIXES = (TypedTenantKey(), HardPartition(), VerifyOnRead())
STREAM = Stream()
LEAKS = ("no-cross-tenant", "dict-with-losses")

SCENARIO = Scenario(
    name="tenant-leak",
    summary="answers, rankings or vectors of one tenant served to another",
    dataset="ledger",
    variants=(
        Variant(
            name="answer-key",
            summary="the answer cache's key leaves the tenant out",
            faults=(KeyPartDropped("answer", "tenant"),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect("true", 0.10, "answer", ("typed-tenant-key", "hard-partition", "verify-on-read"), LEAKS),
            anomalies=("F9-04", "F9-05", "F9-11", "F9-12"),
        ),
        Variant(
            name="retrieval-key",
            summary="the retrieval cache's key leaves the tenant out: rankings of another tenant's documents",
            faults=(KeyPartDropped("retrieval", "tenant"),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect("MRR@5", 0.10, "retrieval", ("typed-tenant-key", "hard-partition", "verify-on-read"), LEAKS),
            anomalies=("F9-11",),
        ),
        Variant(
            name="embedding-key",
            summary="the embedding cache's key leaves the tenant out: vectors of another tenant's expanded question",
            faults=(KeyPartDropped("embedding", "tenant", role="query"),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect(
                "MRR@5",
                0.02,
                "embedding",
                ("typed-tenant-key", "hard-partition", "verify-on-read"),
                ("dict-with-losses",),
            ),
            anomalies=("F3-03",),
        ),
        Variant(
            name="post-filter",
            summary="one index for all tenants, cut to k before it is filtered: the asker's documents do not make it",
            faults=(PostFilter(),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect("MRR@5", 0.05, "index", ("hard-partition",)),
            expands_questions=False,
        ),
        Variant(
            name="text-prefix",
            summary="the tenant is a prefix of the cached text: too little for the semantic cache",
            faults=(TenantInText(),),
            fixes=FIXES,
            workload=STREAM,
            expect=Expect("true", 0.05, "answer", ("typed-tenant-key", "hard-partition", "verify-on-read"), LEAKS),
            anomalies=("F9-01",),
        ),
        Variant(
            name="trace-context",
            summary="the tenant is looked up by a trace id that tenants share",
            faults=(SharedTraceContext(),),
            fixes=(TenantScopedContext(), *FIXES),
            workload=STREAM,
            expect=Expect(
                "true", 0.05, "answer", ("tenant-scoped-context", "typed-tenant-key", "hard-partition"), LEAKS
            ),
        ),
    ),
)
