"""Facts in any order, any number of times, come to the same charge."""

import random
from typing import Any

from plimsoll_contracts import codes
from plimsoll_contracts.topics import QUOTA_LIMITS, USAGE_DELTAS
from plimsoll_devkit.platform import Counted, Platform, eventually
from plimsoll_devkit.wire import Wire, asking, header, unique


def told(tenant: str, revision: int, cpu: int | None, **fields: Any) -> dict[str, Any]:
    after = {"cpu": cpu} if cpu is not None else None
    place = {"environment": "prod", "stack": "blog", "app": "web"}
    return {"tenant": tenant, **place, "deployment": "d1", "revision": revision, "after": after, **fields}


async def applied(counted: Counted, count: int) -> None:
    """Wait until so many deltas were applied since."""

    async def all_applied() -> bool:
        return await counted.since("streams_records_total", topic=USAGE_DELTAS.name) == count

    await eventually(all_applied, what=f"{count} deltas")


async def test_any_order_and_any_duplicates_come_to_the_highest_revision(quota: Platform, wire: Wire) -> None:
    chance = random.Random(7)
    tenants = [unique() for _ in range(6)]
    counted = await quota.counted()
    messages = [told(tenant, revision, 10 * revision) for tenant in tenants for revision in range(1, 8)]
    messages += chance.sample(messages, 20)
    chance.shuffle(messages)
    for message in messages:
        await wire.tell(USAGE_DELTAS, message)
    await applied(counted, len(messages))

    for tenant in tenants:
        assert await quota.used(tenant, "cpu") == (70, 0)
        assert await quota.used(tenant, "apps") == (1, 0)
    outcomes = {name: await counted.since("quota_settles_total", outcome=name) for name in ("settled", "conflict")}
    assert outcomes["conflict"] == 0
    assert outcomes["settled"] >= len(tenants)


async def test_gone_before_created_stays_gone(quota: Platform, wire: Wire, tenant: str) -> None:
    counted = await quota.counted()
    await wire.tell(USAGE_DELTAS, told(tenant, 2, None))
    await wire.tell(USAGE_DELTAS, told(tenant, 1, 100))
    await applied(counted, 2)

    assert await quota.used(tenant, "cpu") == (0, 0)
    assert (await quota.status(tenant))["deployments"] == 0
    assert await counted.since("quota_settles_total", outcome="stale") == 1

    await wire.tell(USAGE_DELTAS, told(tenant, 3, 40))
    await applied(counted, 3)
    assert await quota.used(tenant, "cpu") == (40, 0), "an id used again goes on with its revisions"


async def test_equal_revision_with_other_content_is_kept_out(quota: Platform, wire: Wire, tenant: str) -> None:
    counted = await quota.counted()
    await wire.tell(USAGE_DELTAS, told(tenant, 1, 100))
    place = await wire.tell(USAGE_DELTAS, told(tenant, 1, 900))
    moved = await wire.tell(USAGE_DELTAS, told(tenant, 1, 100, stack="shop"))
    await wire.tell(USAGE_DELTAS, told(tenant, 1, 100))
    await applied(counted, 4)

    for each in (place, moved):
        letter = await wire.dead_letter(each)
        assert header(letter, "dlq-code") == codes.REVISION_CONFLICT.code.encode()
        assert b"d1" in (header(letter, "dlq-detail") or b"")
    assert await quota.used(tenant, "cpu") == (100, 0)
    assert await counted.since("quota_settles_total", outcome="conflict") == 2
    assert await counted.since("quota_settles_total", outcome="unchanged") == 1


async def test_a_revision_conflict_is_told_to_who_asks(quota: Platform, wire: Wire, tenant: str) -> None:
    await wire.ask(asking("adjust", tenant, revision=1))

    reply = await wire.ask(asking("adjust", tenant, revision=1, footprint={"cpu": 7}))

    assert (reply.allowed, reply.code) == (False, codes.REVISION_CONFLICT.code)
    assert await quota.used(tenant, "cpu") == (100, 0)


async def test_what_shrinks_gives_back_exactly_what_was_charged(quota: Platform, wire: Wire, tenant: str) -> None:
    counted = await quota.counted()
    for revision, cpu in enumerate((100, 250, 30, None), start=1):
        await wire.tell(USAGE_DELTAS, told(tenant, revision, cpu))
        await applied(counted, revision)
        assert await quota.used(tenant, "cpu", environment="prod", stack="blog") == (cpu or 0, 0)


async def test_a_fact_may_go_over_and_is_said_once_each_way(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 1000})
    counted = await quota.counted()

    for revision, cpu in enumerate((1200, 1300, 900, 800), start=1):
        await wire.tell(USAGE_DELTAS, told(tenant, revision, cpu))
        await applied(counted, revision)

    (started,) = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_started.v1")
    (ended,) = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_ended.v1")
    assert (started.scope, started.dimension, started.basis) == (tenant, "cpu", "reserved")
    assert (started.limit, started.usage, started.over_by, started.cause) == (1000, 1200, 200, "delta")
    assert (ended.usage, ended.over_by, ended.since) == (900, 0, started.since)
    assert started.seq < ended.seq
    assert await counted.since("quota_over_limit_edges_total", edge="started") == 1
    assert await counted.since("quota_over_limit_edges_total", edge="ended") == 1
    denied = await wire.ask(asking("reserve", tenant, deployment="d2", footprint={"cpu": 300}))
    assert not denied.allowed


async def test_facts_of_many_tenants_in_one_batch(quota: Platform, wire: Wire) -> None:
    tenants = [unique() for _ in range(300)]
    counted = await quota.counted()
    for tenant in tenants:
        await wire.tell_soon(USAGE_DELTAS, told(tenant, 1, 5))
    await applied(counted, 300)

    sums = await quota.database.fetch(
        "SELECT used[1] AS cpu FROM usage WHERE tenant = ANY($1) AND environment = ''", tenants
    )
    assert [row["cpu"] for row in sums] == [5] * 300
