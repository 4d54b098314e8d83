"""Edits that come in waves, as a nightly re-index brings them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from testbed.core.ports import Corpus
from testbed.core.types import Op
from testbed.workloads.edits import positions
from testbed.workloads.stream import Stream


@dataclass(frozen=True, slots=True)
class Waves:
    """The ops of another workload, its upserts gathered into ``n_waves`` groups, evenly spread over the middle.

    Between the edits of a wave nobody asks.
    """

    inner: Stream
    n_waves: int = 5

    def ops(self, corpus: Corpus, seed: int, n_asks: int) -> tuple[Op, ...]:
        first, *rest = self.inner.ops(corpus, seed, n_asks)
        edits = [op for op in rest if op.do in ("upsert", "delete")]
        others = [op for op in rest if op.do not in ("upsert", "delete")]
        places = positions(self.n_waves, len(others)) if edits else []
        out: list[Op] = [first]
        for place, op in enumerate(others):
            for wave in (w for w, at in enumerate(places) if at == place):
                share = len(edits) / self.n_waves
                out += edits[round(wave * share) : round((wave + 1) * share)]
            out.append(op)
        return tuple(
            dataclasses.replace(op, index=n, at_s=n * self.inner.gap_s) if n else op for n, op in enumerate(out)
        )
