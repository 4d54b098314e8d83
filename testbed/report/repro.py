"""A violation as a stand-alone Python file: documents, questions and fault written out, nothing else to be had."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from testbed import __version__
from testbed.core.errors import InvalidInput
from testbed.core.types import Op
from testbed.diagnose.witness import Shown, invariant_named

WIDTH, LINE = 110, 90


def source(shown: Shown) -> str:
    """The text of the file.

    Raises
    ------
    InvalidInput : a fault that no installed package defines: the file could not import it.
    """
    invariant = invariant_named(shown.invariant)
    script = shown.script
    used = _Names()
    args = [
        ("ops", _tuple((_op(op, used) for op in script.ops), 1)),
        ("faults", _tuple((used.value(c) for c in script.faults), 1)),
        ("fixes", _tuple((used.value(c) for c in script.fixes), 1)),
        ("given", _tuple((used.value(c) for c in script.given), 1)),
        ("bypass", repr(script.bypass)),
        ("gold", _tuple((_block(replace(g, claim=None), used, 2) for g in script.gold), 1)),
        ("glossary", used.value(script.glossary)),
        ("canaries", used.value(script.canaries)),
        ("encoder", string(script.encoder)),
        ("stack", string(script.stack)),
        ("store", string(script.store)),
        ("seed", repr(script.seed)),
        ("level", repr(script.level)),
    ]
    body = "".join(f"    {name}={text},\n" for name, text in args if text not in ("()", "{}"))
    used.value(invariant)
    used.add("testbed.run.replay", "Script")
    used.add("testbed.run.replay", "main")
    return (
        f'"""{_doc(shown)}"""\n\n'
        f"{used.imports()}\nSCRIPT = Script(\n{body})\n\n"
        f'if __name__ == "__main__":\n    raise SystemExit(main(SCRIPT, {type(invariant).__name__}()))\n'
    )


def _doc(shown: Shown) -> str:
    story = "\n".join(
        textwrap.fill(line, WIDTH, initial_indent="    ", subsequent_indent="      ", break_long_words=False)
        for line in shown.story
    )
    text = (
        f"{shown.scenario} / {shown.variant}: {shown.invariant} is violated.\n\n"
        f"{textwrap.fill(shown.about, WIDTH)}\n\n{story}\n\n"
        "Needs nothing but the package, in any folder:\n\n"
        f'    pip install "rag-testbed[models]=={__version__}"\n    python repro.py\n\n'
        f"Exit code 1 and the violated invariant; 0 when {shown.invariant} holds, as on a correct stack.\n"
    )
    return text.replace("\\", "\\\\").replace('"""', '\\"""')


class _Names:
    """Values as the code that makes them, and what that code has to import."""

    def __init__(self) -> None:
        self._found: dict[str, set[str]] = {}

    def add(self, module: str, name: str) -> None:
        self._found.setdefault(module, set()).add(name)

    def imports(self) -> str:
        return "".join(f"from {m} import {', '.join(sorted(names))}\n" for m, names in sorted(self._found.items()))

    def value(self, value: Any) -> str:
        """Code of a value: plain ones as they print, dataclasses and named tuples without what is their default."""
        kind = type(value)
        if is_dataclass(value) and not isinstance(value, type):
            self._own(kind)
            told = [(f.name, getattr(value, f.name)) for f in fields(value) if not _is_default(f, value)]
            return f"{kind.__name__}({', '.join(f'{n}={self.value(v)}' for n, v in told)})"
        if isinstance(value, tuple):
            inner = ", ".join(self.value(v) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{self.value(k)}: {self.value(v)}" for k, v in value.items()) + "}"
        return string(value) if isinstance(value, str) else repr(value)

    def _own(self, kind: type) -> None:
        if kind.__module__.startswith("scenarios_") or "<locals>" in kind.__qualname__:
            raise InvalidInput(
                f"{kind.__name__} is defined in a scenario's file, which a stand-alone file cannot import; "
                "move it into an installed package"
            )
        self.add(kind.__module__, kind.__name__)


def string(text: str) -> str:
    """A literal between double quotes; ASCII where a character could not be seen."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else json.dumps(text)


def _op(op: Op, used: _Names) -> str:
    """An op; the documents of a load one below the other."""
    used.add("testbed.core.types", "Op")
    if isinstance(op.item, tuple):
        docs = _tuple((_block(doc, used, 3) for doc in op.item), 2)
        return f'Op({op.index}, {op.at_s!r}, "load", {docs})'
    return f'Op({op.index}, {op.at_s!r}, "{op.do}", {_block(op.item, used, 2)})'


def _block(value: Any, used: _Names, depth: int) -> str:
    """A document, a question, a truth: on one line if there is room, else one field a line."""
    flat = used.value(value)
    if len(flat) + 4 * depth + 20 <= WIDTH:
        return flat
    told = [(f.name, getattr(value, f.name)) for f in fields(value) if not _is_default(f, value)]
    pad = " " * 4 * (depth + 1)
    inner = "".join(
        f"{pad}{name}={_text(v, depth + 1) if isinstance(v, str) else used.value(v)},\n" for name, v in told
    )
    return f"{type(value).__name__}(\n{inner}{' ' * 4 * depth})"


def _text(text: str, depth: int) -> str:
    """A string; a long one as pieces that Python puts together."""
    if len(text) <= LINE:
        return string(text)
    pieces = [""]
    for word in re.findall(r"\s*\S+\s*", text) or [text]:
        if len(pieces[-1]) + len(word) > LINE:
            pieces.append("")
        pieces[-1] += word
    pad = " " * 4 * (depth + 1)
    return "(\n" + "".join(f"{pad}{string(piece)}\n" for piece in pieces if piece) + f"{' ' * 4 * depth})"


def _is_default(field: Any, value: Any) -> bool:
    found = getattr(value, field.name)
    if field.default is not MISSING:
        return bool(found == field.default)
    return field.default_factory is not MISSING and bool(found == field.default_factory())


def _tuple(items: Iterable[str], depth: int) -> str:
    pad = " " * 4 * (depth + 1)
    inner = "".join(f"{pad}{item},\n" for item in items)
    return f"(\n{inner}{' ' * 4 * depth})" if inner else "()"
