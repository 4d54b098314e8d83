"""What a gate compares with: one small JSON file a scenario, committed and read by people in a review.

    results/baselines/<scenario>.json
        format, scenario
        cells                       one a variant, seed and way of running it
            variant seed level queries stack store dataset      how to play it again
            deterministic           whether the stack says of itself that the same seed gives the same trace
            made_from               digests of the scenario's file, data, questions and truth; metric versions
            digest                  of the run
            accepted                why it was recorded although something had got worse, in the words of who did
            promise                 what the scenario promised and did not keep ([] when it kept all of it)
            tolerance               by metric, how much worse is not yet a regression; meant to be edited
            arms.<arm>              status, digest of its trace, holds (by invariant), means, series

A series is one character an ask, in sixtieths (``packed``), so that a later run can be compared ask by ask.
``"=clean"`` stands for a series that is the clean arm's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.core.errors import InvalidInput
from testbed.record import durable

FORMAT = 2
# Every reciprocal rank down to 1/6 and every share of up to six claims is a whole number of sixtieths.
UNIT = 60
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxy"
_UNSCORED = "."
_SAME_AS = "="
_TIMES = "*"


@dataclass(frozen=True, slots=True)
class ArmRecord:
    """One arm. ``holds`` by invariant: True, False, or None for could not tell; ``series`` by metric, packed."""

    status: str
    digest: str
    holds: Mapping[str, bool | None] = field(default_factory=dict)
    means: Mapping[str, float | None] = field(default_factory=dict)
    series: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run that a later one is held to. See the module's docstring for its fields."""

    variant: str
    seed: int
    level: float
    queries: int
    stack: str
    store: str
    dataset: str
    deterministic: bool
    made_from: Mapping[str, Any]
    digest: str
    promise: tuple[str, ...]
    tolerance: Mapping[str, float]
    arms: Mapping[str, ArmRecord]
    accepted: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """Two cells with the same key are the same one, recorded twice."""
        return self.variant, self.seed, self.level, self.queries, self.stack, self.store, self.dataset

    def series(self, arm: str) -> dict[str, list[float]]:
        """The series of an arm, by metric; NaN where an ask is unscored."""
        packed_by_metric = self.arms[arm].series
        out = {}
        for metric, text in packed_by_metric.items():
            if text.startswith(_SAME_AS):
                text = self.arms[text.removeprefix(_SAME_AS)].series[metric]
            out[metric] = unpacked(text)
        return out


@dataclass(frozen=True, slots=True)
class Baseline:
    """The cells of one scenario, by variant and seed."""

    scenario: str
    cells: tuple[Cell, ...] = ()

    def with_cell(self, cell: Cell) -> Baseline:
        """This baseline with the cell in the place of an older one of the same key."""
        others = [c for c in self.cells if c.key != cell.key]
        return replace(self, cells=tuple(sorted([*others, cell], key=lambda c: (c.variant, c.seed, str(c.key)))))

    def cell(self, key: tuple[object, ...]) -> Cell | None:
        return next((c for c in self.cells if c.key == key), None)


def packed(values: Sequence[float]) -> str:
    """One character a value in [0, 1], rounded to sixtieths; NaN is ``.``; ``0*400`` is four hundred times the same."""
    text = "".join(_UNSCORED if math.isnan(v) else _DIGITS[round(min(max(v, 0.0), 1.0) * UNIT)] for v in values)
    return f"{text[0]}{_TIMES}{len(text)}" if len(text) > 1 and len(set(text)) == 1 else text


def unpacked(text: str) -> list[float]:
    character, times, count = text.partition(_TIMES)
    every = character * int(count) if times else text
    return [math.nan if c == _UNSCORED else _DIGITS.index(c) / UNIT for c in every]


def shared(series: Mapping[str, str], clean: Mapping[str, str]) -> dict[str, str]:
    """The packed series of an arm with a reference in the place of those that are the clean arm's."""
    return {m: f"{_SAME_AS}clean" if clean.get(m) == text else text for m, text in series.items()}


def path_of(folder: Path, scenario: str) -> Path:
    return folder / f"{scenario}.json"


def names(folder: Path) -> list[str]:
    """The scenarios that have a baseline, sorted."""
    return sorted(path.stem for path in folder.glob("*.json")) if folder.is_dir() else []


def read(folder: Path, scenario: str) -> Baseline | None:
    """The baseline of a scenario; None when there is none."""
    path = path_of(folder, scenario)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: not a baseline: {error}; restore it, or remove it and record it anew") from error
    found = raw.get("format") if isinstance(raw, dict) else None
    if found != FORMAT:
        raise InvalidInput(f"{path}: format={found!r}, but this version reads format {FORMAT} only")
    try:
        baseline = Baseline(raw["scenario"], tuple(map(cell_from_json, raw["cells"])))
        for cell in baseline.cells:
            for arm in cell.arms:
                cell.series(arm)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{path}: not a baseline: {type(error).__name__}: {error}") from error
    if baseline.scenario != scenario:
        raise InvalidInput(f"{path}: scenario={baseline.scenario!r} must be {scenario!r}, as the file is named")
    return baseline


def write(folder: Path, baseline: Baseline) -> Path:
    """Write the baseline; after a crash the file holds the old one or the new one."""
    path = path_of(folder, baseline.scenario)
    with durable.saying(path):
        folder.mkdir(parents=True, exist_ok=True)
    value = {"format": FORMAT, "scenario": baseline.scenario, "cells": [asdict(cell) for cell in baseline.cells]}
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    durable.write_bytes(path, (text + "\n").encode("utf-8"))
    return path


# Knob and usual value of each field that says how a cell is played.
_KNOBS = {
    "level": ("POLLUTION_LEVEL", 1.0),
    "queries": ("QUERIES", 400),
    "stack": ("STACK", "reference"),
    "store": ("STORE", "faiss"),
    "dataset": ("DATASET", ""),
}


def refresh(scenario: str, cell: Cell | None = None) -> str:
    """The command that records a baseline anew."""
    words = [f"make baseline NAME={scenario}"]
    if cell is not None:
        words += [f"VARIANT={cell.variant}", f"SEED={cell.seed}"]
        told = {knob: (getattr(cell, name), usual) for name, (knob, usual) in _KNOBS.items()}
        words += [f"{knob}={value}" for knob, (value, usual) in told.items() if value != usual]
    return " ".join(words)


def cell_from_json(raw: Mapping[str, Any]) -> Cell:
    """The cell that ``dataclasses.asdict`` was taken of, also after a journey as JSON."""
    arms = {name: ArmRecord(**arm) for name, arm in raw["arms"].items()}
    return Cell(**{**raw, "arms": arms, "promise": tuple(raw["promise"])})
