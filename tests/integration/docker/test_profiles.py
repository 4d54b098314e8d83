"""The services that only start when they are asked for."""

from __future__ import annotations

import json
from urllib.request import urlopen

from testbed.faults.infra import Engine
from testbed.stacks import sandbox
from testbed.stacks.sandbox import Sandbox
from tests.integration.docker.test_services import REDIS_CLI


def test_prometheus_scrapes_the_model_runner(box: Sandbox) -> None:
    sandbox.up(box, ("prometheus",), wait_s=60)
    where = box.compose("port", "prometheus", "9090").stdout.strip()
    assert where.startswith("127.0.0.1:")
    engine = Engine(box.project)

    def scraped() -> bool:
        told = json.load(urlopen(f"http://{where}/api/v1/targets", timeout=5))
        return [t["health"] for t in told["data"]["activeTargets"] if "model-runner" in t["scrapeUrl"]] == ["up"]

    try:
        engine.service("prometheus").wait_until("scraping the model runner", scraped, 40)
    finally:
        engine.close()
        box.compose("rm", "--stop", "--force", "prometheus", timeout_s=60)


def test_the_proxy_cuts_redis_off_and_lets_it_back(box: Sandbox) -> None:
    sandbox.up(box, ("redis-proxy",), wait_s=60)
    engine = Engine(box.project)
    order = (
        "import sys, urllib.request as u; "
        "print(u.urlopen(u.Request('http://127.0.0.1:8474/', sys.argv[1].encode()), timeout=5).status)"
    )

    def ping() -> str:
        return engine.service("redis-log").exec("sh", "-c", REDIS_CLI + "-h redis-proxy ping 2>&1 || true").strip()

    try:
        proxy = engine.service("redis-proxy")
        assert ping() == "PONG"
        assert proxy.exec("python", "-c", order, '{"refuse": true}').strip() == "200"
        assert ping() != "PONG"
        assert proxy.exec("python", "-c", order, "{}").strip() == "200"
        assert ping() == "PONG"
    finally:
        engine.close()
        box.compose("rm", "--stop", "--force", "redis-proxy", timeout_s=60)
