import asyncio
import json

import httpx
import pytest
from faststream.asgi import AsgiFastStream
from faststream.kafka import KafkaBroker
from starlette.types import ASGIApp

from plimsoll_runtime import metrics, probes


async def fine() -> probes.CheckResult:
    return probes.CheckResult(ok=True)


async def broken() -> probes.CheckResult:
    raise ConnectionError("postgresql://svc:hunter2@db refused")


async def stuck() -> probes.CheckResult:
    await asyncio.sleep(3600)
    raise AssertionError


def client(**checks: probes.Check) -> httpx.AsyncClient:
    """Answer through the very app that serves the routes in a service."""
    app: ASGIApp = AsgiFastStream(
        KafkaBroker(), asgi_routes=probes.routes(checks=checks, status=lambda: {"lag": 3, "odd": {1}})
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://probes")


async def test_ready_when_every_check_is_fine() -> None:
    async with client(postgres=fine) as http:
        answer = await http.get("/internal/ready")

    assert answer.status_code == 200
    assert answer.json() == {"ok": True, "checks": {"postgres": {"ok": True, "detail": ""}}}


async def test_not_ready_names_the_check_and_leaks_no_address() -> None:
    async with client(postgres=broken, kafka=fine) as http:
        answer = await http.get("/internal/ready")

    assert answer.status_code == 503
    assert answer.json()["checks"] == {
        "postgres": {"ok": False, "detail": "ConnectionError"},
        "kafka": {"ok": True, "detail": ""},
    }
    assert "hunter2" not in answer.text


async def test_a_check_that_hangs_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "CHECK_SECONDS", 0.05)

    async with client(postgres=stuck) as http:
        answer = await http.get("/internal/ready")

    assert answer.status_code == 503
    assert "no answer" in answer.json()["checks"]["postgres"]["detail"]


async def test_alive_does_not_depend_on_what_readiness_depends_on() -> None:
    async with client(postgres=broken) as http:
        assert (await http.get("/internal/alive")).status_code == 200


async def test_status_and_metrics() -> None:
    metrics.counter("probes_example_total", "x")
    async with client() as http:
        status = await http.get("/internal/status")
        scrape = await http.get("/metrics")

    assert json.loads(status.text) == {"lag": 3, "odd": "{1}"}
    assert "probes_example_total 0.0" in scrape.text
    assert scrape.headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize("path", ["/internal/alive", "/internal/ready", "/internal/status", "/metrics"])
async def test_only_reading_is_possible(path: str) -> None:
    async with client() as http:
        assert (await http.post(path)).status_code == 405
        assert (await http.head(path)).status_code == 200
