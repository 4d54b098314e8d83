"""All published claims, measured one after the other: ``run`` prints a table and leaves one JSON file a claim."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from testbed.claims.c1_eviction import C1
from testbed.claims.c2_signature import C2
from testbed.claims.c3_key_fix import C3
from testbed.claims.c4_two_levels import C4
from testbed.claims.c5_dual_stack import C5
from testbed.claims.c6_freshness_judge import C6
from testbed.claims.c7_sparse_kv import C7
from testbed.claims.c8_version_in_key import C8
from testbed.claims.c9_tenant_context import C9
from testbed.claims.c10_joint_attribution import C10
from testbed.claims.c11_compile_hook import C11
from testbed.claims.claim import Claim, Findings, Tier, plain
from testbed.core.errors import Unavailable, unknown

CLAIMS: tuple[Claim, ...] = (C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11)


class Result(NamedTuple):
    claim: Claim
    findings: Findings


def run(
    tier: Tier = "small",
    *,
    only: Sequence[str] = (),
    out: Path = Path("results/claims"),
    say: Callable[[str], None] = print,
) -> list[Result]:
    """Measure the claims (all, or those with these ids), write ``out/<id>.json`` and ``.svg``, print a table.

    Raises
    ------
    InvalidInput : an id that no claim has.
    BrokenContract : a measured figure passes its physical limit.
    """
    by_id = {claim.id: claim for claim in CLAIMS}
    for name in only:
        if name not in by_id:
            raise unknown("claim", name, by_id)
    results = []
    for claim in CLAIMS:
        if only and claim.id not in only:
            continue
        result = Result(claim, measured(claim, tier))
        write(result, tier, out)
        say(line(result))
        results.append(result)
    return results


def measured(claim: Claim, tier: Tier) -> Findings:
    """The findings, with every limit asserted; "not measurable here" when something it needs is not installed."""
    try:
        findings = claim.measure(tier)
    except Unavailable as error:
        return Findings("not measurable here", f"needs: {error}", ())
    for limit in findings.limits:
        limit.check()
    return findings


def line(result: Result) -> str:
    claim, findings = result
    note = f" [{findings.timing_note}]" if findings.timing_note else ""
    return f"{claim.id:<4} {findings.ruling:<20} {claim.title}: {findings.why}{note}"


def write(result: Result, tier: Tier, out: Path) -> None:
    """One JSON file, and the plot beside it. Two runs differ in ``timings`` only."""
    out.mkdir(parents=True, exist_ok=True)
    claim, findings = result
    about = {k: v for k, v in asdict(claim).items() if k != "measure"}
    data = {
        "claim": about,
        "tier": tier,
        "ruling": findings.ruling,
        "why": findings.why,
        "seeds": findings.seeds,
        "intervals": findings.intervals,
        "limits": findings.limits,
        "tables": findings.tables,
        "timings": {**findings.timings, "note": findings.timing_note},
    }
    text = json.dumps(plain(data), indent=1, ensure_ascii=False, allow_nan=False)
    (out / f"{claim.id}.json").write_text(text + "\n", encoding="utf-8")
    if findings.plot:
        (out / f"{claim.id}.svg").write_text(findings.plot, encoding="utf-8")
