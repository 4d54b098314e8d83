"""What a run is going to do: scenario, data, ops, truth, arms. Pure: reads files, starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from testbed.core import coalitions, digest
from testbed.core.errors import InvalidInput, Unavailable, unknown
from testbed.core.evidence import DocRow, OpRow
from testbed.core.ports import Corpus
from testbed.core.scenario import Arm, Scenario, Variant, arm_named, arms_of, without
from testbed.core.types import Doc, Gold, Op, Query, Upgrade
from testbed.corpora.load import load as load_corpus
from testbed.run import scenarios
from testbed.run.settings import Settings
from testbed.stacks.pipeline import LAYERS


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is fixed before the first arm runs."""

    settings: Settings
    scenario: Scenario
    variant: Variant
    scenario_digest: str
    corpus: Corpus
    ops: tuple[Op, ...]
    gold: Mapping[int, Gold]
    arms: tuple[Arm, ...]
    layers: tuple[str, ...]


def make(settings: Settings) -> Plan:
    """Load the scenario and its data, draw the ops, and work out the truth for every ask."""
    scenario = scenarios.load(settings.scenario, settings.scenarios_dir)
    variant = scenario.variant(settings.variant) if settings.variant else scenario.variants[0]
    if variant is None:
        raise unknown(f"variant of {scenario.name}", settings.variant, [v.name for v in scenario.variants])
    settings, layers = on_its_own_stack(scenario, settings), layers_of(scenario)
    corpus = corpus_of(scenario, settings.dataset)
    ops = variant.workload.ops(corpus, settings.seed, settings.queries)
    source = scenarios.source(settings.scenario, settings.scenarios_dir)
    return Plan(
        settings=settings,
        scenario=scenario,
        variant=variant,
        scenario_digest=digest.of_bytes(source.read_bytes()),
        corpus=corpus,
        ops=ops,
        gold=truth(corpus, ops),
        arms=chosen(variant, settings, layers),
        layers=layers,
    )


def layers_of(scenario: Scenario) -> tuple[str, ...]:
    """What can be bypassed: the layers of the scenario's own stack, else those of the pipeline."""
    return scenario.layers or LAYERS


def on_its_own_stack(scenario: Scenario, settings: Settings) -> Settings:
    """The settings with the scenario's own stack, where it has one: it takes no other."""
    if not scenario.stack or settings.stack == scenario.stack:
        return settings
    if settings.stack != Settings("").stack:
        raise InvalidInput(f"STACK={settings.stack}: {scenario.name} is about {scenario.stack} alone; leave STACK out")
    return replace(settings, stack=scenario.stack)


def corpus_of(scenario: Scenario, dataset: str) -> Corpus:
    """The data set that was asked for, else the scenario's."""
    if scenario.corpus is None:
        return load_corpus(dataset or scenario.dataset)
    if dataset not in ("", scenario.dataset):
        raise InvalidInput(f"DATASET={dataset}: {scenario.name} brings its own data set; leave DATASET out")
    try:
        return scenario.corpus()
    except ImportError as error:
        raise Unavailable(f"{scenario.name} needs {error.name}; pip install 'rag-testbed[runner]'") from error


def chosen(variant: Variant, settings: Settings, layers: tuple[str, ...]) -> tuple[Arm, ...]:
    """The arms of the variant, or those that the settings name, in the order in which they are named."""
    standard = {arm.name: arm for arm in arms_of(variant, layers)}
    if settings.blame == "shapley":
        for subset in coalitions.needed(layers, seed=settings.seed):
            arm = without(variant, [layer for layer in layers if layer in subset])
            standard.setdefault(arm.name, arm)
    if not settings.arms:
        return tuple(standard.values())
    if set(settings.arms) <= set(standard):
        return tuple(standard[name] for name in settings.arms)
    fixes = {**scenarios.fixes(settings.scenarios_dir), **{fix.name: fix for fix in variant.fixes}}
    return tuple(standard.get(name) or arm_named(name, variant, fixes, layers) for name in settings.arms)


def truth(corpus: Corpus, ops: tuple[Op, ...]) -> dict[int, Gold]:
    """What each asker should be served, given the documents as they stand at that op."""
    versions: dict[str, int] = {}
    out: dict[int, Gold] = {}
    for op in ops:
        match op.do, op.item:
            case "load", tuple() as docs:
                versions.update((d.id, d.version) for d in docs)
            case "upsert", Doc() as doc:
                versions[doc.id] = doc.version
            case "delete", Doc() as doc:
                versions.pop(doc.id, None)
            case "ask", Query() as query:
                out[op.index] = corpus.gold(op.index, query, versions)
    return out


def op_rows(ops: tuple[Op, ...]) -> list[OpRow]:
    """The ops as recorded."""
    rows = []
    for op in ops:
        match op.item:
            case Query() as q:
                text = digest.of_text(q.text)
                row = OpRow(op.index, op.at_s, op.do, q.id, q.tenant, q.session, text, prompt=q.prompt)
            case Doc() as d:
                row = OpRow(op.index, op.at_s, op.do, d.id, d.tenant, "", digest.of_text(d.text), d.version)
            case Upgrade() as u:
                row = OpRow(op.index, op.at_s, op.do, u.encoder)
            case docs:
                row = OpRow(op.index, op.at_s, op.do, f"{len(docs)} documents")
        rows.append(row)
    return rows


def doc_rows(ops: tuple[Op, ...]) -> list[DocRow]:
    """Every revision of every document that the ops bring, in order."""
    rows = []
    for op in ops:
        docs = op.item if isinstance(op.item, tuple) else (op.item,) if op.do == "upsert" else ()
        rows += [
            DocRow(d.id, d.version, d.tenant, d.kind, digest.of_text(d.text), op.index)
            for d in docs
            if isinstance(d, Doc)
        ]
    return rows


def texts(ops: tuple[Op, ...]) -> list[str]:
    """Texts of documents and questions, in order, repeated where the ops repeat them."""
    out: list[str] = []
    for op in ops:
        if isinstance(op.item, tuple):
            out += [d.text for d in op.item]
        elif isinstance(op.item, Doc | Query):
            out.append(op.item.text)
    return out
