"""The asks of the faulty arm one by one: all of a short run, an even sample of a long one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from testbed.metrics.faithfulness import FAITHFUL, TRUE
from testbed.metrics.scores import ABSTAINED, LEAK_RATE, STALE_RATE, is_lower_better
from testbed.record.asks import NO_CACHE, Asked, Served, asked, served
from testbed.record.folder import RunReader

MOST = 1000  # rows of a page


class Question(NamedTuple):
    """One row. ``due`` is what the asker should have been served; ``from_clean`` when only the clean arm tells."""

    op: int
    tenant: str
    question: str
    served: str
    due: str
    from_clean: bool
    layer: str
    score: float | None
    clean_score: float | None
    marks: tuple[str, ...]
    harmed: bool


class Sample(NamedTuple):
    """``harmed`` and ``total`` count all asks of the arm; ``rows`` are those that are shown, in stream order."""

    rows: tuple[Question, ...]
    total: int
    harmed: int
    shown_harmed: int

    @property
    def is_whole(self) -> bool:
        return len(self.rows) == self.total


def questions(reader: RunReader, *, always: Iterable[int] = (), most: int = MOST) -> Sample:
    """The asks of the faulty arm.

    Parameters
    ----------
    always : ops that must be among the rows, such as those of the witness
    most : rows at most; a longer run shows as many harmed as other asks, evenly spaced over the stream
    """
    summary = reader.summary
    if not all(summary["arms"].get(arm, {}).get("status") == "ok" for arm in ("clean", "faulty")):
        return Sample((), 0, 0, 0)
    scores = reader.scores("clean", "faulty")
    clean = {row["op"]: row for row in scores if row["arm"] == "clean"}
    faulty = {row["op"]: row for row in scores if row["arm"] == "faulty"}
    metric = summary["metric"]
    harmed = {op for op, row in faulty.items() if is_harmed(row, clean.get(op, {}), metric)}
    chosen = _chosen(sorted(faulty), harmed, set(always), most)
    asks, answers = asked(reader, chosen), served(reader, "faulty", chosen)
    unsaid = {op for op in chosen if op in asks and not asks[op].accept}
    other = served(reader, "clean", unsaid) if unsaid else {}
    rows = tuple(
        _question(asks[op], answers.get(op), other.get(op), faulty[op], clean.get(op, {}), metric, op in harmed)
        for op in sorted(chosen)
        if op in asks
    )
    return Sample(rows, len(faulty), len(harmed), sum(row.harmed for row in rows))


def is_harmed(faulty: Mapping[str, Any], clean: Mapping[str, Any], metric: str) -> bool:
    """Whether the asker got something foreign or stale, or fared worse than with the clean stack."""
    if any(faulty.get(rate) == 1.0 and clean.get(rate) != 1.0 for rate in (LEAK_RATE, STALE_RATE)):
        return True
    before, after = _known(clean.get(metric)), _known(faulty.get(metric))
    if before is None or after is None:
        return False
    return after > before if is_lower_better(metric) else after < before


def _chosen(ops: Sequence[int], harmed: set[int], always: set[int], most: int) -> set[int]:
    if len(ops) <= most:
        return set(ops)
    bad, good = [op for op in ops if op in harmed], [op for op in ops if op not in harmed]
    n_bad = min(len(bad), max(most // 2, most - len(good)))
    return {*_spaced(bad, n_bad), *_spaced(good, most - n_bad), *(always & set(ops))}


def _spaced(values: Sequence[int], n: int) -> list[int]:
    n = min(n, len(values))
    return [values[i * len(values) // n] for i in range(n)]


def _question(
    ask: Asked,
    got: Served | None,
    other: Served | None,
    faulty: Mapping[str, Any],
    clean: Mapping[str, Any],
    metric: str,
    harmed: bool,
) -> Question:
    due = ask.accept[0] if ask.accept else other.answer if other else ""
    return Question(
        ask.op,
        ask.tenant,
        ask.question,
        got.answer if got else "",
        due,
        not ask.accept and other is not None,
        got.layer if got else NO_CACHE,
        _known(faulty.get(metric)),
        _known(clean.get(metric)),
        tuple(_marks(faulty)),
        harmed,
    )


def _marks(row: Mapping[str, Any]) -> Iterable[str]:
    tests = ((LEAK_RATE, 1.0, "leaked"), (STALE_RATE, 1.0, "stale"), (TRUE, 0.0, "untrue"))
    for metric, value, mark in (*tests, (FAITHFUL, 0.0, "unfaithful"), (ABSTAINED, 1.0, "abstained")):
        if row.get(metric) == value:
            yield mark


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
