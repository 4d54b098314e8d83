"""Files that are whole or not there: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.core.errors import Unavailable


@contextmanager
def saying(path: Path) -> Iterator[None]:
    """Turn an operating-system failure to write ``path`` into one clear line."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> Unavailable:
    reason = error.strerror or str(error)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "free some space" if full else "set RESULTS_DIR to a writable folder"
    return Unavailable(f"cannot write {path}: {reason}; nothing before this run was changed; {advice}")


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``; after a crash it holds the old bytes or the new ones."""
    with saying(path):
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_unique(source: Path, target: Path) -> Path:
    """Rename a folder to ``target``, or to ``target-2``, ``target-3``, ... when that is taken; the new path."""
    count, candidate = 1, target
    while True:
        try:
            os.rename(source, candidate)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise cannot_write(candidate, error) from error
            count += 1
            candidate = target.with_name(f"{target.name}-{count}")
        else:
            with saying(candidate):
                sync_folder(candidate.parent)
            return candidate


def make_unique(target: Path) -> Path:
    """Create the folder ``target``, or ``target-2``, ...: two runs that start in the same second do not share one."""
    count, candidate = 1, target
    while True:
        try:
            candidate.mkdir(parents=True)
        except FileExistsError as error:
            if not candidate.is_dir():  # a file stands where a folder of the path should be
                raise cannot_write(candidate, error) from error
            count += 1
            candidate = target.with_name(f"{target.name}-{count}")
        except OSError as error:
            raise cannot_write(candidate, error) from error
        else:
            return candidate


def link(path: Path, target: str) -> None:
    """Point the symbolic link ``path`` at ``target``, replacing an older link in one step."""
    temporary = path.with_name(f".{path.name}-{target}")
    with saying(path):
        temporary.symlink_to(target)
        temporary.replace(path)
