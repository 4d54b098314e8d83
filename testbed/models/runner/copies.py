"""Copies between a GPU and pinned host memory, beside the computing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch


class Copies(Protocol):
    """Keeps copies in order among themselves, and with the computing where one needs the other."""

    @property
    def pins(self) -> bool:
        """Whether host memory is pinned, as asynchronous copies need it."""

    def writing(self, rows: torch.Tensor) -> AbstractContextManager[None]:
        """Around a copy of computed rows to the host."""

    def reading(self) -> AbstractContextManager[None]:
        """Around copies from the host; what is computed after the with-block comes after them."""

    def handed_over(self, rows: torch.Tensor) -> None:
        """Rows that were read are used by the computing from now on."""

    def finish(self) -> None:
        """Wait until the CPU may read and write host memory itself."""


class SideStream:
    """One stream for the copies both ways: a slot is never written before the copy that reads it has ended.

    ``aside`` False puts them between the computing instead, where they hide nothing: to measure what is hidden.
    """

    pins = True

    def __init__(self, device: torch.device, *, aside: bool = True) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if aside else torch.cuda.current_stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def writing(self, rows: torch.Tensor) -> Iterator[None]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield
        rows.record_stream(self._stream)

    @contextmanager
    def reading(self) -> Iterator[None]:
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def handed_over(self, rows: torch.Tensor) -> None:
        rows.record_stream(torch.cuda.current_stream(self._device))

    def finish(self) -> None:
        self._stream.synchronize()
