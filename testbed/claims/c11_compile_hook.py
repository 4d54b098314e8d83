"""C11: can the caches of torch.compile be watched without touching the model?"""

from __future__ import annotations

from testbed.claims.claim import ARTICLE, Claim, Findings, Limit, Row, Tier
from testbed.core.errors import Unavailable

# What the toy model is called with (sizes 4, 4, 8, 16, 16, another type, another device) can give nothing else.
EXPECTED = ("first", "shape", "dtype", "device")


def measure(tier: Tier) -> Findings:
    try:
        from testbed.models.runner import compiling
    except ImportError as error:
        raise Unavailable(f"{error.name}; pip install 'rag-testbed[runner]'") from error
    exists = compiling.published_hook_exists()
    report = compiling.toy(devices=("cpu", "meta"), generates_code=False)
    graphs: list[Row] = [
        {
            "graph": g.name,
            "cause": g.cause,
            "calls": g.calls,
            "hits": g.hits,
            "for changing shapes": g.is_dynamic,
            "reason": g.reasons[0] if g.reasons else "",
        }
        for g in report.graphs
    ]
    causes = tuple(g.cause for g in report.graphs)
    storms = compiling.storm()
    drift: list[Row] = [
        {
            "way": s.way,
            "sizes": s.sizes,
            "calls": s.calls,
            "graphs": s.graphs,
            "hits": s.hits,
            "uncompiled": s.eager,
        }
        for s in storms
    ]
    seen = causes == EXPECTED
    cost_s = compiling.cost_of_counting()
    fixed, automatic = storms[0], storms[1]
    why = (
        f"the published option {'exists' if exists else 'does not exist (assigning it is an error)'}; the public "
        f"counters {'tell all four causes apart' if seen else f'show {causes}, not {EXPECTED}'} on a toy model "
        f"({report.calls} calls, hit rate {report.hit_rate:.2f}, recompiles by "
        f"{', '.join(sorted(report.recompiles))}), and of {fixed.sizes} drifting lengths they show {fixed.graphs} "
        f"graphs and {fixed.eager} of {fixed.calls} calls that ran uncompiled, against {automatic.graphs} graphs and "
        f"{automatic.eager} when shapes may change"
    )
    return Findings(
        ruling="holds only if" if seen and not exists else "holds" if seen else "refuted",
        why=why,
        seeds=(),
        tables={"graphs": graphs, "drifting lengths": drift},
        limits=(Limit("hits of a toy model over its calls", report.hit_rate, 1.0),),
        timings={"watching_us_per_call": cost_s * 1e6},
        timing_note=f"{cost_s * 1e6:.2f} us a call",
    )


C11 = Claim(
    id="C11",
    title="hook on torch.compile",
    statement=(
        "A hook in the configuration of torch.compile shows cache hits per graph, splits by dynamic shape, and "
        "recompiles by type or device, without touching the model."
    ),
    source=ARTICLE,
    definitions=(
        "hook: torch._dynamo.config.cache_hook, as published",
        "counters: torch.compiler.set_stance(force_backend=...), get_compilation_metrics(), recompile messages",
        "drifting lengths: each called twice; compiled for each shape, for changing shapes, or padded to four lengths",
        "graphs are traced and guarded as always; no machine code is generated for the count",
    ),
    generator="none: fixed shapes",
    tolerance="none: counts are exact",
    limit="no more hits than calls",
    measure=measure,
)
