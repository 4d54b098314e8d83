"""The services do what the harness needs of them."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

import pytest

from testbed.faults.infra import Engine
from testbed.stacks import sandbox
from testbed.stacks.sandbox import Sandbox

REDIS_CLI = "REDISCLI_AUTH=$(cat /run/secrets/redis-password) timeout 5 redis-cli -e "


def redis_cli(box: Sandbox, words: str, service: str = "redis") -> str:
    engine = Engine(box.project)
    try:
        return engine.service(service).exec("sh", "-c", REDIS_CLI + words).strip()
    finally:
        engine.close()


def runner_url(box: Sandbox) -> str:
    where = box.compose("port", "model-runner", "8080").stdout.strip()
    assert where.startswith("127.0.0.1:")
    return f"http://{where}"


@pytest.mark.proof
def test_everything_is_healthy(box: Sandbox) -> None:
    standing = {c.service: (c.state, c.health) for c in sandbox.containers(box)}
    assert standing == dict.fromkeys(("chroma", "model-runner", "redis", "redis-log"), ("running", "healthy"))


def test_redis_asks_for_its_password(box: Sandbox) -> None:
    _code, out = Engine(box.project).service("redis").container.exec_run(["redis-cli", "ping"])
    assert b"NOAUTH" in out


def test_the_cache_may_evict_and_the_change_log_may_not(box: Sandbox) -> None:
    def setting(service: str, name: str) -> str:
        return redis_cli(box, f"config get {name}", service).splitlines()[-1]

    assert setting("redis", "maxmemory-policy") == "allkeys-lfu" and int(setting("redis", "maxmemory")) > 0
    assert setting("redis-log", "maxmemory-policy") == "noeviction"
    assert setting("redis-log", "appendonly") == "yes" and setting("redis-log", "appendfsync") == "always"


def test_what_chroma_holds_survives_a_restart(box: Sandbox) -> None:
    script = (
        "import sys, chromadb; c = chromadb.HttpClient(host='chroma', port=8000).get_or_create_collection('kept');"
        "sys.argv[1] == 'put' and c.upsert(ids=['a'], embeddings=[[1.0, 0.0]], documents=['text']); print(c.count())"
    )

    def count(word: str) -> str:
        done = box.compose("run", "--rm", "--no-deps", "-T", "testbed", "python", "-c", script, word, timeout_s=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert count("put") == "1"
    Engine(box.project).service("chroma").restart()
    assert count("look") == "1"


def test_the_model_runner_answers_on_loopback(box: Sandbox) -> None:
    url = runner_url(box)
    health: dict[str, Any] = json.load(urlopen(f"{url}/healthz", timeout=10))
    assert health["model"] == "tiny"
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "temperature": 0}
    headers = {"Content-Type": "application/json"}
    said = json.load(urlopen(Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers), timeout=60))
    assert said["usage"]["completion_tokens"] == 3


def test_the_harness_lists_its_scenarios_from_its_container(box: Sandbox) -> None:
    done = box.compose("run", "--rm", "--no-deps", "-T", "testbed", "list", timeout_s=120)
    assert done.returncode == 0 and "tenant-leak" in done.stdout
