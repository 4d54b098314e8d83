"""Every fault harms the service inside its block, and the service is whole after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from testbed.core.errors import Unavailable, Unsupported
from testbed.faults import infra
from testbed.faults.infra import Engine, Service
from testbed.stacks import sandbox
from testbed.stacks.sandbox import Sandbox
from tests.integration.docker.conftest import needs_docker
from tests.integration.docker.test_services import REDIS_CLI


@pytest.fixture(scope="module")
def engine(box: Sandbox) -> Iterator[Engine]:
    sandbox.build(box, ("netfault",))
    engine = Engine(box.project)
    yield engine
    engine.close()


@pytest.fixture
def redis(engine: Engine) -> Iterator[Service]:
    service = engine.service("redis")
    service.wait_healthy()
    yield service
    service.wait_healthy()
    assert answers(engine), "the fault did not end with its block"


def ask(engine: Engine, words: str = "ping", seconds: int = 3) -> str:
    """What the neighbour gets from redis over the network."""
    return (
        engine.service("redis-log")
        .exec("sh", "-c", REDIS_CLI.replace("timeout 5", f"timeout {seconds}") + f"-h redis {words} 2>&1")
        .strip()
    )


def answers(engine: Engine, words: str = "ping") -> bool:
    try:
        return ask(engine, words, 2) == "PONG"
    except Unavailable:
        return False


def test_a_crash_is_survived_with_what_was_written(engine: Engine, redis: Service) -> None:
    ask(engine, "set kept value")
    time.sleep(1.1)  # the cache server syncs once a second
    revival = redis.crash()
    assert revival.restarts == 1 and revival.exit_code == 137
    assert ask(engine, "get kept") == "value"


def test_killed_stays_dead_until_the_block_ends(engine: Engine, redis: Service) -> None:
    with redis.killed():
        assert redis.state()["Status"] == "exited" and redis.state()["ExitCode"] == 137
        assert not answers(engine)


def test_what_does_not_run_cannot_crash(engine: Engine, redis: Service) -> None:
    with redis.stopped(), pytest.raises(Unavailable, match="only what runs can crash"):
        redis.crash()


def test_stopped_ends_in_good_order(engine: Engine, redis: Service) -> None:
    with redis.stopped():
        assert redis.state()["ExitCode"] in (0, 143) and not answers(engine)


def test_paused_keeps_connections_and_answers_nothing(engine: Engine, redis: Service) -> None:
    with redis.paused():
        assert redis.state()["Status"] == "paused" and not answers(engine)


def test_a_restart_is_over_when_it_returns(engine: Engine, redis: Service) -> None:
    assert redis.restart() < infra.WAIT_S and answers(engine)


def test_disconnected_has_no_name_and_gets_it_back(engine: Engine, redis: Service) -> None:
    with redis.disconnected():
        assert not answers(engine)
    assert answers(engine)


def test_slowed_is_held_back_at_work_that_was_not(engine: Engine, redis: Service) -> None:
    def held_back_s() -> float:
        """For how long the kernel made the server wait: no clock on the wall, which a busy machine slows as well."""
        before = throttled_ns(redis)
        ask(engine, "eval 'local n = 0 for i = 1, 20000000 do n = n + i end return n' 0", 60)
        return (throttled_ns(redis) - before) / 1e9

    free = held_back_s()
    with redis.slowed(0.1):
        assert held_back_s() > free + 0.5  # a second's tenth at a time
    redis.container.reload()
    assert redis.container.attrs["HostConfig"]["NanoCpus"] == 1_000_000_000  # as compose.yaml says


def throttled_ns(service: Service) -> int:
    return int(service.container.stats(stream=False)["cpu_stats"]["throttling_data"]["throttled_time"])


def test_squeezed_is_killed_for_memory_and_restarted(engine: Engine, redis: Service) -> None:
    redis.container.reload()
    restarts = redis.container.attrs["RestartCount"]

    def was_restarted() -> bool:
        return bool(redis.state()) and redis.container.attrs["RestartCount"] > restarts

    with redis.squeezed(24 * 2**20):
        with suppress(Unavailable):  # the one who asks is cut off when the server dies
            ask(engine, "eval \"for i = 1, 64 do redis.call('set', 'big' .. i, string.rep('x', 1048576)) end\" 0", 20)
        redis.wait_until("killed and restarted", was_restarted, 20)
    assert ask(engine, "flushall", 10) == "OK"


def test_bandwidth_can_be_taken(engine: Engine, redis: Service) -> None:
    ask(engine, "eval \"return redis.call('set', 'large', string.rep('x', 65536))\" 0")
    with redis.shaped("tbf rate 64kbit burst 1600 latency 5s"):
        started = time.monotonic()
        with pytest.raises(Unavailable):  # 64 KiB take 8 s at this rate
            ask(engine, "get large", 3)
        assert time.monotonic() - started < 10
    assert len(ask(engine, "get large")) == 65536


def test_delay_by_the_kernel(engine: Engine, redis: Service) -> None:
    try:
        with redis.shaped("netem delay 300ms"):
            started = time.monotonic()
            ask(engine, "ping", 10)
            assert time.monotonic() - started >= 0.6  # the handshake's answer and PONG
    except Unsupported as lacking:
        pytest.skip(f"this kernel has no netem: {lacking}")


def test_packets_can_be_dropped(engine: Engine, redis: Service) -> None:
    with redis.filtered("-p tcp --dport 6379 -j DROP"):
        assert not answers(engine)
    assert answers(engine)


@pytest.mark.parametrize(("fsync", "outcome"), [("everysec", "MISCONF"), ("always", "exited")])
def test_a_full_disk(engine: Engine, redis: Service, fsync: str, outcome: str) -> None:
    """Redis refuses writes when it syncs each second, and ends when it syncs each write."""
    image = redis.container.image.id
    command = ["redis-server", "--appendonly", "yes", "--appendfsync", fsync, "--save", "", "--dir", "/small"]
    write = "for i in 1 2 3 4 5 6; do redis-cli set k$i " + "x" * 60000 + "; done; for k in 1 2 3 4 5 6 7 8; do "
    write += "redis-cli eval \"redis.call('set', KEYS[1], string.rep('x', 600000))\" 1 b$k; sleep 0.3; done"
    with infra.small_disk(engine, image, command) as full:
        full.wait_until("up", lambda: full.container.exec_run(["redis-cli", "ping"])[1].strip() == b"PONG", 20)
        _, out = full.container.exec_run(["sh", "-c", write])
        if outcome == "exited":
            full.wait_until("ended", lambda: full.state()["Status"] == "exited", 20)
            assert full.state()["ExitCode"] != 0
        else:
            assert b"MISCONF" in out and full.state()["Status"] == "running", out[-300:]
    assert full.container.id not in {c.id for c in engine.api.containers.list(all=True)}


def test_a_service_that_does_not_come_back_is_said_with_its_log(engine: Engine, redis: Service) -> None:
    redis.container.pause()
    try:
        with pytest.raises(Unavailable, match="redis is not healthy after 1 s; last lines of its log"):
            redis.wait_healthy(1)
    finally:
        redis.container.unpause()


def test_a_project_that_is_not_up_is_said() -> None:
    needs_docker(Sandbox())
    with pytest.raises(Unavailable, match=r"has 0 containers; run: make up"):
        Engine("rag-testbed-nobody").service("redis")


def test_squeezed_below_what_is_in_use_is_told(engine: Engine, redis: Service) -> None:
    if engine.api.info().get("CgroupVersion") != "1":
        pytest.skip("this kernel kills at once; an older one refuses the limit")
    # Last of all: the server keeps the memory that this takes.
    ask(engine, "eval \"redis.call('set', 'big', string.rep('x', 33554432))\" 0")
    says = r"redis cannot be held to 16777216 bytes: .*current usage"
    with pytest.raises(Unavailable, match=says), redis.squeezed(16 * 2**20):
        pass
    assert ask(engine, "del big") == "1"
