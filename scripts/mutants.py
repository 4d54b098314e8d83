"""Small mistakes in the stack's own code, and which rule notices each.

    python scripts/mutants.py                    all of them
    python scripts/mutants.py answer-key-no-tenant faiss-best-lost

Each mutant is one edit of one source file in a copy of the package. Runs of the unchanged copy are recorded as
baselines; the same runs with the mutant in it, small ones first, are then held to them by the gate, until it fails:

error        the run ends with an error
invariants   and the other rules of the gate (docs/gate.md): expect, metric, ...
exact        no rule fails, but the trace is another: a failure with EXACT=1, a note without

What is not noticed at all is listed with the reason that is written beside the mutant; a survivor without a reason is a
hole in the gate, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
QUERIES, SEED = (120, 400), 42  # what the short runs do not show, the long ones may
LIMIT_S = 300
EXACT = "exact"


class Cell(NamedTuple):
    """A small run: scenario, variant, the arms that are looked at."""

    scenario: str
    variant: str
    arms: tuple[str, ...] = ("clean",)


TENANTS = Cell("tenant-leak", "answer-key")
EDITS = Cell("semantic-drift", "all")
UPGRADE = Cell("version-skew", "query-cache")
CLEAN = (TENANTS, EDITS, UPGRADE)


def fixed(scenario: str, variant: str, fix: str) -> tuple[Cell, ...]:
    return (Cell(scenario, variant, ("clean", "faulty", f"faulty+{fix}")),)


def twins(*kinds: str) -> tuple[Cell, ...]:
    """Clean runs on questions that only look alike."""
    return tuple(Cell("false-hit", kind) for kind in kinds)


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` stands once in the file and becomes ``new``. ``excuse``: why nothing can or need notice it.

    ``equivalent``: no request that this stack can get is answered differently, so that there is nothing to notice.
    """

    name: str
    file: str
    old: str
    new: str
    cells: tuple[Cell, ...] = CLEAN
    excuse: str = ""
    equivalent: bool = False


PIPELINE, SOURCE = "stacks/pipeline.py", "stacks/source.py"
SEMANTIC, TIERED, REDIS = "caches/semantic.py", "caches/tiered.py", "caches/redis.py"
FAISS, GATE, READER = "stores/faiss.py", "caches/gate.py", "models/reader.py"
_MODEL = "            model=self.encoder.fingerprint[:12],\n"
_ANSWER = "            tenant=tenant,\n" + _MODEL + "            prompt=self.reader.name,\n"
_RETRIEVAL = "            tenant=query.tenant,\n" + _MODEL + "            k=str(self.k),\n"
_EMBEDDING = "Key.of(text=text, tenant=tenant, model=self.encoder.fingerprint[:12], role=role)"
_EPOCH = "            epoch=str(self.source.epoch({})),\n"

MUTANTS = (
    # -- a part of a key --
    Mutant("answer-key-no-tenant", PIPELINE, _ANSWER, _ANSWER.replace("            tenant=tenant,\n", "")),
    Mutant(
        "answer-key-no-model",
        PIPELINE,
        _ANSWER,
        _ANSWER.replace("            model=self.encoder.fingerprint[:12],\n", ""),
        (*CLEAN, Cell("answer-key", "model")),
    ),
    Mutant(
        "answer-key-no-prompt",
        PIPELINE,
        "            prompt=self.reader.name,\n",
        "",
        (*CLEAN, Cell("answer-key", "prompt")),
    ),
    Mutant("answer-key-no-epoch", PIPELINE, _EPOCH.format("tenant"), ""),
    Mutant("answer-key-epoch-of-nobody", PIPELINE, _EPOCH.format("tenant"), _EPOCH.format('""')),
    Mutant(
        "answer-key-one-epoch-behind",
        PIPELINE,
        _EPOCH.format("tenant"),
        _EPOCH.format("tenant").replace("(tenant)", "(tenant) // 2"),
    ),
    Mutant(
        "answer-key-first-word",
        PIPELINE,
        "            text=query.text,\n            tenant=tenant,",
        "            text=query.text[:24],\n            tenant=tenant,",
    ),
    Mutant(
        "retrieval-key-no-tenant", PIPELINE, _RETRIEVAL, _RETRIEVAL.replace("            tenant=query.tenant,\n", "")
    ),
    Mutant(
        "retrieval-key-no-model",
        PIPELINE,
        _RETRIEVAL,
        _RETRIEVAL.replace("            model=self.encoder.fingerprint[:12],\n", ""),
        (*CLEAN, Cell("version-skew", "chunker")),
    ),
    Mutant(
        "retrieval-key-no-epoch",
        PIPELINE,
        _EPOCH.format("query.tenant"),
        "",
        (*CLEAN, Cell("deleted-comes-back", "wrong-selector")),
    ),
    Mutant(
        "retrieval-key-no-k",
        PIPELINE,
        "            k=str(self.k),\n",
        "",
        excuse="k does not change while a stack lives",
        equivalent=True,
    ),
    Mutant("embedding-key-no-tenant", PIPELINE, _EMBEDDING, _EMBEDDING.replace(" tenant=tenant,", "")),
    Mutant(
        "embedding-key-no-model", PIPELINE, _EMBEDDING, _EMBEDDING.replace(" model=self.encoder.fingerprint[:12],", "")
    ),
    Mutant("embedding-key-by-name", PIPELINE, _EMBEDDING, _EMBEDDING.replace("fingerprint[:12]", "name")),
    Mutant(
        "embedding-key-no-role",
        PIPELINE,
        _EMBEDDING,
        _EMBEDDING.replace(", role=role", ""),
        excuse="no question of these streams is also the text of a document; both encoders embed the two roles alike",
        equivalent=True,
    ),
    Mutant(
        "key-digest-8-bits",
        "core/types.py",
        "return digest.of_parts(self.parts)",
        "return digest.of_parts(self.parts)[:2]",
    ),
    Mutant(
        "key-digest-values-only",
        "core/types.py",
        "return digest.of_parts(self.parts)",
        'return digest.of_parts((("", v) for _, v in self.parts))',
        excuse="each layer has its namespace, and inside one no two keys differ in the names of their parts alone",
        equivalent=True,
    ),
    Mutant(
        "key-digest-drops-last-part",
        "core/types.py",
        "return digest.of_parts(self.parts)",
        "return digest.of_parts(self.parts[:-1])",
    ),
    # -- who asks --
    Mutant("context-nobody", "stacks/context.py", "return query.tenant", 'return ""'),
    Mutant(
        "search-all-tenants",
        PIPELINE,
        "self.index.search(vector, tenant=tenant,",
        "self.index.search(vector, tenant=None,",
    ),
    Mutant(
        "semantic-group-no-tenant",
        SEMANTIC,
        'return key.without("text"), key.get("text")',
        'return key.without("text", "tenant"), key.get("text")',
    ),
    Mutant(
        "semantic-group-no-epoch",
        SEMANTIC,
        'return key.without("text"), key.get("text")',
        'return key.without("text", "epoch"), key.get("text")',
    ),
    Mutant(
        "semantic-group-no-model",
        SEMANTIC,
        'return key.without("text"), key.get("text")',
        'return key.without("text", "model"), key.get("text")',
    ),
    # -- an invalidation --
    Mutant("epoch-stands-still", SOURCE, "        self._moved(touched)\n", ""),
    Mutant("epoch-moves-once", SOURCE, "self._epochs.get(tenant, 0) + 1", "1"),
    Mutant("epoch-of-all-only", SOURCE, "return self._epochs.get(tenant, 0) + (", "return ("),
    Mutant(
        "record-keeps-first",
        SOURCE,
        "self._docs[doc.id] = doc",
        "self._docs.setdefault(doc.id, doc)",
        fixed("semantic-drift", "all", "revision-check"),  # the one that asks the record for a revision
    ),
    Mutant(
        "edit-skips-index",
        PIPELINE,
        "        self.index_docs(batch)\n",
        "        self.index_docs([d for d in batch if d.version == 1])\n",
    ),
    Mutant(
        "edit-skips-text",
        PIPELINE,
        "passage_value(d)) for d in batch])",
        "passage_value(d)) for d in batch if d.version == 1])",
    ),
    Mutant("upgrade-keeps-index", PIPELINE, "        self.index_docs(self.source.docs())\n", ""),
    Mutant(
        "upgrade-every-other",
        PIPELINE,
        "self.index_docs(self.source.docs())",
        "self.index_docs(self.source.docs()[::2])",
    ),
    Mutant(
        "upgrade-all-but-one",
        PIPELINE,
        "self.index_docs(self.source.docs())",
        "self.index_docs(self.source.docs()[1:])",
    ),
    # -- order and place --
    Mutant(
        "batch-reversed",
        PIPELINE,
        "self.encoder.encode(inputs, role), strict=True))",
        "self.encoder.encode(inputs, role)[::-1], strict=True))",
    ),
    Mutant(
        "batch-shifted",
        PIPELINE,
        "self.encoder.encode(inputs, role), strict=True))",
        "[*self.encoder.encode(inputs, role)[1:], *self.encoder.encode(inputs, role)[:1]], strict=True))",
    ),
    Mutant("ranking-reversed", PIPELINE, "return [h.doc_id for h in hits]", "return [h.doc_id for h in hits][::-1]"),
    Mutant(
        "ranking-cached-short",
        PIPELINE,
        "for h in hits]})",
        "for h in hits[1:]]})",
        (*CLEAN, Cell("long-tail-eviction", "fifo")),  # where answers go, and their rankings stay
    ),
    Mutant(
        "linked-pages-forgotten",
        PIPELINE,
        "linked = self.passages(sorted({r for p in passages for r in p.refs} - {p.doc_id for p in passages}))",
        "linked: list[Passage] = []",
    ),
    Mutant(
        "question-not-expanded", PIPELINE, 'self.expanded(*texts[i]) if role == "query" else texts[i][0]', "texts[i][0]"
    ),
    Mutant(
        "texts-misaligned",
        REDIS,
        "key.digest() for key in keys[start : start + _BATCH]]",
        "key.digest() for key in keys[start : start + _BATCH]][::-1]",
    ),
    Mutant(
        "first-of-batch-lost",
        REDIS,
        "for k, v in items[start : start + _BATCH]}",
        "for k, v in items[start + (len(items) > 1) : start + _BATCH]}",
    ),
    # -- the semantic tier --
    Mutant("gate-open", SEMANTIC, "if stored != text and self.gate(text, stored):", "if stored != text:"),
    Mutant("gate-shut", SEMANTIC, "if stored != text and self.gate(text, stored):", "if False:"),
    Mutant(
        "semantic-own-text-skipped",
        SEMANTIC,
        "        if text in group:\n            yield text\n",
        "",
        excuse="the exact tier before it has that text already",
        equivalent=True,
    ),
    Mutant("semantic-capacity-one", "stacks/reference.py", "SEMANTIC_CAPACITY = 4096", "SEMANTIC_CAPACITY = 1"),
    Mutant(
        "semantic-evicts-newest",
        SEMANTIC,
        "self.delete(next(iter(self._used)))",
        "self.delete(next(reversed(self._used)))",
        excuse="4096 entries are never reached by these streams; tests/unit/caches/test_semantic.py sees it",
    ),
    Mutant(
        "threshold-loose",
        "stacks/reference.py",
        "SEMANTIC_THRESHOLD = 0.85",
        "SEMANTIC_THRESHOLD = 0.4",
        excuse="the gate decides; a loose threshold only costs time",
    ),
    Mutant("threshold-tight", "stacks/reference.py", "SEMANTIC_THRESHOLD = 0.85", "SEMANTIC_THRESHOLD = 0.99"),
    Mutant(
        "second-tier-not-written",
        TIERED,
        "            tier.put(key, value, ttl_s=ttl_s)\n",
        "            tier.put(key, value, ttl_s=ttl_s)\n            break\n",
    ),
    Mutant(
        "second-tier-not-read",
        TIERED,
        "            if value is not None:\n                return value\n        return None",
        "            return value\n        return None",
    ),
    Mutant("gate-ignores-content", GATE, "        and (a.content == b.content or _turned_round(a, b))\n", ""),
    Mutant("gate-ignores-names", GATE, "        and a.names == b.names\n", "", twins("entity", "role-swap")),
    Mutant(
        "gate-ignores-numbers",
        GATE,
        "        a.numbers == b.numbers\n        and a.names",
        "        a.names",
        twins("number", "date"),
    ),
    Mutant(
        "gate-ignores-negation",
        GATE,
        "        and a.negations == b.negations\n",
        "",
        twins("negation"),
        excuse="where these streams negate, another word differs too; tests/unit/caches/test_gate.py sees it",
    ),
    Mutant(
        "gate-ignores-what-is-asked",
        GATE,
        "        and _compatible(a.asks_for, b.asks_for)\n",
        "",
        twins("quantifier", "unit"),
        excuse="no two questions here differ in what is asked for alone; tests/unit/caches/test_gate.py sees it",
    ),
    # -- expiry --
    Mutant(
        "expiry-inverted",
        "caches/codec.py",
        "if _EXPIRY.unpack_from(entry)[0] <= now_s:",
        "if _EXPIRY.unpack_from(entry)[0] >= now_s:",
    ),
    Mutant(
        "expiry-in-milliseconds",
        REDIS,
        "math.inf if ttl_s is None else self._clock.now() + ttl_s",
        "self._clock.now() + (0.05 if ttl_s is None else ttl_s / 1000)",
    ),
    # -- the index --
    Mutant(
        "faiss-best-lost",
        FAISS,
        "return [(self._ids[i], self.live[self._ids[i]][1].vector) for _, i in kept]",
        "return [(self._ids[i], self.live[self._ids[i]][1].vector) for _, i in kept[1:]]",
    ),
    Mutant(
        "faiss-partition-shared",
        FAISS,
        "by_tenant.setdefault(row.tenant, []).append(row)",
        'by_tenant.setdefault("", []).append(row)',
    ),
    Mutant("faiss-tombstones-live", FAISS, "return held is not None and held[0] == label", "return held is not None"),
    Mutant("faiss-rebuild-loses-one", FAISS, "            self.add(rows)\n", "            self.add(rows[1:])\n"),
    Mutant(
        "faiss-label-off-by-one",
        FAISS,
        "self.live[row.doc_id] = (len(self._ids), row)",
        "self.live[row.doc_id] = (len(self._ids) - 1, row)",
    ),
    Mutant(
        "index-ascending",
        "stores/exact.py",
        'order = np.argsort(-scores, kind="stable")[:k]',
        'order = np.argsort(scores, kind="stable")[:k]',
    ),
    Mutant("index-k-off-by-one", "stores/exact.py", 'kind="stable")[:k]', 'kind="stable")[1 : k + 1]'),
    # -- the reader --
    Mutant("reader-worst-sentence", READER, "if best is None or score > best:", "if best is None or score < best:"),
    Mutant("reader-no-explanation", READER, "return [text] if shared < 0 else []", "return []"),
    Mutant("reader-abstains-early", READER, "_LEAST_COVERAGE = 0.2", "_LEAST_COVERAGE = 0.9"),
    Mutant(
        "reader-rank-inverted",
        READER,
        "prior = _RANK_WEIGHT * (1 - rank / len(passages))",
        "prior = _RANK_WEIGHT * rank / len(passages)",
    ),
    # -- the fixes --
    Mutant(
        "tenant-key-without-tenant",
        "fixes/keys.py",
        'key.replace(scope=f"tenant:{asker.tenant}")',
        'key.replace(scope="tenant")',
        fixed("tenant-leak", "answer-key", "typed-tenant-key"),
    ),
    Mutant(
        "tenant-check-swapped",
        "fixes/guard.py",
        'return "" if mark == owner(key) else',
        'return "" if mark != owner(key) else',
        fixed("tenant-leak", "answer-key", "verify-on-read"),
    ),
    Mutant(
        "tenant-check-of-the-key",
        "fixes/guard.py",
        'return key.get("tenant") if asker is None else asker.tenant',
        'return key.get("tenant")',
        fixed("tenant-leak", "trace-context", "verify-on-read"),  # where the key's tenant is not the asker
    ),
    Mutant(
        "rejected-entry-served",
        "fixes/guard.py",
        "        self._inner.delete(key)\n        return None\n",
        '        self._inner.delete(key)\n        return entry["value"]\n',
        fixed("tenant-leak", "answer-key", "verify-on-read"),
    ),
    Mutant(
        "partition-of-one",
        "fixes/partition.py",
        'tenant = key.get("tenant") if asker is None else asker',
        'tenant = ""',
        fixed("tenant-leak", "answer-key", "hard-partition"),
    ),
    Mutant(
        "revision-check-lags",
        "fixes/guard.py",
        "doc.version != version:",
        "doc.version > version + 1:",
        fixed("semantic-drift", "all", "revision-check"),
    ),
    Mutant(
        "event-not-heard",
        "fixes/invalidate.py",
        "unsubscribe = stack.source.subscribe(wrapped[0].invalidate)",
        "unsubscribe = stack.source.subscribe(lambda doc_id: None)",
        fixed("semantic-drift", "all", "event-invalidation"),
    ),
    Mutant(
        "invalidates-first-tier-only",
        TIERED,
        "            tier.delete(key)\n",
        "            tier.delete(key)\n            break\n",
        fixed("semantic-drift", "all", "event-invalidation"),
    ),
    Mutant(
        "provenance-first-source-only",
        "fixes/invalidate.py",
        "for doc_id, *_ in sources_of(value):",
        "for doc_id, *_ in sources_of(value)[:1]:",
        fixed("semantic-drift", "all", "event-invalidation"),
    ),
    Mutant(
        "schema-of-nobody",
        "fixes/keys.py",
        "key.replace(schema=schema(asker.tenant))",
        'key.replace(schema=schema(""))',
        fixed("semantic-drift", "all", "schema-hash-key"),
    ),
    Mutant(
        "versioned-key-by-name",
        "fixes/keys.py",
        "key.replace(encoder=stack.encoder.fingerprint)",
        "key.replace(encoder=stack.encoder.name)",
        fixed("version-skew", "query-cache", "versioned-key"),
    ),
    Mutant(
        "re-embed-deletes-only",
        "fixes/versions.py",
        "            index.upsert(rows_of(docs, vectors, stack.encoder))\n",
        "",
        fixed("version-skew", "half-index", "re-embed"),
    ),
    Mutant(
        "re-embed-every-other",
        "fixes/versions.py",
        "docs = [d for i in ids if (d",
        "docs = [d for i in ids[::2] if (d",
        fixed("version-skew", "half-index", "re-embed"),
    ),
)

# -- playing ---------------------------------------------------------------------------------------------------------

_PLAY = """
import json, sys
from pathlib import Path
from testbed.diagnose import power
from testbed.diagnose.summary import Summarize
from testbed.run.execute import run_scenario
from testbed.run.settings import Settings

scenario, variant, arms, queries, seed, results = json.loads(sys.argv[1])
settings = Settings(
    scenario, variant=variant, arms=tuple(arms), queries=queries, seed=seed,
    results_dir=Path(results), scenarios_dir=Path("scenarios"),
)
folder, before = run_scenario(settings, Summarize()), sys.stdin.read()
print(json.dumps(power.held(json.loads(before), folder) if before else power.remembered(folder)))
"""


def play(copy: Path, cell: Cell, queries: int, before: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """The baseline that a small run on a copy leaves, or what the gate says when it is held to one.

    None when the run ends with an error.
    """
    with tempfile.TemporaryDirectory() as results:
        told = json.dumps([cell.scenario, cell.variant, cell.arms, queries, SEED, results])
        done = subprocess.run(
            [sys.executable, "-c", _PLAY, told],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "TESTBED_WORKERS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            input=json.dumps(before) if before else "",
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def noticed(said: Mapping[str, Any] | None) -> tuple[str, str]:
    """The first rule that failed, and what it said; ("", "") when the run is the one that is remembered."""
    if said is None:
        return "error", "the run failed"
    if said["noticed"]:
        return said["noticed"][0], said["told"][0]
    return (EXACT, "another trace, and nothing worse in it") if said["moved"] else ("", "")


@contextmanager
def edited(copy: Path, mutant: Mutant) -> Iterator[None]:
    """The copy with the mutant in it."""
    path = copy / "testbed" / mutant.file
    source = path.read_text(encoding="utf-8")
    if source.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: {mutant.old!r} stands {source.count(mutant.old)} times in {mutant.file}")
    path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(source, encoding="utf-8")


def copied(folder: Path) -> Path:
    """The package, its data and its scenarios, without anything that was built."""
    for part in ("testbed", "scenarios", "datasets"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@dataclass(frozen=True, slots=True)
class Plays:
    """Runs on one copy; those without a mutant are played once."""

    copy: Path
    before: dict[tuple[Cell, int], Mapping[str, Any]]

    def unchanged(self, cell: Cell, queries: int) -> Mapping[str, Any]:
        if (cell, queries) not in self.before:
            found = play(self.copy, cell, queries)
            if found is None:
                raise SystemExit(f"{cell} fails without any mutant")
            self.before[cell, queries] = found
        return self.before[cell, queries]

    def first_notice(self, mutant: Mutant) -> tuple[str, str]:
        """The rule that notices it first, and where and by what; a mutant with an excuse gets short runs only."""
        moved = "", ""
        for queries in QUERIES[: 1 if mutant.excuse else None]:
            for cell in mutant.cells:
                before = self.unchanged(cell, queries)
                with edited(self.copy, mutant):
                    rule, by = noticed(play(self.copy, cell, queries, before))
                where = f"{cell.scenario}/{cell.variant}, {queries} questions: {by}"
                if rule not in ("", EXACT):
                    return rule, where
                moved = moved if moved[0] or not rule else (rule, where)
        return moved


def main(names: Sequence[str]) -> int:
    unknown = sorted(set(names) - {m.name for m in MUTANTS})
    if unknown:
        print(f"unknown mutants: {', '.join(unknown)}; they are {', '.join(m.name for m in MUTANTS)}", file=sys.stderr)
        return 2
    chosen = [m for m in MUTANTS if not names or m.name in names]
    by_rule: Counter[str] = Counter()
    holes = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        plays = Plays(copied(Path(folder)), {})
        for mutant in chosen:
            rule, by = plays.first_notice(mutant)
            by_rule[rule or "survived"] += 1
            holes += not rule and not mutant.excuse
            print(f"{mutant.name:32} {rule or 'SURVIVED':11} {by or mutant.excuse or 'no reason given'}", flush=True)
    seen = len(chosen) - by_rule["survived"]
    failed = seen - by_rule[EXACT]
    real = len(chosen) - sum(mutant.equivalent for mutant in chosen)
    print(f"\n{failed} of {len(chosen)} fail the gate ({failed / len(chosen):.0%}; ", end="")
    print(f"{failed} of {real} that can be told from the original), {seen} with EXACT=1: ", end="")
    print(", ".join(f"{rule} {n}" for rule, n in sorted(by_rule.items())))
    return 1 if holes else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    sys.exit(main(parser.parse_args().names))
