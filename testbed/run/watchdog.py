"""Runs a server for exactly as long as the process that asked for it lives; started by ``services.py`` as a script.

``python watchdog.py FOLDER SERVER ARG...`` starts the server and then waits. When standard input closes, or the parent
is gone (however it died: SIGKILL too), the server is killed and the folder removed. Standard library only, no imports
from the package: it runs isolated (``-I -S``) and must start fast.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2


def _die_with_watchdog() -> None:
    """Linux: the kernel kills the server should the watchdog itself be killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_end(server: subprocess.Popen[bytes], parent: int) -> None:
    """Return when the parent closed our input or died, or the server ended."""
    while server.poll() is None and os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], _POLL_S)
        if ready and not os.read(0, 1):
            return


def main(folder: str, command: list[str]) -> int:
    parent = os.getppid()
    # Ends by the closed pipe only: a signal meant for the run must not take the server away while the run cleans up.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        with open(os.path.join(folder, "log"), "ab") as log:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_watchdog
            )
        try:
            _wait_for_end(server, parent)
        finally:
            server.kill()
            server.wait()
    finally:
        # A server that ended by itself is told by a file; its log stays readable until the parent closes our input.
        open(os.path.join(folder, "ended"), "wb").close()
        while os.getppid() == parent and os.read(0, 1):
            pass
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
