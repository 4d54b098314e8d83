"""The errors a user can meet, drawn as a tree.

HarnessError              exit 3
├── InvalidInput          exit 2   what was typed, or a file that was read, is wrong
├── Unavailable           exit 3   a service, package or machine is not there
├── BrokenContract        exit 3   a part under test, or one of ours, broke its protocol
├── Incomparable          exit 4   two results that must not be compared
├── Undecided             exit 4   too little power to say yes or no
└── Unsupported           (never ends a run: recorded on the arm)

A message says what was expected, what was found (``name=value``), where, and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HarnessError(Exception):
    """Base of every error that is printed as one line, without a traceback."""

    exit_code = 3


class InvalidInput(HarnessError):
    exit_code = 2


class Unavailable(HarnessError):
    exit_code = 3


class BrokenContract(HarnessError):
    exit_code = 3


class Incomparable(HarnessError):
    exit_code = 4


class Undecided(HarnessError):
    exit_code = 4


class Unsupported(HarnessError):
    """A stack lacks what a fault, fix or bypass needs; the arm is recorded as unsupported."""


def unknown(what: str, name: str, known: Iterable[str], see: str = "") -> InvalidInput:
    """One line for a name that is not there: the nearest known name, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"one of: {', '.join(names) or '(none)'}"
    return InvalidInput(f"unknown {what} {name!r}; {hint}" + (f" ({see})" if see else ""))
