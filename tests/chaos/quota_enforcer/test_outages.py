"""Database and broker go away under load and come back: no call hangs, nothing of ours is restarted, all agrees."""

import asyncio
from collections.abc import Callable

import pytest

from plimsoll_contracts import codes
from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.flows import TRY_SECONDS, Facts, Flows
from plimsoll_devkit.platform import Platform, eventually, settled, undisturbed

AWAY_SECONDS = 4.0
LOG_LINES_MAX = 150


@pytest.mark.parametrize(
    ("part", "how"),
    [("postgres", "stop"), ("postgres", "kill"), ("kafka", "kill")],
)
async def test_a_part_that_goes_and_comes_back_under_load(
    quota: Platform, flows: Flows, facts: Facts, part: str, how: str
) -> None:
    enforcer = quota.enforcer()
    await enforcer.start()
    await enforcer.ready(PARTITIONS)
    pid, end = enforcer.pid, getattr(quota.stack, how)
    counted = await quota.counted()
    load = asyncio.gather(flows.run(350, pause=0.02), facts.run(200, pause=0.005))
    try:
        await asyncio.sleep(2)
        await away(part, end)
        await asyncio.to_thread(quota.stack.start, part)
        await load
    finally:
        load.cancel()

    assert flows.unknown > 0, "it was felt"
    assert flows.slowest < TRY_SECONDS + 2, "every call ends in a verdict or in Unknown, within its time"
    assert enforcer.pid == pid, "nothing of ours was restarted"
    await enforcer.ready(PARTITIONS)
    await undisturbed(quota, flows)
    await settled(quota, facts)
    sql = "SELECT count(*) FROM decisions WHERE allowed AND tenant = ANY($1)"
    stored = await quota.database.fetchval(sql, list(flows.tenants))
    figures = [
        await counted.since("quota_decisions_total", verb=verb, verdict="allowed")
        for verb in ("reserve", "commit", "release", "adjust")
    ]
    assert sum(figures) == stored, "what was tried again is counted once"
    assert len(enforcer.said().splitlines()) < LOG_LINES_MAX, enforcer.said()[:3000]


async def test_http_says_that_the_database_is_away(quota: Platform, limited: list[str]) -> None:
    enforcer = quota.enforcer()
    await enforcer.start()
    await enforcer.ready(PARTITIONS)
    tenant = limited.pop()
    await asyncio.to_thread(quota.stack.kill, "postgres")
    try:
        async with quota.http as http:
            read = await http.get(f"/tenants/{tenant}/status")
            body = {"limits": {"cpu": 1}, "reason": "test"}
            written = await http.patch(f"/tenants/{tenant}/limits", json=body)
            alive = await http.get(f"{enforcer.url}/internal/alive")
            ready = await http.get(f"{enforcer.url}/internal/ready")
    finally:
        await asyncio.to_thread(quota.stack.start, "postgres")
    for answer in (read, written):
        assert (answer.status_code, answer.json()["code"]) == (503, codes.UNAVAILABLE.code)
    assert (alive.status_code, ready.status_code) == (200, 503)
    await enforcer.ready(PARTITIONS)
    assert (await quota.status(tenant))["seq"] == 1, "nothing was changed"


async def test_http_says_that_the_broker_is_away(quota: Platform, limited: list[str]) -> None:
    enforcer = quota.enforcer()
    await enforcer.start()
    await enforcer.ready(PARTITIONS)
    question = {"tenant": limited.pop(), "footprint": {"cpu": 1}}
    await asyncio.to_thread(quota.stack.kill, "kafka")
    try:
        async with quota.http as http:
            unknown = await http.post("/check", json=question)
    finally:
        await asyncio.to_thread(quota.stack.start, "kafka")
    assert (unknown.status_code, unknown.json()["code"]) == (503, codes.GATE_UNAVAILABLE.code)

    async def answered() -> bool:
        async with quota.http as http:
            return (await http.post("/check", json=question)).is_success

    await eventually(answered, seconds=30, what="a check over HTTP")


async def away(part: str, end: Callable[[str], None]) -> None:
    """Take a part away for a while."""
    await asyncio.to_thread(end, part)
    await asyncio.sleep(AWAY_SECONDS)
