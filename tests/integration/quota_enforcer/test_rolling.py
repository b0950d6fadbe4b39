"""Changes of what runs: replaced, moved, parked and resumed; and disks that are measured."""

from typing import Any

from plimsoll_contracts import codes
from plimsoll_contracts.topics import DISK_MEASUREMENTS, DISK_SCAN_REQUESTS, QUOTA_LIMITS, USAGE_DELTAS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking


async def run(wire: Wire, tenant: str, deployment: str, revision: int = 1, **footprint: Any) -> None:
    body = {"deployment": deployment, "footprint": footprint, "revision": revision}
    assert (await wire.ask(asking("adjust", tenant, **body))).allowed


async def test_an_upgrade_at_the_limit_is_judged_on_its_difference(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 1000})
    await run(wire, tenant, "blue", 4, cpu=1000)
    green: dict[str, Any] = {"deployment": "green", "replaces": ["blue"], "footprint": {"cpu": 1000}}
    surge = await wire.ask(asking("reserve", tenant, **green, surge=True))
    alone = await wire.ask(asking("reserve", tenant, deployment="green", footprint={"cpu": 1000}))
    hold = await wire.ask(asking("reserve", tenant, **green))
    assert (surge.code, alone.code, hold.allowed) == (codes.CPU_EXCEEDED.code, codes.CPU_EXCEEDED.code, True)
    assert await quota.used(tenant, "cpu") == (1000, 0)
    bound = await wire.ask(asking("reserve", tenant, deployment="blue", footprint={"cpu": 1}))
    assert bound.code == codes.HOLD_OPEN.code

    done = await wire.ask(asking("commit", tenant, hold=hold.request_id, revision=1, replaced={"blue": 7}))

    assert [(each.deployment, each.revision, each.outcome) for each in done.replaced] == [("blue", 7, "settled")]
    assert await quota.used(tenant, "cpu") == (1000, 0)
    late = {"tenant": tenant, "environment": "prod", "stack": "blog", "deployment": "blue", "revision": 6}
    await wire.tell(USAGE_DELTAS, {**late, "after": {"cpu": 1000}})
    await wire.ask(asking("check", tenant))
    assert await quota.used(tenant, "cpu") == (1000, 0), "what was said of blue before it ended changes nothing"


async def test_a_replacement_given_back_leaves_what_was(quota: Platform, wire: Wire, tenant: str) -> None:
    await run(wire, tenant, "blue", cpu=300)
    body = asking("reserve", tenant, deployment="green", replaces=["blue"], footprint={"cpu": 500})
    await wire.ask(body)
    assert await quota.used(tenant, "cpu") == (300, 200)
    await wire.ask(asking("release", tenant, hold=body["request_id"]))
    assert await quota.used(tenant, "cpu") == (300, 0)


async def test_a_move_takes_its_usage_along_or_changes_nothing(quota: Platform, wire: Wire, tenant: str) -> None:
    await run(wire, tenant, "d1", cpu=300)
    await quota.set_limits(tenant, {"cpu": 200}, environment="dev")
    full = await wire.ask(asking("reserve", tenant, environment="dev", footprint={"cpu": 300}))
    assert (full.allowed, full.violations[0].scope) == (False, f"{tenant}/env:dev")
    moving = await wire.ask(asking("reserve", tenant, environment="test", footprint={"cpu": 300}))
    await wire.ask(asking("commit", tenant, hold=moving.request_id))
    places: tuple[dict[str, str], ...] = ({"environment": "prod"}, {"environment": "test"}, {})
    assert [await quota.used(tenant, "cpu", **place) for place in places] == [(0, 0), (300, 0), (300, 0)]


async def test_parked_room_is_not_kept(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 300})
    await run(wire, tenant, "d1", 1, cpu=300)
    await run(wire, tenant, "d1", 2, cpu=0)
    await run(wire, tenant, "d2", 1, cpu=200)
    resumed = await wire.ask(asking("reserve", tenant, footprint={"cpu": 300}))
    assert (resumed.code, resumed.violations[0].would_fit) == (codes.CPU_EXCEEDED.code, 100)


async def test_a_disk_is_what_was_measured_and_shrinks_when_it_is_measured_again(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    async def measured(amount: int | None, scan: int, *, complete: bool = True) -> None:
        body = {"tenant": tenant, "environment": "prod", "stack": "blog", "bytes": amount, "method": "walk"}
        order = {"complete": complete, "term": 1, "scan": scan, "measured_at": "2026-12-01T00:00:00Z"}
        await wire.tell(DISK_MEASUREMENTS, {**body, **order})

    async def disk_is(amount: int) -> None:
        async def found() -> bool:
            return await quota.used(tenant, "disk") == (amount, 0)

        await eventually(found, what=f"{amount} bytes of disk")

    await quota.set_limits(tenant, {"disk": 1000})
    await run(wire, tenant, "d1", disk=500)
    await measured(900, 2)
    await disk_is(900)
    denied = await wire.ask(asking("reserve", tenant, deployment="d2", footprint={"disk": 200}))
    assert (denied.code, denied.violations[0].used) == (codes.DISK_EXCEEDED.code, 900)
    await measured(100, 1)
    await measured(100, 3, complete=False)
    await measured(None, 4)
    await measured(1200, 5)
    await disk_is(1200)
    over = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_started")
    assert (over[-1].dimension, over[-1].over_by, over[-1].cause) == ("disk", 200, "measurement")
    await run(wire, tenant, "d1", 2, disk=0)
    await disk_is(1200)
    asked = await wire.events(DISK_SCAN_REQUESTS, tenant, count=3)
    assert {(each.environment, each.stack) for each in asked} == {("prod", "blog"), ("prod", None), (None, None)}
    await measured(0, 6)
    await disk_is(0)


async def test_thresholds_are_told_once_each_way(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"vapps": 10})
    for revision, vapps in enumerate((7, 8, 9, 10, 10, 3), start=1):
        await run(wire, tenant, "d1", revision, vapps=vapps)
    told = await wire.events(QUOTA_LIMITS, tenant, kind="quota.threshold", count=4)
    reached, cleared = told[:2], told[2:]
    assert [(each.threshold, each.usage) for each in reached] == [("80%", 8), ("100%", 10)]
    assert {(each.threshold, each.usage) for each in cleared} == {("80%", 3), ("100%", 3)}
