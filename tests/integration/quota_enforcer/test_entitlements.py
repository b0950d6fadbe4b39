"""What billing says: projected in any order, read at the gates, and counted where nothing is known."""

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.enforcement import Gate
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS, QUOTA_DECISIONS, QUOTA_LIMITS
from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Counted, Platform, eventually
from plimsoll_devkit.wire import Wire, asking, header, unique


def snapshot(tenant: str, version: int = 1, **fields: Any) -> dict[str, Any]:
    return {"tenant": tenant, "entitlement_version": version, "plan": f"plan-{version}", **fields}


async def entitle(quota: Platform, tenant: str, version: int = 1, **fields: Any) -> None:
    """Publish a snapshot, and wait until it is what the enforcer goes by."""
    await quota.wire.tell(ENTITLEMENT_EVENTS, snapshot(tenant, version, **fields))

    async def projected() -> bool:
        return bool((await quota.status(tenant))["entitlement_version"] == version)

    await eventually(projected, what=f"version {version} of {tenant}")


async def became(counted: Counted, count: int) -> dict[str, float]:
    """Wait until so many snapshots were read since, and return what became of them."""

    async def all_read() -> bool:
        return await counted.since("streams_records_total", topic=ENTITLEMENT_EVENTS.name) == count

    await eventually(all_read, what=f"{count} snapshots")
    outcomes = ("applied", "stale", "repeated", "conflict")
    return {name: await counted.since("quota_entitlement_snapshots_total", outcome=name) for name in outcomes}


async def test_versions_in_any_order_come_to_the_highest(quota: Platform, wire: Wire) -> None:
    chance = random.Random(3)
    tenants = [unique() for _ in range(8)]
    counted = await quota.counted()
    messages = [
        snapshot(tenant, version, limits={"cpu": 100 * version}) for tenant in tenants for version in range(1, 7)
    ]
    messages += chance.sample(messages, 12)
    chance.shuffle(messages)
    for message in messages:
        # Not waited for: several versions of one tenant come in one batch.
        await wire.tell_soon(ENTITLEMENT_EVENTS, message)
    outcomes = await became(counted, len(messages))

    assert outcomes["conflict"] == 0
    assert outcomes["applied"] >= len(tenants)
    for tenant in tenants:
        status = await quota.status(tenant)
        assert (status["entitlement_version"], status["plan"]) == (6, "plan-6")
        assert next(line for line in status["dimensions"] if line["dimension"] == "cpu")["limit"]["value"] == 600
        assert not (await wire.ask(asking("reserve", tenant, footprint={"cpu": 601}))).allowed
        assert (await wire.ask(asking("reserve", tenant, footprint={"cpu": 600}))).allowed


async def test_equal_version_with_another_body_is_kept_out(quota: Platform, wire: Wire, tenant: str) -> None:
    await entitle(quota, tenant, 4, limits={"cpu": 400})
    counted = await quota.counted()

    await wire.tell(ENTITLEMENT_EVENTS, snapshot(tenant, 4, limits={"cpu": 400}))
    place = await wire.tell(ENTITLEMENT_EVENTS, snapshot(tenant, 4, limits={"cpu": 900}))

    assert header(await wire.dead_letter(place), "dlq-code") == codes.ENTITLEMENT_CONFLICT.code.encode()
    assert await became(counted, 2) == {"applied": 0, "stale": 0, "repeated": 1, "conflict": 1}
    assert not (await wire.ask(asking("reserve", tenant, footprint={"cpu": 401}))).allowed


async def test_what_is_of_no_concern_to_us_is_ignored(quota: Platform, tenant: str) -> None:
    await entitle(
        quota,
        tenant,
        limits={"seats": "many", "max_schedules": 3, "cpu": "2"},
        features={"sso": "yes", "deployments": True},
        quota_blocked=["scheduled_runs_per_cycle", "seats"],
        colour="blue",
    )

    assert (await quota.wire.ask(asking("reserve", tenant))).allowed


REFUSALS: dict[str, tuple[dict[str, Any], Code, Gate]] = {
    "a tombstone": ({"ended": True}, codes.ENTITLEMENT_ENDED, Gate.DEPLOYMENTS),
    "a plan without deployments": ({"features": {"deployments": False}}, codes.NOT_ENTITLED, Gate.DEPLOYMENTS),
    "a blocked dimension": ({"quota_blocked": ["cpu"]}, codes.QUOTA_BLOCKED, Gate.QUOTA_BLOCKED),
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_a_gate_refuses_growth_and_nothing_else(quota: Platform, wire: Wire, tenant: str, what: str) -> None:
    fields, code, gate = REFUSALS[what]
    await entitle(quota, tenant, 1)
    before = asking("reserve", tenant, footprint={"cpu": 200})
    assert (await wire.ask(before)).allowed
    await entitle(quota, tenant, 2, **fields)
    counted = await quota.counted()

    for verb in ("check", "reserve"):
        reply = await wire.ask(asking(verb, tenant, deployment="d2"))
        assert (reply.allowed, reply.code, reply.status) == (False, code.code, code.status)
        assert reply.denied_gates == (gate,)
        assert reply.fail_open == (), "what is known to be refused is not missing"
        assert reply.message
    assert code.status == (402 if gate is Gate.QUOTA_BLOCKED else 403)
    assert await counted.since("quota_gate_decisions_total", gate=gate, outcome="deny") == 2
    assert await counted.since("quota_gate_fail_open_total", gate=gate) == 0
    assert (await wire.ask(asking("commit", tenant, hold=before["request_id"]))).allowed
    assert (await wire.ask(asking("reserve", tenant, footprint={"cpu": 100}))).allowed, "shrinking is always allowed"
    assert (await wire.ask(asking("adjust", tenant, footprint={"cpu": 300}))).allowed, "a fact is never refused"
    other = await wire.ask(asking("check", tenant, deployment="d3", footprint={"memory": 5}))
    assert other.allowed == (gate is Gate.QUOTA_BLOCKED), "only what is blocked is"
    await entitle(quota, tenant, 3)
    assert (await wire.ask(asking("reserve", tenant, deployment="d2"))).allowed, "it opens by itself"


async def test_a_missing_row_fails_open_and_is_counted_per_gate_and_on_the_decision(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    counted = await quota.counted()
    question = asking("reserve", tenant)

    reply = await wire.ask(question)
    await wire.ask(question)
    await wire.ask(asking("check", tenant, deployment="d2"))
    await wire.ask(asking("release", tenant, hold=question["request_id"]))

    assert reply.allowed
    assert set(reply.fail_open) == set(Gate)
    for gate in Gate:
        counts = await counted.since("quota_gate_fail_open_total", gate=gate)
        assert counts == 2, "the reserve and the check; its repeat and the release asked no gate"
        assert await counted.since("quota_gate_decisions_total", gate=gate, outcome="fail_open") == 2
    first, second = await quota.decisions(tenant)
    assert set(first["fail_open"]) == set(Gate)
    assert second["fail_open"] == []
    (published, _) = await wire.events(QUOTA_DECISIONS, tenant, count=2)
    assert set(published.fail_open) == set(Gate)
    assert {gate["state"] for gate in (await quota.status(tenant))["gates"]} == {"fail_open"}


async def test_an_entitled_tenant_passes_and_says_on_which_version(quota: Platform, wire: Wire, tenant: str) -> None:
    await entitle(quota, tenant, 7)
    counted = await quota.counted()

    reply = await wire.ask(asking("reserve", tenant))

    assert (reply.allowed, reply.fail_open, reply.entitlement_version) == (True, (), 7)
    (stored,) = await quota.decisions(tenant)
    assert stored["entitlement_version"] == 7
    for gate in Gate:
        assert await counted.since("quota_gate_decisions_total", gate=gate, outcome="pass") == 1
        assert await counted.since("quota_gate_fail_open_total", gate=gate) == 0


async def test_a_lower_plan_is_a_crossing_and_an_override_comes_first(quota: Platform, wire: Wire, tenant: str) -> None:
    await entitle(quota, tenant, 1, limits={"memory": "8g"})
    await wire.ask(asking("adjust", tenant, footprint={"memory": "6g"}))

    await entitle(quota, tenant, 2, limits={"memory": "4g"})
    (started,) = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_started.v1")
    assert (started.dimension, started.basis, started.cause) == ("memory", "reserved", "entitlement")
    assert started.over_by == 2 * 2**30

    await quota.set_limits(tenant, {"memory": "16g"})
    (ended,) = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_ended.v1")
    assert ended.since == started.since
    assert (await wire.ask(asking("reserve", tenant, deployment="d2", footprint={"memory": "10g"}))).allowed
    unset = await quota.set_limits(tenant, {"memory": None}, force=True)
    assert unset["changes"][0]["after"]["source"] == "plan"


@pytest.fixture
async def without_entitlements(quota: Platform) -> AsyncIterator[Platform]:
    """The same replica, told that there is no billing."""
    await quota.enforcer().stop()
    await quota.enforcer().start(PLIMSOLL_ENTITLEMENTS="off")
    await quota.enforcer().ready(PARTITIONS)
    yield quota
    await quota.enforcer().stop()
    await quota.enforcer().start()
    await quota.enforcer().ready(PARTITIONS)


async def test_without_billing_there_are_no_gates_and_nothing_is_counted(
    without_entitlements: Platform, wire: Wire, tenant: str
) -> None:
    counted = await without_entitlements.counted()

    reply = await wire.ask(asking("reserve", tenant))

    assert (reply.allowed, reply.fail_open) == (True, ())
    for gate in Gate:
        assert await counted.since("quota_gate_fail_open_total", gate=gate) == 0
        for outcome in ("pass", "deny", "fail_open"):
            assert await counted.since("quota_gate_decisions_total", gate=gate, outcome=outcome) == 0
    (stored,) = await without_entitlements.decisions(tenant)
    assert stored["fail_open"] == []
    assert {gate["state"] for gate in (await without_entitlements.status(tenant))["gates"]} == {"off"}
