"""Checksums of data files, in the form that ``sha256sum`` writes and checks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from testbed.core.errors import InvalidInput
from testbed.corpora.rows import read_lines

FILE = "SHA256SUMS"


def sums_of(files: Mapping[str, bytes]) -> str:
    """The text of a SHA256SUMS file, sorted by name."""
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))


def read_sums(path: Path) -> dict[str, str]:
    """Expected sums by file name."""
    found = {}
    for where, line in read_lines(path):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name or any(c not in "0123456789abcdef" for c in digest):
            raise InvalidInput(f"{where}: expected '<sha256>  <file name>'")
        found[name.strip().removeprefix("*")] = digest
    return found


def differing(expected: Mapping[str, str], files: Mapping[str, bytes]) -> list[str]:
    """What differs, one phrase a file; [] when all is as expected."""
    out = []
    for name in sorted({*expected, *files}):
        if name not in files:
            out.append(f"{name} is missing")
        elif name not in expected:
            out.append(f"{name} is not listed")
        elif (actual := hashlib.sha256(files[name]).hexdigest()) != expected[name]:
            out.append(f"{name} is {actual[:12]}..., expected {expected[name][:12]}...")
    return out


def verify_folder(folder: Path) -> None:
    """Hold a folder against its own SHA256SUMS, where it has one.

    Raises
    ------
    InvalidInput : a listed file is missing or differs; the message names each.
    """
    sums = folder / FILE
    if not sums.is_file():
        return
    expected = read_sums(sums)
    root = folder.resolve()
    files = {}
    for name in expected:
        path = (folder / name).resolve()
        if not path.is_relative_to(root):
            raise InvalidInput(f"{sums}: {name!r} is outside of the folder")
        if path.is_file():
            files[name] = path.read_bytes()
    wrong = differing(expected, files)
    if wrong:
        raise InvalidInput(f"{folder} differs from its {FILE}: {'; '.join(wrong)}")
