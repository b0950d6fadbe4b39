"""Waiting with the client library: over a crash, cancelled, until room on a node is reported."""

import asyncio
import contextlib
from typing import Any

import pytest

from plimsoll_client import Allowed, Denied
from plimsoll_client.reservation import Reservation
from plimsoll_contracts import codes
from plimsoll_contracts.topics import NODE_REPORTS
from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, unique


def waiting(quota: Platform, tenant: str, seconds: int = 20, **fields: Any) -> Reservation:
    asked: dict[str, Any] = {"deployment": "waits", "footprint": {"cpu": 100}, "timeout": 2, **fields}
    return quota.client.reserve(tenant=tenant, environment="prod", wait_seconds=seconds, on_unknown="closed", **asked)


async def ask(reservation: Reservation) -> Any:
    return await reservation


async def in_queue(quota: Platform, tenant: str, count: int = 1) -> None:
    async def is_so() -> bool:
        found = await quota.database.fetchval("SELECT count(*) FROM waiters WHERE tenant = $1", tenant)
        return bool(found == count)

    await eventually(is_so, what=f"{count} waiters")


@pytest.fixture
async def hold(quota: Platform, wire: Wire, tenant: str) -> str:
    """What takes all the room there is."""
    await quota.set_limits(tenant, {"cpu": 100})
    reply = await wire.ask(asking("reserve", tenant, deployment="first"))
    assert reply.allowed
    return str(reply.request_id)


async def test_who_waited_over_a_crash_for_longer_than_its_timeout_is_let_in(
    quota: Platform, wire: Wire, tenant: str, hold: str
) -> None:
    task = asyncio.create_task(ask(waiting(quota, tenant, 40)))
    await in_queue(quota, tenant)
    await asyncio.sleep(2.1)  # the timeout, which comes on top of the wait
    await quota.enforcer().kill()
    await quota.enforcer().start()
    await quota.enforcer().ready(PARTITIONS)
    await wire.ask(asking("release", tenant, hold=hold), seconds=30)
    async with asyncio.timeout(5):
        outcome = await task
    assert isinstance(outcome, Allowed)
    assert outcome.waited_ms is not None


async def test_an_answer_that_was_lost_comes_with_the_next_try(
    quota: Platform, tenant: str, hold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = asyncio.create_task(ask(waiting(quota, tenant, 60)))
    await in_queue(quota, tenant)
    with monkeypatch.context() as deaf:  # as if the reply were lost on its way
        deaf.setattr(type(quota.client._channel), "_match", lambda *_: None)
        await quota.wire.ask(asking("release", tenant, hold=hold))
        await in_queue(quota, tenant, 0)
        await asyncio.sleep(0.3)
    async with asyncio.timeout(8):
        assert isinstance(await task, Allowed)


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("entered", [False, True])
async def test_who_is_cancelled_waits_no_more(quota: Platform, tenant: str, *, entered: bool) -> None:
    reservation = waiting(quota, tenant)

    async def enter() -> None:
        async with reservation:
            pytest.fail("it was let in")

    task = asyncio.create_task(enter() if entered else ask(reservation))
    await in_queue(quota, tenant)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await in_queue(quota, tenant, 0)
    assert await quota.used(tenant, "cpu") == (0, 100)


async def test_a_report_that_a_node_is_larger_lets_in_and_a_refusal_has_its_figures(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    node = unique("n")
    report = {"node": node, "version": 1, "pool": "w", "capacity": {"cpu": 100, "memory": 1}}
    await wire.tell(NODE_REPORTS, report, key=node)

    async def is_known() -> bool:
        return bool(await quota.database.fetchval("SELECT count(*) FROM nodes WHERE node = $1", node))

    await eventually(is_known, what="the node")
    fields: dict[str, Any] = {"footprint": {"cpu": 150}, "placement": {"node": node}}
    refused = await waiting(quota, tenant, 0, **fields)
    assert isinstance(refused, Denied)
    assert refused.code == codes.NODE_CPU.code
    (short,) = refused.capacity
    assert (short.node, short.capacity, short.allocated, short.asked, short.largest_free) == (node, 100, 0, 150, 100)
    task = asyncio.create_task(ask(waiting(quota, tenant, **fields)))
    await in_queue(quota, tenant)
    larger = {**report, "version": 2, "capacity": {"cpu": 200, "memory": 1}}
    await wire.tell(NODE_REPORTS, larger, key=node)
    async with asyncio.timeout(3):
        outcome = await task
    assert isinstance(outcome, Allowed)
    assert outcome.nodes == (node,)


@pytest.mark.parametrize("breakage", [{"node": ""}, {"version": -1}, {"capacity": {"cpu": -1}}, {"pool": None}])
async def test_a_bad_report_is_set_aside_and_nothing_stops(
    quota: Platform, wire: Wire, tenant: str, breakage: dict[str, Any]
) -> None:
    node = unique("n")
    good = {"node": node, "version": 1, "pool": "p", "capacity": {"cpu": 1000, "memory": 1}}
    await wire.dead_letter(await wire.tell(NODE_REPORTS, {**good, **breakage}, key=node))
    assert (await wire.ask(asking("reserve", tenant))).allowed
    assert quota.enforcer().runs


async def test_an_older_report_that_comes_late_changes_nothing(quota: Platform, wire: Wire, tenant: str) -> None:
    node = unique("n")
    report = {"node": node, "pool": "w", "capacity": {"cpu": 100, "memory": 1}}
    late = {**report, "version": 2, "capacity": {"cpu": 1, "memory": 1}, "pool": "other"}
    for body in ({**report, "version": 3}, late, {**late, "version": 3}):
        await wire.tell(NODE_REPORTS, body, key=node)
    last = unique("n")  # of the same partition or not: both are read by the time the node is asked for
    await wire.tell(NODE_REPORTS, {**report, "node": last, "version": 1}, key=last)
    counted = await quota.counted()
    await wire.tell(NODE_REPORTS, late, key=node)

    async def is_read() -> bool:
        return await counted.since("quota_node_reports_total", outcome="stale") >= 1

    await eventually(is_read, what="the late report")
    row = await quota.database.fetchrow("SELECT cpu_capacity, pool FROM nodes WHERE node = $1", node)
    assert row is not None
    assert tuple(row) == (100, "w")
    assert (await wire.ask(asking("reserve", tenant, placement={"node": node}))).allowed
