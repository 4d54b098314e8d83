"""A table as columns of text: fitted to a terminal by leaving out what matters least, or as Markdown or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.table import Table
from rich.text import Text

GAP = 2  # spaces between columns


@dataclass(frozen=True, slots=True)
class Column:
    """``short`` says the same in fewer characters. ``rank`` 0 is never left out; the highest rank goes first."""

    name: str
    cells: tuple[str, ...]
    rank: int = 0
    number: bool = True
    short: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return max(len(text) for text in (self.name, *self.cells))


def fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns that fit into ``width``, in their order."""
    kept = list(columns)
    if _width(kept) > width:
        kept = [replace(c, cells=c.short) if c.short else c for c in kept]
    while _width(kept) > width:
        spare = [c for c in kept if c.rank]
        if not spare:
            break
        kept.remove(max(spare, key=lambda c: c.rank))
    return kept


def _width(columns: Sequence[Column]) -> int:
    return sum(c.width + GAP for c in columns) - GAP


def to_table(columns: Sequence[Column], width: int, *, loud: str = "VIOLATED") -> Table:
    """For a terminal; cells that hold the word ``loud`` are red."""
    kept = fitted(columns, width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for column in kept:
        table.add_column(column.name, justify="right" if column.number else "left", overflow="fold")
    for cells in zip(*(c.cells for c in kept), strict=True):
        table.add_row(*(Text(cell, "bold red" if loud in cell else "") for cell in cells))
    return table


def to_markdown(columns: Sequence[Column]) -> str:
    rows = [[c.name for c in columns], ["---:" if c.number else "---" for c in columns]]
    rows += [[cell.replace("|", "\\|") for cell in cells] for cells in zip(*(c.cells for c in columns), strict=True)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def to_csv(columns: Sequence[Column]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.name for c in columns])
    writer.writerows(zip(*(c.cells for c in columns), strict=True))
    return out.getvalue()


def to_latex(columns: Sequence[Column]) -> str:
    """A ``tabular`` that needs no package."""
    lines = [" & ".join(latex(c.name) for c in columns)]
    lines += [" & ".join(map(latex, cells)) for cells in zip(*(c.cells for c in columns), strict=True)]
    head, *body = (f"{line} \\\\\n" for line in lines)
    aligned = "".join("r" if c.number else "l" for c in columns)
    return f"\\begin{{tabular}}{{{aligned}}}\n\\hline\n{head}\\hline\n{''.join(body)}\\hline\n\\end{{tabular}}\n"


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"}
_LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}"}


def latex(text: str) -> str:
    """Text as LaTeX prints it; a sign in front of a number becomes a minus, not a hyphen."""
    if text[:1] in ("-", "+") and len(text) > 1:
        return f"${text[0]}$" + latex(text[1:])
    return "".join(_LATEX.get(c, c) for c in text)


def number(value: float | None, digits: int = 3, *, signed: bool = False) -> str:
    """A number in a cell; "-" where it is not known."""
    if value is None or math.isnan(value):
        return "-"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text.replace("-0." + "0" * digits, "+0." + "0" * digits) if signed else text


def percent(share: float | None) -> str:
    return "unknown" if share is None or math.isnan(share) else f"{share:.0%}".replace("-0%", "0%").replace("%", " %")
