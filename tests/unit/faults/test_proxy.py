"""The proxy passes everything until it is told not to, and again when the block ends."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from testbed.core.errors import InvalidInput
from testbed.faults.proxy import Disturbance, Proxy, address

ROOT = Path(__file__).parents[3]


class Echo:
    """A server that sends back what it gets."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with closing(client):
            try:
                while data := client.recv(65536):
                    client.sendall(data)
            except OSError:
                pass


@pytest.fixture
def echo() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Echo(listener)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def is_reset(port: int, data: bytes = b"") -> bool:
    """Whether a new connection is reset: already while it is made, or at its first use."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(data)
            return client.recv(1) == b""
    except ConnectionResetError:
        return True


def round_trip(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    got = b""
    while len(got) < len(data):
        part = client.recv(65536)
        if not part:
            break
        got += part
    return got


def test_what_goes_in_comes_out(echo: str) -> None:
    data = bytes(range(256)) * 2000
    with Proxy(echo) as proxy, connected(proxy) as client:
        threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
        got = b""
        while len(got) < len(data):
            got += client.recv(65536)
        assert got == data


def test_a_unix_socket_is_an_upstream_too() -> None:
    with tempfile.TemporaryDirectory(prefix="tb", dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        listener.listen()
        Echo(listener)
        with Proxy(f"{folder}/s") as proxy, connected(proxy) as client:
            assert round_trip(client, b"hello") == b"hello"


def test_a_cut_wire_resets_what_is_open_refuses_what_is_new_and_heals(echo: str) -> None:
    with Proxy(echo) as proxy, connected(proxy) as client:
        assert round_trip(client, b"before") == b"before"
        with proxy.disturbed(Disturbance(refuse=True)):
            with pytest.raises(ConnectionResetError):
                client.recv(1)
            assert is_reset(proxy.port)
        with connected(proxy) as again:
            assert round_trip(again, b"after") == b"after"


def test_a_delay_is_added_in_each_direction(echo: str) -> None:
    with Proxy(echo) as proxy, connected(proxy) as client:
        round_trip(client, b"warm")
        with proxy.disturbed(Disturbance(delay_ms=50)):
            started = time.perf_counter()
            round_trip(client, b"x")
            assert time.perf_counter() - started >= 0.1


def test_a_stalled_wire_lets_nothing_through_until_it_is_mended(echo: str) -> None:
    with Proxy(echo) as proxy, connected(proxy) as client:
        round_trip(client, b"warm")
        client.settimeout(0.2)
        with proxy.disturbed(Disturbance(stall=True)):
            client.sendall(b"held")
            with pytest.raises(TimeoutError):
                client.recv(4)
        client.settimeout(5)
        assert client.recv(4) == b"held"


def test_an_answer_is_cut_after_so_many_bytes(echo: str) -> None:
    with Proxy(echo) as proxy:
        proxy.disturb(Disturbance(cut_after_bytes=3))
        with connected(proxy) as client:
            client.sendall(b"abcdef")
            got = b""
            with pytest.raises(ConnectionResetError):
                while part := client.recv(10):
                    got += part
                raise ConnectionResetError  # a polite end after the same bytes is as good here
            assert len(got) <= 3


def test_certain_loss_resets_at_the_first_chunk(echo: str) -> None:
    with Proxy(echo) as proxy, proxy.disturbed(Disturbance(loss=1.0)):
        assert is_reset(proxy.port, b"x")


def test_an_upstream_that_is_not_there_resets_the_client() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = probe.getsockname()[1]
    with Proxy(f"127.0.0.1:{nobody}") as proxy:
        assert is_reset(proxy.port)


@pytest.mark.parametrize(
    "told", [{"delay_ms": -1}, {"loss": 1.5}, {"stall": 1}, {"delay_ms": True}, {"speed": 3}, {"delay_ms": "5"}]
)
def test_a_wrong_disturbance_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Disturbance.of(told)


@pytest.mark.parametrize("text", ["redis", ":6379", "redis:port"])
def test_an_address_is_host_and_port(text: str) -> None:
    assert address("redis:6379") == ("redis", 6379)
    with pytest.raises(InvalidInput, match="must be host:port"):
        address(text)


def test_as_a_service_a_wrong_seed_is_one_line(echo: str) -> None:
    command = [sys.executable, "-m", "testbed.faults.proxy", "--to", echo, "--listen", "127.0.0.1:0"]
    env = {**os.environ, "SEED": "x"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "error: SEED=x must be an integer >= 0 (seed of a proxy)\n")


@pytest.mark.parametrize("seed", ["", "7"])
def test_as_a_service_it_takes_orders_on_its_admin_port(echo: str, seed: str) -> None:
    command = [sys.executable, "-m", "testbed.faults.proxy", "--to", echo]
    command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    env = {**os.environ, "SEED": seed}  # empty as make exports it when nobody set it
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("listening on")
            front, back = (int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)(?:,|$)", said.replace(echo, "echo")))
            assert json.load(urlopen(f"http://127.0.0.1:{back}/", timeout=5))["delay_ms"] == 0
            order = Request(f"http://127.0.0.1:{back}/", data=b'{"refuse": true}')
            assert json.load(urlopen(order, timeout=5))["refuse"] is True
            assert is_reset(front)
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(f"http://127.0.0.1:{back}/", data=b'{"speed": 1}'), timeout=5)
            with refused.value as answer:
                assert answer.code == 400 and "unknown: speed" in json.load(answer)["error"]
        finally:
            process.kill()
