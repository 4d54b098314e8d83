"""How far a run is: a bar on a terminal, one plain line a step elsewhere. Always on standard error."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """Call it with (what is being done, how much of it is done, how much there is). A context manager."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._label = ""
        self._task: TaskID | None = None
        self._bar: Bar | None = None

    def __call__(self, label: str, done: int, total: int) -> None:
        if self._bar is not None:
            self._move(self._bar, label, done, total)
        elif label != self._label and not self._quiet:
            self._console.print(f"{label} ...", markup=False, highlight=False, soft_wrap=True)
        self._label = label

    def _move(self, bar: Bar, label: str, done: int, total: int) -> None:
        if self._task is None:
            self._task = bar.add_task(label, total=total)
        bar.update(self._task, description=label, completed=done, total=total or None)

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
            self._bar = Bar(*columns, TimeElapsedColumn(), console=self._console, transient=True)
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()
