"""The commands that the README shows, run again: what is printed there is what the program prints.

``python -m tests.e2e.readme`` writes their output into the README anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.e2e.command import ROOT, environment

README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Shown(NamedTuple):
    """A command of the README and the output that it shows for it."""

    command: str
    output: str


def shown(text: str) -> list[Shown]:
    """Every ``$ command`` of the console blocks, with the lines up to the next one."""
    found = []
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Shown(command, output))
    return found


def make(words: str, home: Path, **knobs: str) -> str:
    """Standard output of a make command, with this Python in place of the virtual environment's.

    Results go below ``home`` and are named as if they were in the project's own folder.
    """
    stamps = re.findall(r"\.venv/\.installed\S*?(?=\s|\"|$)", _dry(words))
    old = [word for stamp in sorted(set(stamps)) for word in ("-o", stamp)]
    env = environment(home, COLUMNS="100", **knobs)
    done = subprocess.run(
        ["make", "--no-print-directory", *old, f"PY={sys.executable}", *shlex.split(words)[1:]],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.replace(str(home) + os.sep, "")


def _dry(words: str) -> str:
    """What make would do, installation included."""
    done = subprocess.run(["make", "-n", *shlex.split(words)[1:]], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def steady(output: str) -> list[str]:
    """The lines without what differs from run to run: milliseconds, the time in the folder's name, digests."""
    lines = [line for line in output.splitlines() if not line.startswith(("results", "digest"))]
    return [" ".join(re.sub(r"(?<![\d.])[+-]?\d+\.\d(?!\d)", "#", line).split()) for line in lines]


def renewed(text: str, home: Path) -> str:
    """The README with the output of every shown command as it is now."""

    def again(block: re.Match[str]) -> str:
        commands = [found.command for found in shown(block[0])]
        for command in commands:  # once for nothing: the first run on a machine also embeds every text
            make(command, home)
        return "```console\n" + "".join(f"$ {c}\n{make(c, home)}" for c in commands) + "```"

    return BLOCK.sub(again, text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        README.write_text(renewed(README.read_text(), Path(folder)))
