"""What shrinking has found of a run's violations: beside the run, made from it at any time, no part of its digest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import InvalidInput
from testbed.record import durable
from testbed.record.folder import RunReader

FOLDER = "shrunk"  # one file a violation, by its number: two that are shrunk at once do not overwrite each other
FIELDS: Mapping[str, type] = {  # what a page tells; the rest is for other programs
    "invariant": str,
    "violation": int,
    "violations": int,
    "ops": list,
    "of_ops": int,
    "docs": list,
    "of_docs": int,
    "minimal": bool,
    "replays": int,
    "notes": list,
    "story": list,
}


def keep(reader: RunReader, found: Mapping[str, Any]) -> Path:
    """Leave what was found of one violation in the run's folder, in place of what an earlier search left."""
    folder = reader.folder / FOLDER
    with durable.saying(folder):
        folder.mkdir(exist_ok=True)
    path = folder / f"{found['violation']}.json"
    text = json.dumps({**found, "digest": reader.digest}, indent=1, sort_keys=True, ensure_ascii=False)
    durable.write_bytes(path, (text + "\n").encode("utf-8", "surrogatepass"))
    return path


def kept(reader: RunReader) -> list[dict[str, Any]]:
    """What was found, by the number of the violation.

    Raises
    ------
    InvalidInput : a file that is not of this run or lacks something: it was copied or edited.
    """
    folder = reader.folder / FOLDER
    paths = [path for path in folder.glob("*.json") if re.fullmatch(r"[1-9]\d*", path.stem)] if folder.is_dir() else []
    return [_read(path, reader.digest) for path in sorted(paths, key=lambda path: int(path.stem))]


def _read(path: Path, digest: str) -> dict[str, Any]:
    again = "remove it, or run: python -m testbed shrink"
    try:
        found = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: not JSON: {error}; {again}") from error
    if not isinstance(found, dict) or found.get("digest") != digest:
        raise InvalidInput(f"{path}: not of this run (its digest is another); {again}")
    wrong = [name for name, kind in FIELDS.items() if not isinstance(found.get(name), kind)]
    if wrong or found["violation"] != int(path.stem) or not found["story"]:
        raise InvalidInput(f"{path}: {', '.join(wrong) or 'violation or story'} is not as expected; {again}")
    if not all(isinstance(line, str) for name in ("story", "notes") for line in found[name]):
        raise InvalidInput(f"{path}: story and notes must be lines of text; {again}")
    return found
