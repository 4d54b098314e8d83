"""Counters of the runner, in the Prometheus text format."""

from __future__ import annotations

import threading
from collections import defaultdict

Labels = tuple[tuple[str, str], ...]

FIRST_TOKEN_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
HELP = {
    "requests_total": ("counter", "Requests answered, by route and status code."),
    "prompt_tokens_total": ("counter", "Prompt tokens read."),
    "completion_tokens_total": ("counter", "Tokens generated."),
    "prefix_cached_tokens_total": ("counter", "Prompt tokens taken from the prefix cache."),
    "prefix_cache_requests_total": ("counter", "Prefix look-ups, by result."),
    "decode_seconds_total": ("counter", "Seconds spent generating after the first token."),
    "first_token_seconds": ("histogram", "Seconds from the start of the work to the first token."),
    "queue_depth": ("gauge", "Requests waiting for the model."),
    "kv_live_bytes": ("gauge", "KV bytes on the device at the end of the last request."),
    "kv_peak_bytes": ("gauge", "Most KV bytes on the device during the last request."),
    "kv_host_bytes": ("gauge", "KV bytes in host memory at the end of the last request."),
    "kv_keep_ratio": ("gauge", "Rows kept on the device over tokens seen, last request."),
    "prefix_cache_bytes": ("gauge", "Bytes of KV blocks held for reuse."),
}


class Metrics:
    """Thread-safe counters, gauges and histograms, named ``testbed_runner_<name>``; every name is listed in HELP."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = defaultdict(dict)
        self._buckets: dict[str, list[int]] = {}

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        key = _labels(name, labels)
        with self._lock:
            self._values[name][key] = self._values[name].get(key, 0.0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        key = _labels(name, labels)
        with self._lock:
            self._values[name][key] = value

    def observe(self, name: str, seconds: float) -> None:
        assert HELP[name][0] == "histogram"
        with self._lock:
            counts = self._buckets.setdefault(name, [0] * (len(FIRST_TOKEN_BUCKETS_S) + 1))
            for i, edge in enumerate(FIRST_TOKEN_BUCKETS_S):
                counts[i] += seconds <= edge
            counts[-1] += 1
            values = self._values[name]
            values[()] = values.get((), 0.0) + seconds

    def value(self, name: str, **labels: str) -> float:
        """The current value; 0.0 when nothing was counted yet."""
        with self._lock:
            return self._values[name].get(_labels(name, labels), 0.0)

    def render(self) -> str:
        """The whole state in the text exposition format, version 0.0.4."""
        with self._lock:
            lines: list[str] = []
            for name, (kind, text) in HELP.items():
                full = f"testbed_runner_{name}"
                lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
                lines += self._histogram(full, name) if kind == "histogram" else self._plain(full, name)
            return "\n".join(lines) + "\n"

    def _plain(self, full: str, name: str) -> list[str]:
        values = self._values[name] or {(): 0.0}
        return [f"{full}{_shown(labels)} {value:g}" for labels, value in sorted(values.items())]

    def _histogram(self, full: str, name: str) -> list[str]:
        counts = self._buckets.get(name, [0] * (len(FIRST_TOKEN_BUCKETS_S) + 1))
        edges = [f"{edge:g}" for edge in FIRST_TOKEN_BUCKETS_S] + ["+Inf"]
        lines = [f'{full}_bucket{{le="{edge}"}} {n}' for edge, n in zip(edges, counts, strict=True)]
        total = self._values[name].get((), 0.0)
        return [*lines, f"{full}_sum {total:g}", f"{full}_count {counts[-1]}"]


def _labels(name: str, labels: dict[str, str]) -> Labels:
    if name not in HELP:
        raise KeyError(name)
    return tuple(sorted(labels.items()))


def _shown(labels: Labels) -> str:
    def quoted(value: str) -> str:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return "{" + ",".join(f'{k}="{quoted(v)}"' for k, v in labels) + "}" if labels else ""
