"""C9: does ``tenant|trace`` keep tenants apart?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from testbed.caches.gate import same_numbers_negations_entities as gate
from testbed.caches.semantic import SemanticCache
from testbed.claims import data, plot
from testbed.claims.claim import ARTICLE, Claim, Findings, Limit, Row, Tier
from testbed.claims.pairs import TEXTS
from testbed.core import seeds
from testbed.core.ports import Vectors
from testbed.core.types import Key

THRESHOLD = 0.8
TENANTS = ("acme", "globex", "initech")


class Scale(NamedTuple):
    n_texts: int
    n_tasks: int


SCALES: Mapping[Tier, Scale] = {"small": Scale(30, 300), "full": Scale(len(TEXTS), 3000)}


def prefixed(tenant: str, text: str) -> str:
    return f"{tenant}|trace-0017 {text}"


def similarity(texts: Sequence[str]) -> list[float]:
    """Cosine of one question under the prefixes of two tenants, for every question and pair of tenants."""
    vectors = {t: data.vectors([prefixed(t, text) for text in texts]) for t in TENANTS}
    pairs = [(a, b) for i, a in enumerate(TENANTS) for b in TENANTS[i + 1 :]]
    return [float(x) for a, b in pairs for x in np.round((vectors[a] * vectors[b]).sum(axis=1, dtype=np.float64), 6)]


def leaks(texts: Sequence[str], key: Callable[[str, str], Key], second_gate: Callable[[str, str], bool]) -> float:
    """Share of questions of the second and third tenant that are answered with an entry of another tenant."""
    known: dict[str, Vectors] = {}

    def embed(text: str) -> Vectors:
        if text not in known:
            known[text] = data.vectors([text])[0]
        return known[text]

    data.vectors([prefixed(t, text) for t in TENANTS for text in texts])  # in one go: fills the encoder's memo
    cache = SemanticCache(embed, THRESHOLD, second_gate)
    foreign = 0
    for tenant in TENANTS:
        for text in texts:
            owner = cache.get(key(tenant, text))
            foreign += owner is not None and owner != tenant
        for text in texts:
            cache.put(key(tenant, text), tenant)
    return foreign / (len(texts) * (len(TENANTS) - 1))


def tasks(n: int, seed: int) -> list[Row]:
    """Interleaved requests that set their tenant, give way, and read it back: how many read another's?"""
    rng = seeds.stream(seed, "c9")
    plan = [(TENANTS[rng.randrange(3)], f"trace-{rng.randrange(40):02d}", rng.randrange(3)) for _ in range(n)]
    shared: dict[str, str] = {}
    context: ContextVar[tuple[str, str]] = ContextVar("context")
    wrong = {"one shared variable": 0, "by trace id": 0, "by tenant|trace": 0, "context variable, typed": 0}

    async def request(tenant: str, trace: str, naps: int) -> None:
        names = {"one shared variable": "now", "by trace id": trace, "by tenant|trace": f"{tenant}|{trace}"}
        for how, name in names.items():
            shared[f"{how}/{name}"] = tenant
        context.set((tenant, trace))
        for _ in range(1 + naps):
            await asyncio.sleep(0)
        for how, name in names.items():
            wrong[how] += shared[f"{how}/{name}"] != tenant
        wrong["context variable, typed"] += context.get() != (tenant, trace)

    async def all_requests() -> None:
        await asyncio.gather(*(request(*each) for each in plan))

    asyncio.run(all_requests())
    return [{"context": how, "requests": n, "read another tenant": count / n} for how, count in wrong.items()]


def separator() -> list[Row]:
    """Two tenants whose joined names meet, and whose typed ones do not."""
    one, other = ("acme", "x|trace-1"), ("acme|x", "trace-1")
    typed = [Key.of(tenant=t, trace=r).digest() for t, r in (one, other)]
    return [
        {"key": "tenant|trace", "meet": "|".join(one) == "|".join(other)},
        {"key": "typed", "meet": typed[0] == typed[1]},
    ]


def measure(tier: Tier) -> Findings:
    scale = SCALES[tier]
    texts = TEXTS[: scale.n_texts]
    near = similarity(texts)
    share_near = sum(x >= THRESHOLD for x in near) / len(near)

    def soft(tenant: str, text: str) -> Key:
        return Key.of(text=prefixed(tenant, text))

    def typed(tenant: str, text: str) -> Key:
        return Key.of(text=text, tenant=tenant)

    def anything(asked: str, stored: str) -> bool:
        return True

    rows: list[Row] = [
        {"key": "prefix in the text", "second gate": "none", "leaks": leaks(texts, soft, anything)},
        {"key": "prefix in the text", "second gate": "numbers, negation, names", "leaks": leaks(texts, soft, gate)},
        {"key": "typed part", "second gate": "none", "leaks": leaks(texts, typed, anything)},
    ]
    interleaved = tasks(scale.n_tasks, 1)
    crossing = {str(row["context"]): float(row["read another tenant"]) for row in interleaved}
    why = (
        f"as a prefix of the text it leaks: similarity {sum(near) / len(near):.3f} on average, "
        f"{100 * share_near:.0f} % over {THRESHOLD}, so {100 * float(rows[0]['leaks']):.0f} % of the questions get "
        f"another tenant's answer ({100 * float(rows[1]['leaks']):.0f} % behind the gate); as a typed part of the key "
        f"{100 * float(rows[2]['leaks']):.0f} %; of interleaved requests {100 * crossing['one shared variable']:.0f} % "
        f"read another tenant from a shared variable, {100 * crossing['by trace id']:.0f} % by trace id, "
        f"{100 * crossing['by tenant|trace']:.0f} % by tenant|trace; a tenant's name with '|' in it still meets another"
    )
    return Findings(
        ruling="holds only if",
        why=why,
        seeds=(1,),
        tables={"semantic cache": rows, "interleaved requests": interleaved, "separator": separator()},
        limits=(
            Limit("leaks of the typed key", float(rows[2]["leaks"]), 0.0),
            Limit("crossings of the context variable", crossing["context variable, typed"], 0.0),
            Limit("similarity", max(near), 1.0 + 1e-6),
        ),
        plot=plot.bars(
            "Answers of another tenant",
            "share of questions",
            {
                f"{row['key']}, gate: {str(row['second gate']).split(',')[0]}": {"leaks": float(row["leaks"])}
                for row in rows
            },
            y_max=1.0,
        ),
    )


C9 = Claim(
    id="C9",
    title="tenant-scoped context",
    statement="tenant_id|trace_id in the context keeps the traces and contexts of tenants apart.",
    source=ARTICLE,
    definitions=(
        "in the text: the prefix is embedded with the question, served by a semantic cache at cosine >= 0.8",
        "in the key: tenant is a typed part that must be equal",
        "in a context: a variable that interleaved requests set and read back; 40 trace ids shared by all tenants",
    ),
    generator="own questions asked by three tenants, one after the other; interleaving by seed 1",
    tolerance="none: a leak is a leak",
    limit="a typed part and a context variable cross in 0 cases",
    measure=measure,
)
