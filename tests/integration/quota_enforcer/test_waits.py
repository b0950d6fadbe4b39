"""Who would rather wait than be refused is answered when room comes, from wherever it comes."""

from typing import Any

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS, NODE_REPORTS, USAGE_DELTAS
from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Silence, Wire, asking, unique


def waiting(tenant: str, deployment: str = "d2", seconds: int = 30, **fields: Any) -> dict[str, Any]:
    return asking("reserve", tenant, deployment=deployment, wait_seconds=seconds, **fields)


async def is_stored(quota: Platform, tenant: str, count: int = 1) -> None:
    """Wait until so many of a tenant's requests wait."""

    async def are_there() -> bool:
        found = await quota.database.fetchval("SELECT count(*) FROM waiters WHERE tenant = $1", tenant)
        return bool(found == count)

    await eventually(are_there, what=f"{count} who wait")


@pytest.fixture
async def full(quota: Platform, wire: Wire, tenant: str) -> dict[str, Any]:
    """A tenant whose only room is held."""
    await quota.set_limits(tenant, {"cpu": 100})
    hold = asking("reserve", tenant)
    assert (await wire.ask(hold)).allowed
    return hold


async def _release(quota: Platform, wire: Wire, tenant: str, hold: str) -> None:
    del quota
    await wire.ask(asking("release", tenant, hold=hold))


async def _raise(quota: Platform, wire: Wire, tenant: str, hold: str) -> None:
    del wire, hold
    await quota.set_limits(tenant, {"cpu": 200})


async def _move(quota: Platform, wire: Wire, tenant: str, hold: str) -> None:
    """Settle the held deployment smaller, and give the hold back."""
    del quota
    body = {"tenant": tenant, "environment": "prod", "stack": "blog", "deployment": "d1", "revision": 9}
    await wire.tell(USAGE_DELTAS, {**body, "after": {"cpu": 0}})
    await wire.ask(asking("release", tenant, hold=hold))


async def _entitle(quota: Platform, wire: Wire, tenant: str, hold: str) -> None:
    """Unset the override, so that the plan's limit, which is larger, holds."""
    del hold
    snapshot = {"tenant": tenant, "entitlement_version": 1, "plan": "large", "limits": {"cpu": 500}}
    await wire.tell(ENTITLEMENT_EVENTS, snapshot)
    await quota.set_limits(tenant, {"cpu": None})


@pytest.mark.parametrize("free", [_release, _raise, _move, _entitle])
async def test_room_answers_within_seconds_and_says_how_long_it_took(
    quota: Platform, wire: Wire, tenant: str, full: dict[str, Any], free: Any
) -> None:
    body = waiting(tenant)
    correlation = await wire.request(body)
    await is_stored(quota, tenant)
    with pytest.raises(Silence):
        await wire.replies(correlation, seconds=0.3)

    await free(quota, wire, tenant, full["request_id"])

    (reply,) = await wire.replies(correlation, seconds=5)
    assert (reply.allowed, reply.code, reply.request_id) == (True, None, body["request_id"])
    assert reply.waited_ms is not None
    assert 300 <= reply.waited_ms < 10_000
    assert reply.hold is not None
    assert reply.hold.state == "open"
    again = await wire.ask(body)
    assert (again.allowed, again.repeated, again.waited_ms) == (True, True, reply.waited_ms)
    assert await quota.database.fetchval("SELECT count(*) FROM waiters WHERE tenant = $1", tenant) == 0


async def test_a_hold_that_expires_makes_room(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 100})
    await wire.ask(asking("reserve", tenant, ttl_seconds=2))
    (reply,) = await wire.replies(await wire.request(waiting(tenant)), seconds=8)
    assert reply.allowed


@pytest.mark.usefixtures("full")
async def test_a_wait_that_ends_is_refused_with_what_is_lacking(quota: Platform, wire: Wire, tenant: str) -> None:
    counted = await quota.counted()
    (reply,) = await wire.replies(await wire.request(waiting(tenant, seconds=1)), seconds=8)
    assert (reply.allowed, reply.code) == (False, codes.CPU_EXCEEDED.code)
    assert [(one.used, one.held, one.asked, one.would_fit) for one in reply.violations[:1]] == [(0, 100, 100, 0)]
    assert reply.waited_ms is not None
    assert 1000 <= reply.waited_ms < 5000
    assert await counted.since("quota_waits_total", outcome="denied") == 1
    assert await counted.since("quota_decisions_total", verb="reserve", verdict="denied") == 1


async def test_they_are_served_in_the_order_in_which_they_came(
    quota: Platform, wire: Wire, tenant: str, full: dict[str, Any]
) -> None:
    correlations = []
    for n in range(3):
        correlations.append(await wire.request(waiting(tenant, f"w{n}")))
        await is_stored(quota, tenant, n + 1)
    hold = full["request_id"]
    for n, correlation in enumerate(correlations):
        await wire.ask(asking("release", tenant, hold=hold))
        (reply,) = await wire.replies(correlation, seconds=5)
        assert (reply.allowed, reply.hold and reply.hold.deployment) == (True, f"w{n}")
        hold = str(reply.request_id)


async def test_whoever_gives_up_is_told_and_leaves_nothing(
    quota: Platform, wire: Wire, tenant: str, full: dict[str, Any]
) -> None:
    body = waiting(tenant)
    correlation = await wire.request(body)
    await is_stored(quota, tenant)
    released = await wire.ask(asking("release", tenant, hold=body["request_id"]))
    (reply,) = await wire.replies(correlation, seconds=5)
    assert (released.allowed, reply.allowed, reply.code) == (True, False, codes.WAIT_RELEASED.code)
    await wire.ask(asking("release", tenant, hold=full["request_id"]))
    assert await quota.used(tenant, "cpu") == (0, 0)


@pytest.mark.usefixtures("full")
async def test_a_retry_waits_on_and_is_answered_where_it_came_from(quota: Platform, wire: Wire, tenant: str) -> None:
    body = waiting(tenant)
    first = await wire.request(body)
    await is_stored(quota, tenant)
    second = await wire.request(body)
    changed = await wire.ask({**body, "footprint": {"cpu": 1}})
    assert changed.code == codes.IDEMPOTENCY_MISMATCH.code
    await quota.set_limits(tenant, {"cpu": 200})
    (reply,) = await wire.replies(second, seconds=5)
    assert reply.allowed
    with pytest.raises(Silence):
        await wire.replies(first, seconds=0.3)


async def test_waiting_outlives_the_process(quota: Platform, wire: Wire, tenant: str, full: dict[str, Any]) -> None:
    correlation = await wire.request(waiting(tenant, seconds=120))
    await is_stored(quota, tenant)
    await quota.enforcer().kill()
    await quota.enforcer().start()
    await quota.enforcer().ready(PARTITIONS)
    await wire.ask(asking("release", tenant, hold=full["request_id"]), seconds=30)
    (reply,) = await wire.replies(correlation, seconds=10)
    assert reply.allowed


async def test_room_on_a_node_that_another_tenant_frees(quota: Platform, wire: Wire, tenant: str) -> None:
    node, other = unique("n"), unique()
    report = {"node": node, "version": 1, "pool": "p", "capacity": {"cpu": 100, "memory": "1g"}}
    await wire.tell(NODE_REPORTS, report, key=node)
    there = asking("reserve", other, placement={"node": node})
    assert (await wire.ask(there)).allowed
    correlation = await wire.request(waiting(tenant, placement={"node": node}))
    await is_stored(quota, tenant)
    lacks = await quota.database.fetchval("SELECT lacks FROM waiters WHERE tenant = $1", tenant)
    assert node in lacks, "waiting for a node and waiting for a limit are told apart"

    await wire.ask(asking("release", other, hold=there["request_id"]))

    (reply,) = await wire.replies(correlation, seconds=5)
    assert (reply.allowed, reply.nodes) == (True, (node,))


async def test_a_gate_that_fails_open_for_one_who_waited_is_counted_once(
    quota: Platform, wire: Wire, tenant: str, full: dict[str, Any]
) -> None:
    correlation = await wire.request(waiting(tenant))
    await is_stored(quota, tenant)
    counted = await quota.counted()
    stored = "SELECT sum(total) FROM fail_opens WHERE gate = 'deployments'"
    before = await quota.database.fetchval(stored)
    await wire.ask(asking("release", tenant, hold=full["request_id"]))
    (reply,) = await wire.replies(correlation, seconds=5)
    assert await quota.database.fetchval(stored) == before + 1, "a restart would forget it otherwise"
    assert set(reply.fail_open) == {"deployments", "quota_blocked", "plan_limits"}
    assert await counted.since("quota_gate_fail_open_total", gate="deployments") == 1
