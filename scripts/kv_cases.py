"""What the KV caches are asked: contexts as token ids, and questions about them that come when the context is read.

A case is the same for every cache and for every program that reads the file: ``bench_kv.py cases`` writes it, and
``kvpress_compare.py`` runs the methods of kvpress on it, in an environment of their own.
"""

from __future__ import annotations

import ast
import json
import re
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from testbed.core import seeds
from testbed.corpora import forms
from testbed.corpora.ledger import build_ledger

CITIES = ("Lisbon", "Oslo", "Nairobi", "Lima", "Hanoi", "Quebec", "Dublin", "Cairo", "Prague", "Perth")
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.2)
ASKED = 8  # questions to a context of the ledger

Encode = Callable[[str], list[int]]


class Ask(NamedTuple):
    """A question, and the tokens that a right answer begins with."""

    question: list[int]
    answer: list[int]


class Case(NamedTuple):
    context: list[int]
    asks: list[Ask]


def needles(encode: Encode, n: int, count: int) -> list[Case]:
    """A 5-digit code hidden in shuffled documentation: ``n`` tokens of context and question, one seed and depth each.

    ``encode`` puts one token, the beginning of a text, before what it encodes.
    """
    paragraphs = documentation()
    return [_needle(encode, paragraphs, n, DEPTHS[seed % len(DEPTHS)], seed) for seed in range(count)]


def _needle(encode: Encode, paragraphs: list[str], n: int, depth: float, seed: int) -> Case:
    draw = seeds.stream(seed, "needle")
    order = paragraphs[:]
    draw.shuffle(order)
    city, code = CITIES[seed % len(CITIES)], str(draw.randint(10000, 99999))
    fact = f"\nThe secret access code for the {city} office is {code}.\n"
    ask = f"\n\nQuestion: What is the secret access code for the {city} office?\nAnswer: The secret access code for "
    begin, *hidden = encode(fact)
    question = encode(ask + f"the {city} office is")[1:]
    body = _filled(encode, (text + "\n" for text in order), n)[: n - len(hidden) - len(question) - 1]
    cut = int(depth * len(body))
    return Case([begin, *body[:cut], *hidden, *body[cut:]], [Ask(question, encode(" " + code)[1:])])


def ledger(encode: Encode, n: int, count: int) -> list[Case]:
    """Record pages of one tenant of the ledger, ``n`` tokens of them, and questions about facts that they state.

    An answer begins in the words of its page: a small model that is asked in others misses most even with every row
    at hand. Asked for are facts whose sentence names the attribute before the value, and whose value is not one of six
    codes, which guessing would find. The questions are spread over the context.
    """
    return [_handbook(encode, n, seed) for seed in range(count)]


def _handbook(encode: Encode, n: int, seed: int) -> Case:
    corpus = build_ledger(7 + seed)
    tenant = sorted(corpus.glossary)[seed % len(corpus.glossary)]
    pages = [d for d in corpus.docs if d.tenant == tenant and d.kind == "record" and (d.id, 1) in corpus.facts]
    seeds.stream(seed, "handbook").shuffle(pages)
    begin = encode("")[0]
    body: list[int] = []
    asks: list[Ask] = []
    for page in pages:
        tokens = encode(page.text + "\n")[1:]
        if 1 + len(body) + len(tokens) > n:
            break
        body += tokens
        asked = _question(corpus.facts[page.id, 1], corpus.glossary[tenant], page.text)
        asks += [Ask(encode(asked[0])[1:], encode(" " + asked[1])[1:])] if asked else []
    spread = [asks[i * len(asks) // ASKED] for i in range(ASKED)]
    return Case([begin, *body], spread)


def _question(fact: Mapping[str, Any], names: Mapping[str, str], page: str) -> tuple[str, str] | None:
    """(question with the beginning of its answer, value as the page writes it); None where it is not asked for."""
    attribute, name, value = str(fact["attribute"]), names.get(str(fact["entity"]), ""), str(fact["value"])
    shown = {"date": forms.long_date, "number": forms.grouped, "money": forms.grouped}.get(str(fact["form"]), str)
    stated = [s for s in re.split(r"(?<=[.;]) ", page) if name and name in s and f" {attribute}" in s]
    for sentence in stated if fact["form"] != "code" else []:
        for written in (shown(value), value):
            start, found, _ = sentence.partition(f" {written}")
            if found and f" {attribute}" in start:
                return f"\n\nQuestion: What is the {attribute} of {name}?\nAnswer: {start}", written
    return None


def documentation() -> list[str]:
    """Paragraphs of the standard library's docstrings: text that every machine with this Python has."""
    found: dict[str, None] = {}
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                for block in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                    text = " ".join(block.split())
                    if len(text) > 90 and re.match(r"[A-Z][a-z]", text) and not re.search(r"[>{}\[\]=|`_]", text):
                        found[text] = None
    return list(found)


def _filled(encode: Encode, texts: Iterable[str], n: int) -> list[int]:
    body: list[int] = []
    for text in texts:
        if len(body) >= n:
            break
        body += encode(text)[1:]
    return body


def write(file: Path, sets: dict[str, list[Case]]) -> None:
    """One JSON file: {set: [{context, asks: [{question, answer}]}]}, token ids throughout."""
    plain = {name: [{"context": c.context, "asks": [a._asdict() for a in c.asks]} for c in cases]
             for name, cases in sets.items()}  # fmt: skip
    file.write_text(json.dumps(plain) + "\n", encoding="utf-8")
