"""One tenant under fire: exactly what fits is allowed, and a refusal leaves nothing behind."""

import asyncio
from typing import Any

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.topics import QUOTA_REQUESTS, USAGE_DELTAS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, unique


@pytest.mark.parametrize("place", [{}, {"environment": "prod"}, {"environment": "prod", "stack": "blog"}])
async def test_fifty_reserves_on_a_limit_of_ten_allow_exactly_ten(
    quota: Platform, wire: Wire, tenant: str, place: dict[str, Any]
) -> None:
    await quota.set_limits(tenant, {"vapps": 10}, **place)

    replies = await asyncio.gather(
        *(wire.ask(asking("reserve", tenant, deployment=f"d{n}", footprint={"vapps": 1, "cpu": 1})) for n in range(50))
    )

    allowed = [reply for reply in replies if reply.allowed]
    denied = [reply for reply in replies if not reply.allowed]
    assert (len(allowed), len(denied)) == (10, 40)
    assert {reply.code for reply in denied} == {codes.VAPPS_EXCEEDED.code}
    assert await quota.used(tenant, "vapps") == (0, 10)
    assert await quota.used(tenant, "cpu") == (0, 10), "a refusal holds nothing of any dimension"
    holds = await quota.database.fetch("SELECT request_id, state FROM holds WHERE tenant = $1", tenant)
    assert {row["request_id"] for row in holds} == {reply.request_id for reply in allowed}
    assert await quota.database.fetchval("SELECT count(*) FROM charges WHERE tenant = $1", tenant) == 0
    assert await quota.database.fetchval("SELECT count(*) FROM changes WHERE tenant = $1", tenant) == 10
    assert len(await quota.decisions(tenant)) == 50


async def test_what_is_released_is_free_again(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"vapps": 10})
    questions = [asking("reserve", tenant, deployment=f"d{n}", footprint={"vapps": 1}) for n in range(20)]
    first = await asyncio.gather(*map(wire.ask, questions))
    held = [reply.request_id for reply in first if reply.allowed]

    await asyncio.gather(*(wire.ask(asking("release", tenant, hold=hold)) for hold in held[:4]))
    await asyncio.gather(*(wire.ask(asking("commit", tenant, hold=hold)) for hold in held[4:]))
    second = await asyncio.gather(
        *(wire.ask(asking("reserve", tenant, deployment=f"e{n}", footprint={"vapps": 1})) for n in range(20))
    )

    assert sum(reply.allowed for reply in second) == 4
    assert await quota.used(tenant, "vapps") == (6, 4)


async def test_a_denial_explains_itself_over_the_wire(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 4000}, environment="prod")
    await wire.ask(asking("adjust", tenant, deployment="runs", footprint={"cpu": 3200}))
    await wire.ask(asking("reserve", tenant, deployment="installs", footprint={"cpu": 500}))

    reply = await wire.ask(asking("reserve", tenant, footprint={"cpu": 500}))

    assert reply.code == codes.CPU_EXCEEDED.code
    (why,) = [each for each in reply.violations if each.basis == "reserved"]
    assert why.scope == f"{tenant}/env:prod"
    assert (why.limit, why.used, why.held, why.asked) == (4000, 3200, 500, 500)
    assert (why.headroom, why.would_fit) == (300, 300)
    assert (why.limit_source, why.limit_set_by) == ("override", "admin")
    fits = await wire.ask(asking("reserve", tenant, footprint={"cpu": why.would_fit}))
    assert fits.allowed, "what would fit does fit"


async def test_shadow_mode_lets_through_and_says_so(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 50})
    counted = await quota.counted()

    reply = await wire.ask(asking("reserve", tenant, mode="shadow"))

    assert (reply.allowed, reply.would_deny, reply.code) == (True, True, None)
    assert reply.violations
    assert await counted.since("quota_decisions_total", verb="reserve", verdict="would_deny") == 1
    assert await quota.used(tenant, "cpu") == (0, 100)


async def test_requests_facts_limits_and_the_sweep_at_once_lose_no_update(quota: Platform, wire: Wire) -> None:
    """Four writers of the same tenants, each in its own transaction: only the guard keeps them apart."""
    tenants = [unique() for _ in range(3)]
    questions = [
        asking("reserve", tenants[n % 3], deployment=f"d{n}", ttl_seconds=1 + n % 3, footprint={"cpu": 1})
        for n in range(300)
    ]

    counted = await quota.counted()

    async def ask() -> list[bytes]:
        sent = []
        for question in questions:
            sent.append(await wire.post(question))
            await asyncio.sleep(0.01)
        return sent

    async def tell() -> None:
        for n in range(300):
            place = {"tenant": tenants[n % 3], "environment": "prod", "deployment": f"f{n % 30}"}
            await wire.tell_soon(USAGE_DELTAS, {**place, "revision": n, "after": {"cpu": n}})
            await asyncio.sleep(0.01)

    async def patch(tenant: str) -> None:
        for n in range(60):
            await quota.set_limits(tenant, {"cpu": 1_000_000 + n})

    others = asyncio.gather(tell(), *map(patch, tenants))
    for correlation in await ask():
        assert (await wire.replies(correlation))[0].allowed
    await others

    async def all_expired() -> bool:
        sql = "SELECT count(*) FROM holds WHERE tenant = ANY($1) AND state = 'open'"
        return bool(await quota.database.fetchval(sql, tenants) == 0)

    await eventually(all_expired, seconds=10)
    for number, tenant in enumerate(tenants):
        last = sum(n for n in range(270, 300) if n % 3 == number)
        assert await quota.used(tenant, "cpu") == (last, 0)
        changed = await quota.database.fetchval("SELECT count(*) FROM limit_history WHERE tenant = $1", tenant)
        assert changed == 60
        # Each limit, each settle, and each hold twice: every change has a number of its own.
        assert (await quota.status(tenant))["seq"] == 60 + 100 + 2 * 100
    assert await counted.since("streams_dead_letters_total", topic=QUOTA_REQUESTS.name, reason="bug") == 0
    assert await counted.since("streams_dead_letters_total", topic=USAGE_DELTAS.name, reason="bug") == 0


async def test_requests_of_one_tenant_are_answered_in_their_order(wire: Wire, tenant: str) -> None:
    sent = [await wire.post(asking("adjust", tenant, deployment=f"d{n}")) for n in range(100)]

    seqs = [(await wire.replies(correlation))[0].seq for correlation in sent]

    assert seqs == sorted(seqs, key=lambda seq: seq or 0)
    assert len(set(seqs)) == 100
