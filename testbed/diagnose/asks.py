"""What a gate and a comparison look at, ask by ask: scores and valid hits of a recorded arm as series."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan

import numpy as np

from testbed.core.history import History
from testbed.diagnose.significance import Floats, Questions, numbered
from testbed.metrics import scores as scoring
from testbed.metrics.faithfulness import FAITHFUL, TRUE
from testbed.metrics.grounding import ANSWER_CONTAINMENT, LEXICAL_GROUNDING
from testbed.metrics.scores import question_of
from testbed.metrics.serving import rates, serve
from testbed.record.folder import RunReader
from testbed.record.scores import LABELS

# nDCG and recall say what the reciprocal rank says; raw hit rates reward the bug.
SCORES = (
    scoring.RANKING[0].name,
    FAITHFUL,
    TRUE,
    ANSWER_CONTAINMENT,
    LEXICAL_GROUNDING,
    scoring.LEAK_RATE,
    scoring.STALE_RATE,
    scoring.ABSTAINED,
)


class Asks:
    """Series of the arms of one run, in stream order, NaN where an ask is unscored."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self._rows: dict[str, list[Mapping[str, float]]] = {}
        for row in reader.scores():
            self._rows.setdefault(row["arm"], []).append(row)
        # By digest of the trace.
        self._histories: dict[str, History] = {}
        self._valid_hits: dict[str, dict[str, Floats]] = {}

    def scores(self, arm: str) -> dict[str, Floats]:
        """Every metric that scored an ask of the arm."""
        rows = self._rows.get(arm, [])
        names = [name for name in (rows[0] if rows else ()) if name not in LABELS]
        found = {n: np.array([nan if row[n] is None else row[n] for row in rows], dtype=np.float64) for n in names}
        return {name: values for name, values in found.items() if not np.isnan(values).all()}

    def gated(self, arm: str) -> dict[str, Floats]:
        """The scores that a gate holds a stack to, the scenario's own metric, and the valid hit rate of each cache."""
        scores, own = self.scores(arm), self.reader.summary.get("metric", "")
        return {name: scores[name] for name in dict.fromkeys((*SCORES, own)) if name in scores} | self.valid_hits(arm)

    def valid_hits(self, arm: str) -> dict[str, Floats]:
        """By metric: the share of an ask's lookups in a layer that were valid hits; NaN where it made none."""
        digest = self.reader.manifest["arm_digests"][arm]
        if digest not in self._valid_hits:
            self._valid_hits[digest] = self._count(self.history(arm))
        return self._valid_hits[digest]

    def _count(self, history: History) -> dict[str, Floats]:
        serving = serve(history)
        by_metric = {m: rates(serving, m) for m in sorted({f"valid hits[{s.layer}]" for s in serving.lookups})}
        return {m: np.array([by_op.get(op, nan) for op in history.asks]) for m, by_op in by_metric.items()}

    def history(self, arm: str) -> History:
        """The history of an arm; arms with the same trace share it."""
        digest = self.reader.manifest["arm_digests"][arm]
        if digest not in self._histories:
            self._histories[digest] = History(self.reader.evidence(arm))
        return self._histories[digest]

    def questions(self) -> Questions:
        """Which asks are of the same question, in the order of the series."""
        gold = self.reader.gold
        return numbered([question_of(op, gold.get(op.index)) for op in self.reader.ops if op.do == "ask"])

    def labels(self, arm: str) -> list[tuple[object, ...]]:
        """What was asked, to tell whether two arms can be paired."""
        return [tuple(row[name] for name in LABELS if name != "arm") for row in self._rows.get(arm, ())]


def scored(series: Floats) -> int:
    return sum(not isnan(value) for value in series)
