"""Templates to pages: one file, nothing outside it, everything from data shown as text."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.core.errors import Unavailable
from testbed.report.columns import number
from testbed.report.verdict import percent

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
LONGEST = 600  # characters of one text that a page shows
# What a reader cannot see, or what turns the text around it: controls, bidirectional marks, lone surrogates, BOM.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)
EXTRA = "the report needs the extra 'report'; run: pip install -c constraints.txt -e '.[report]'"


def missing(package: str) -> Unavailable:
    return Unavailable(f"package {package!r} is missing: {EXTRA}")


def render(template: str, **values: Any) -> bytes:
    """The page as UTF-8. Its policy lets a browser load nothing and run only the script that stands in it."""
    environment = _environment()
    style, script = (_source(name) for name in ("style.css", "script.js"))
    policy = (
        f"default-src 'none'; style-src {_allowed(style)}; script-src {_allowed(script)}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )
    page = environment.get_template(template).render(style=style, script=script, policy=policy, **values)
    return page.encode("utf-8")


def visible(text: str) -> str:
    """The text with what cannot be seen written out (``⟨U+202E⟩``), so that nothing in it can act or mislead."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """A long text cut, saying how long it was."""
    return text if len(text) <= longest else f"{text[:longest]} … ({len(text):,} characters)"


def _source(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _allowed(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    try:
        import jinja2
    except ImportError as error:
        raise missing("jinja2") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "signed": lambda value, digits=3: number(value, digits, signed=True),
        "percent": percent,
        "short": shortened,
        "pretty": _pretty,
    }
    return environment


def _shown(value: Any) -> Any:
    """Every value on its way into a page: texts with nothing unseen, no word for what is not known."""
    if hasattr(value, "__html__"):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return visible(value) if isinstance(value, str) else value


def _pretty(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
