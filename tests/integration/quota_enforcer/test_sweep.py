"""What happens to tenants that ask nothing: holds and limits end by themselves, and new defaults judge everybody."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from plimsoll_contracts.topics import QUOTA_LIMITS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, unique
from plimsoll_quota_enforcer.storage.queries import QUERIES


def soon(seconds: float = 1.5) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def source(quota: Platform, tenant: str, dimension: str = "cpu") -> str:
    lines = (await quota.status(tenant))["dimensions"]
    return str(next(line for line in lines if line["dimension"] == dimension)["limit"]["source"])


async def test_an_expired_hold_of_an_idle_tenant_closes_within_five_seconds(quota: Platform, wire: Wire) -> None:
    tenants = [unique() for _ in range(130)]  # more than one bite of the sweep
    questions = [asking("reserve", tenant, ttl_seconds=1) for tenant in tenants]
    sent = [await wire.post(question) for question in questions]
    for correlation in sent:
        await wire.replies(correlation)

    async def all_closed() -> bool:
        sql = "SELECT count(*) FROM holds WHERE tenant = ANY($1) AND state = 'expired'"
        return bool(await quota.database.fetchval(sql, tenants) == len(tenants))

    await eventually(all_closed, seconds=6, what="one second to live and five until it is closed")
    for tenant in tenants[:3]:
        assert await quota.used(tenant, "cpu") == (0, 0)
        kinds = await quota.database.fetch(
            "SELECT kind, hold_state FROM changes WHERE tenant = $1 ORDER BY seq", tenant
        )
        assert [tuple(row) for row in kinds] == [("hold_opened", "open"), ("hold_closed", "expired")]


async def test_an_expired_limit_is_taken_away_and_told(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 50}, expires_at=soon(), reason="a weekend")
    assert await source(quota, tenant) == "override"
    assert not (await wire.ask(asking("reserve", tenant))).allowed
    counted = await quota.counted()

    events = await wire.events(QUOTA_LIMITS, tenant, count=2, kind="quota.limit_changed.v1", seconds=7)

    assert [(event.after, event.version) for event in events] == [(50, 1), (None, 2)]
    assert events[1].changed_by == "plimsoll"
    assert await counted.since("quota_limit_changes_total", kind="expired") == 1
    assert "expired" in events[1].reason
    assert events[0].seq < events[1].seq
    assert await source(quota, tenant) == "none"
    assert (await wire.ask(asking("reserve", tenant))).allowed
    rows = await quota.database.fetch(
        "SELECT version, is_set FROM limit_history WHERE tenant = $1 ORDER BY version", tenant
    )
    assert [tuple(row) for row in rows] == [(1, True), (2, False)]


async def test_a_limit_that_expires_may_be_crossed_by_what_it_falls_back_to(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    await wire.ask(asking("adjust", tenant, footprint={"disk": 500}))
    await quota.set_limits(tenant, {"disk": 900}, expires_at=soon())
    async with quota.http as http:
        body: dict[str, Any] = {"limits": {"disk": 400}, "reason": "test"}
        assert (await http.patch("/defaults", json=body)).is_success
        try:
            (started,) = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_started.v1", seconds=7)
            assert (started.limit, started.usage) == (400, 500)
        finally:
            body = {"limits": {"disk": None}, "reason": "test", "force": True}
            assert (await http.patch("/defaults", json=body)).is_success
    await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_ended.v1", seconds=7)


@pytest.fixture
async def defaults(quota: Platform) -> AsyncIterator["Defaults"]:
    """Change global defaults of ``vapps``; taken back afterwards."""
    made = Defaults(quota)
    yield made
    await made.set(None)


class Defaults:
    def __init__(self, quota: Platform) -> None:
        self._quota = quota

    async def set(self, value: int | None, **more: Any) -> dict[str, Any]:
        body = {"limits": {"vapps": value}, "reason": "test", **more}
        async with self._quota.http as http:
            answer = await http.patch("/defaults", json=body)
        assert answer.is_success, answer.text
        return dict(answer.json())


async def test_changed_defaults_judge_every_tenant_once(wire: Wire, defaults: Defaults) -> None:
    over, under = [unique("over") for _ in range(3)], unique("under")
    for tenant in (*over, under):
        await wire.ask(asking("adjust", tenant, footprint={"vapps": 1 if tenant == under else 9}))

    changed = await defaults.set(5)
    assert changed["scope"] == "defaults"
    for tenant in over:
        (started,) = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_started.v1", seconds=7)
        assert (started.limit, started.usage, started.over_by) == (5, 9, 4)
    await defaults.set(6)
    assert not (await wire.ask(asking("reserve", over[0], deployment="d2", footprint={"vapps": 1}))).allowed
    await defaults.set(20)
    for tenant in over:
        (ended,) = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_ended.v1", seconds=7)
        assert (ended.limit, ended.usage, ended.over_by) == (20, 9, 0)
    for tenant in over:
        told = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit", count=2)
        assert len(told) == 2, "each crossing is told once"
        assert [event.seq for event in told] == sorted({event.seq for event in told})
    told = await wire.events(QUOTA_LIMITS, "defaults", kind="quota.limit_changed.v1", count=3)
    assert [event.after for event in told][-3:] == [5, 6, 20]
    assert all(event.tenant is None and event.scope == "defaults" for event in told)
    assert not [record for record in wire.records[QUOTA_LIMITS.name] if record.key == under.encode()]


async def test_new_defaults_judge_also_a_tenant_whose_limits_are_changed_meanwhile(
    quota: Platform, wire: Wire, defaults: Defaults
) -> None:
    tenants = [unique() for _ in range(4)]
    for tenant in tenants:
        await wire.ask(asking("adjust", tenant, footprint={"vapps": 9}))

    await defaults.set(5)
    for tenant in tenants:  # at once, before the sweep comes to it
        await quota.set_limits(tenant, {"cpu": 100_000}, environment="prod")

    for tenant in tenants:
        (started,) = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_started.v1", seconds=7)
        assert (started.scope, started.dimension) == (tenant, "vapps")


async def test_an_expired_default_is_taken_away_and_told(
    quota: Platform, wire: Wire, tenant: str, defaults: Defaults
) -> None:
    await wire.ask(asking("adjust", tenant, footprint={"vapps": 9}))
    before = await quota.database.fetchval("SELECT count(*) FROM limit_history WHERE tenant = ''")
    counted = await quota.counted()
    await defaults.set(5, expires_at=soon(2.5))
    assert await source(quota, tenant, "vapps") == "default"
    await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_started.v1", seconds=7)

    async def is_told() -> bool:  # what the test before it unset may have been told only meanwhile
        told = await wire.events(QUOTA_LIMITS, "defaults", count=before + 2, seconds=7)
        return (told[-1].after, told[-1].changed_by) == (None, "plimsoll")

    await eventually(is_told, what="the expiry")
    assert await counted.since("quota_limit_changes_total", kind="expired") == 1
    assert await counted.since("quota_limit_changes_total", kind="set") == 1
    await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_ended.v1", seconds=7)
    assert await source(quota, tenant, "vapps") == "none"


async def test_a_bite_of_the_sweep_is_so_many_tenants_however_many_wait_in_each(quota: Platform) -> None:
    tenants = [f"0-{unique()}" for _ in range(3)]
    sql = """INSERT INTO waiters (tenant, request_id, seq, request, reply_topic, since, until, lacks, tried_at)
        SELECT t, 'r' || n, n, '', '', now(), now(), '[]', '2000-01-01'
        FROM unnest($1::text[]) AS t, generate_series(1, 50) AS n"""
    async with quota.database.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(sql, tenants)
        due = await connection.fetch(QUERIES["tenants_to_sweep"], len(tenants))
        await transaction.rollback()  # nobody else ever sees them
    assert [row["tenant"] for row in due] == sorted(tenants)
