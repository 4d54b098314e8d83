"""A gate's outcome in the forms that CI services read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testbed.core.errors import Unavailable
from testbed.diagnose.findings import Decision, Finding, Judged
from testbed.record import durable
from testbed.record.folder import RunReader
from testbed.report import junit as junit_form
from testbed.report.columns import to_markdown
from testbed.report.gate import SAYS, columns, told, where

# https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
SUMMARY_BYTES = 1024 * 1024  # of one step; a longer one is dropped as a whole
ANNOTATIONS = 10  # of each kind a step; later ones are dropped
ANNOTATION_BYTES = 4096
_LAYERS = ("stack", "answer", "retrieval", "embedding", "index", "text")
_SCORES = ("MRR@5", "faithful", "true", "answer-containment")


def write(found: Decision, *, junit: str = "", summary: str = "", bench: str = "") -> None:
    """Write what was asked for; an empty name asks for nothing."""
    if junit:
        write_file(Path(junit), junit_form.to_xml(found))
    if summary:
        _append(Path(summary), to_summary(found))
    if bench:
        for name, rows in (("bench-quality.json", quality(found)), ("bench-latency.json", latency(found))):
            write_file(Path(bench) / name, (json.dumps(rows, indent=1, ensure_ascii=False) + "\n").encode())


# -- step summary ------------------------------------------------------------------------------------------------------


def to_summary(found: Decision, limit: int = SUMMARY_BYTES) -> bytes:
    """Markdown of at most ``limit`` bytes: verdict, table, then as many findings as fit."""
    head = f"## RAG cache gate: {SAYS[found.code]}\n\n{to_markdown(columns(found)) if found.cells else ''}\n"
    if found.without:
        head += f"Not gated, without a baseline: {', '.join(found.without)}\n\n"
    sections = list(map(_section, told(found)))
    return _fitted(head, sections, limit)


def _fitted(head: str, sections: list[str], limit: int) -> bytes:
    out = head.encode()[: limit // 2]
    room = limit - len(out) - 100  # for the last line
    for place, section in enumerate(sections):
        raw = section.encode()
        if len(raw) > room:
            return out + f"\n{len(sections) - place} more findings are not shown: no room is left\n".encode()
        out, room = out + raw, room - len(raw)
    return out


def _section(row: tuple[Judged | None, Finding]) -> str:
    judged, finding = row
    mark = {"failed": "❌", "unknown": "❔", "noted": "·"}[finding.outcome]
    more = [f"layer: {escaped(finding.layer)}"] if finding.layer else []
    more += [f"witness: {escaped(finding.witness)}"] if finding.witness else []
    lines = "".join(f"  - {text}\n" for text in more)
    return f"- {mark} **{escaped(where(judged, finding))}** ({finding.rule}): {escaped(finding.text)}\n{lines}"


def escaped(text: str) -> str:
    """Text in which Markdown sees nothing but text."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in " ".join(text.split()))


# -- annotations -------------------------------------------------------------------------------------------------------


def print_annotations(found: Decision, say: Callable[[str], None] = print) -> None:
    for line in workflow_commands(found):
        say(line)


def workflow_commands(found: Decision) -> Iterator[str]:
    """Workflow commands: regressions as errors, what could not be told as warnings, at most ten of each."""
    for command, rows in (("error", found.findings("failed")), ("warning", found.findings("unknown"))):
        kept = rows if len(rows) <= ANNOTATIONS else rows[: ANNOTATIONS - 1]
        for judged, finding in kept:
            told = f"{finding.text}; layer {finding.layer}" if finding.layer else finding.text
            told += f"; first witness: {finding.witness}" if finding.witness else ""
            yield f"::{command} title={_property(_title(judged, finding))}::{_message(told)}"
        if len(rows) > len(kept):
            yield f"::{command} title=RAG cache gate::and {len(rows) - len(kept)} more, in the log of this step"


def _title(judged: Judged | None, finding: Finding) -> str:
    return f"{where(judged, finding) or 'gate'} ({finding.rule})"


def _message(text: str) -> str:
    cut = text.encode()[:ANNOTATION_BYTES].decode(errors="ignore")
    return cut.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


# -- github-action-benchmark -------------------------------------------------------------------------------------------


def quality(found: Decision) -> list[dict[str, Any]]:
    """For ``customBiggerIsBetter``: what users get, and valid hits; of every arm that ran."""
    rows = []
    for name, arm, row, extra in _arms(found):
        shown = {metric: row["means"].get(metric) for metric in _SCORES} | {"valid hit rate": row.get("valid_hits")}
        rows += [
            {"name": f"{name} / {arm} / {metric}", "unit": "share", "value": value, "extra": extra}
            for metric, value in shown.items()
            if value is not None
        ]
    return rows


def latency(found: Decision) -> list[dict[str, Any]]:
    """For ``customSmallerIsBetter``: 95th percentiles in milliseconds of each layer of the clean arm."""
    rows = []
    for name, arm, row, extra in _arms(found):
        if arm != "clean":
            continue
        timed = {layer: row["serving"][layer]["p95_ms"] for layer in _LAYERS if layer in row["serving"]}
        rows += [
            {"name": f"{name} / {layer} p95", "unit": "ms", "value": value, "extra": extra}
            for layer, value in timed.items()
            if value is not None
        ]
    return rows


def _arms(found: Decision) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    for judged in found.cells:
        if judged.folder is None:
            continue
        reader = judged.asks.reader if judged.asks else RunReader(judged.folder)
        cell, host = judged.cell, reader.manifest["host"]
        extra = f"seed {cell.seed}, {cell.queries} questions, {cell.stack} on {cell.store}, digest {judged.digest[:8]}"
        extra += f", {host['cores']} cores, {host['cpu']}"
        for arm in reader.summary["order"]:
            row = reader.summary["arms"][arm]
            if row["status"] == "ok":
                yield f"{judged.scenario} / {cell.variant} / seed {cell.seed}", arm, row, extra


def write_file(path: Path, data: bytes) -> None:
    """Write a file and the folders above it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise durable.cannot_write(path, error) from error
    durable.write_bytes(path, data)


def _append(path: Path, data: bytes) -> None:
    """A step summary is a file that other commands of the step add to."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {error.strerror}; give --summary a file that can be written"
        ) from error
