"""Room on nodes, beside quota: what nodes report, what is refused and why, and never more than there is."""

import asyncio
from typing import Any

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.topics import NODE_REPORTS
from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, unique

GIB = 2**30


async def report(wire: Wire, node: str, version: int = 1, **fields: Any) -> tuple[str, int, int]:
    body = {"node": node, "version": version, "pool": "p", "capacity": {"cpu": "4", "memory": "8g"}, **fields}
    return await wire.tell(NODE_REPORTS, body, key=node)


async def known(quota: Platform, node: str, version: int) -> None:
    async def reported() -> bool:
        sql = "SELECT report_version FROM nodes WHERE node = $1"
        return bool(await quota.database.fetchval(sql, node) == version)

    await eventually(reported, what=f"{node} at version {version}")


async def row(quota: Platform, node: str) -> dict[str, Any]:
    (found,) = await quota.database.fetch("SELECT * FROM nodes WHERE node = $1", node)
    return dict(found)


@pytest.fixture
async def node(quota: Platform, wire: Wire) -> str:
    """A node with 4 cores and 8 GiB."""
    name = unique("n")
    await report(wire, name)
    await known(quota, name, 1)
    return name


async def test_one_node_cannot_hold_it(wire: Wire, tenant: str, node: str) -> None:
    footprint = {"cpu": "4500m", "memory": "9g"}
    reply = await wire.ask(asking("reserve", tenant, footprint=footprint, placement={"node": node}))
    assert (reply.allowed, reply.code) == (False, codes.NODE_CPU.code)
    assert [(s.code, s.node, s.capacity, s.allocated, s.asked, s.largest_free) for s in reply.capacity] == [
        (codes.NODE_CPU.code, node, 4000, 0, 4500, 4000),
        (codes.NODE_MEMORY.code, node, 8 * GIB, 0, 9 * GIB, 8 * GIB),
    ]
    assert f"node {node} cpu" in reply.message


async def test_a_pool_in_which_nothing_fits_says_which_way(quota: Platform, wire: Wire, tenant: str) -> None:
    pool, nodes = unique("p"), [unique("n") for _ in range(2)]
    for name in nodes:
        await report(wire, name, pool=pool, labels={"disk": "ssd"} if name == nodes[0] else {})
        await known(quota, name, 1)

    def placed(**fields: Any) -> dict[str, Any]:
        return asking("check", tenant, placement={"pool": pool, **fields.pop("where", {})}, **fields)

    whole = await wire.ask(placed(footprint={"cpu": "9"}))
    single = await wire.ask(placed(footprint={"cpu": "5"}))
    labelled = await wire.ask(placed(footprint={"cpu": "5"}, where={"labels": {"disk": "ssd"}}))
    compose = "services:\n  w:\n    deploy:\n      replicas: 2\n      resources: {limits: {cpus: '3', memory: 1g}}\n"
    two = await wire.ask(placed(footprint=..., compose=compose))

    assert (whole.code, single.code) == (codes.POOL_FULL.code, codes.REPLICA_TOO_LARGE.code)
    assert [(s.eligible, s.largest_free) for s in single.capacity] == [(2, 4000)]
    assert {s.eligible for s in labelled.capacity} == {1}
    assert two.allowed


async def test_reports_in_any_order_and_again(quota: Platform, wire: Wire, node: str) -> None:
    await report(wire, node, 5, capacity={"cpu": "2", "memory": "1g"}, schedulable=False)
    for version in (3, 5, 1):
        await report(wire, node, version)
    await report(wire, node, 6, capacity=None)
    await known(quota, node, 6)
    found = await row(quota, node)
    assert (found["cpu_capacity"], found["schedulable"]) == (None, True)


async def test_a_node_that_never_told_is_no_gate_and_that_is_said(quota: Platform, wire: Wire, tenant: str) -> None:
    silent = unique("n")
    reply = await wire.ask(asking("reserve", tenant, footprint={"cpu": "900"}, placement={"node": silent}))
    assert reply.allowed
    assert any("capacity was not checked" in note for note in reply.notes)
    await report(wire, silent, 1, capacity={"cpu": "1", "memory": "1g"})
    await known(quota, silent, 1)
    assert (await row(quota, silent))["cpu_allocated"] == 900_000, "what was placed before it reported counts"
    more = await wire.ask(asking("check", tenant, deployment="d2", placement={"node": silent}))
    assert more.code == codes.NODE_CPU.code


async def test_what_runs_there_may_stay_and_shrink_whatever_the_node_says_now(
    quota: Platform, wire: Wire, tenant: str, node: str
) -> None:
    body = {"footprint": {"cpu": "3"}, "placement": {"node": node}}
    hold = await wire.ask(asking("reserve", tenant, **body))
    await wire.ask(asking("commit", tenant, hold=hold.request_id))
    await report(wire, node, 2, capacity={"cpu": "1", "memory": "1g"}, schedulable=False)
    await known(quota, node, 2)
    same = await wire.ask(asking("check", tenant, **body))
    less = await wire.ask(asking("check", tenant, **{**body, "footprint": {"cpu": "2"}}))
    more = await wire.ask(asking("check", tenant, **{**body, "footprint": {"cpu": "3500m"}}))
    assert (same.allowed, less.allowed, more.code) == (True, True, codes.NODE_CPU.code)


async def test_an_old_place_is_free_only_when_the_new_one_is_committed(
    quota: Platform, wire: Wire, tenant: str, node: str
) -> None:
    other = unique("n")
    await report(wire, other)
    await known(quota, other, 1)
    first = await wire.ask(asking("reserve", tenant, footprint={"cpu": "3"}, placement={"node": node}))
    await wire.ask(asking("commit", tenant, hold=first.request_id))
    moving = await wire.ask(asking("reserve", tenant, footprint={"cpu": "3"}, placement={"node": other}))
    both = [(await row(quota, name))["cpu_allocated"] for name in (node, other)]
    await wire.ask(asking("commit", tenant, hold=moving.request_id))
    moved = [(await row(quota, name))["cpu_allocated"] for name in (node, other)]
    elsewhere = {unique("n"): {"cpu": "3", "memory": 0}}
    await wire.ask(asking("adjust", tenant, footprint={"cpu": "3"}, nodes=elsewhere))
    told = [(await row(quota, name))["cpu_allocated"] for name in (node, other, *elsewhere)]
    await wire.ask(asking("adjust", tenant, footprint=None))
    gone = [(await row(quota, name))["cpu_allocated"] for name in (node, other, *elsewhere)]
    assert (both, moved, told, gone) == ([3000, 3000], [0, 3000], [0, 0, 3000], [0, 0, 0])


async def test_expired_holds_free_their_node(quota: Platform, wire: Wire, tenant: str, node: str) -> None:
    await wire.ask(asking("reserve", tenant, footprint={"cpu": "4"}, placement={"node": node}, ttl_seconds=1))

    async def freed() -> bool:
        return bool((await row(quota, node))["cpu_allocated"] == 0)

    await eventually(freed, seconds=6, what="a node freed of an expired hold")


async def test_many_tenants_of_two_processes_race_for_the_last_room_on_a_node(quota: Platform, wire: Wire) -> None:
    name = unique("n")
    await report(wire, name, capacity={"cpu": 1000, "memory": "1t"})
    await known(quota, name, 1)
    second = quota.enforcer(1)
    await second.start()
    try:
        await eventually(lambda: _shares(quota), seconds=30, what="two processes share the partitions")
        bodies = [asking("reserve", unique(), placement={"node": name}) for _ in range(50)]
        replies = await asyncio.gather(*(wire.ask(body, seconds=30) for body in bodies))
    finally:
        await second.kill()
        await quota.enforcer().ready(PARTITIONS)
    assert sorted(reply.code or "" for reply in replies) == [""] * 10 + [codes.NODE_CPU.code] * 40
    assert (await row(quota, name))["cpu_allocated"] == 1000
    sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await quota.database.fetchval(sql) == 0


async def _shares(quota: Platform) -> bool:
    sql = "SELECT count(DISTINCT owner) FROM consumer_offsets WHERE topic = 'quota.requests'"
    return bool(await quota.database.fetchval(sql) == 2)


async def test_a_report_under_another_key_is_set_aside(quota: Platform, wire: Wire, tenant: str) -> None:
    name = unique("n")
    body = {"node": name, "version": 1, "pool": "p"}
    letter = await wire.dead_letter(await wire.tell(NODE_REPORTS, body, key="another"))
    assert letter.value is not None
    assert (await wire.ask(asking("reserve", tenant))).allowed
    assert await quota.database.fetchval("SELECT count(*) FROM nodes WHERE node = $1", name) == 0


async def test_a_check_about_a_node_that_nobody_knows_leaves_nothing_behind(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    name = unique("n")
    reply = await wire.ask(asking("check", tenant, placement={"node": name}))
    assert reply.allowed
    assert any("capacity was not checked" in note for note in reply.notes)
    assert await quota.database.fetchval("SELECT count(*) FROM nodes WHERE node = $1", name) == 0
