"""Prints the project's dependencies with some of its extras, one a line: a build installs them without the source.

    python requirements.py pyproject.toml --extras models,chroma --swap faiss-cpu=faiss-gpu --only torch

The layers of an image then depend on what is declared, not on the code: a change of the code builds in seconds.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path


def declared(pyproject: Path, extras: list[str]) -> list[str]:
    """Requirements of the project and of these extras, in the order in which they are declared."""
    project = tomllib.loads(pyproject.read_text())["project"]
    optional = project["optional-dependencies"]
    unknown = [e for e in extras if e not in optional]
    if unknown:
        raise SystemExit(f"no extra {unknown[0]!r} in {pyproject}; there are: {', '.join(sorted(optional))}")
    return [*project["dependencies"], *(r for e in extras for r in optional[e])]


def name_of(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower()


def swapped(rows: list[str], swap: str) -> list[str]:
    """``old=new`` puts one distribution in the place of another, ``old=new==1.2`` at a version of its own."""
    old, _, new = swap.partition("=")
    return [new if name_of(r) == old else r for r in rows]


def only(rows: list[str], names: list[str]) -> list[str]:
    missing = set(names) - {name_of(r) for r in rows}
    if missing:
        raise SystemExit(f"not declared: {', '.join(sorted(missing))}")
    return [r for r in rows if name_of(r) in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pyproject", type=Path)
    parser.add_argument("--extras", default="", help="comma-separated")
    parser.add_argument("--swap", action="append", default=[], help="OLD=NEW; may be given more than once")
    parser.add_argument("--only", default="", help="comma-separated names: print these and nothing else")
    args = parser.parse_args()
    rows = declared(args.pyproject, [e for e in args.extras.split(",") if e])
    for swap in args.swap:
        rows = swapped(rows, swap)
    if args.only:
        rows = only(rows, args.only.split(","))
    print("\n".join(dict.fromkeys(rows)))


if __name__ == "__main__":
    main()
