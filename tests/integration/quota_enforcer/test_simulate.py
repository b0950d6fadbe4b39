"""Simulation over HTTP: other limits tried on what was asked, and nothing changed by it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.decisions_api import Simulated
from plimsoll_contracts.topics import USAGE_DELTAS
from plimsoll_devkit.builders import POLICY
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, unique
from plimsoll_quota_enforcer.domain.declare import Declaration
from plimsoll_quota_enforcer.domain.model import TENANT, Place
from plimsoll_quota_enforcer.storage import simulating
from plimsoll_quota_enforcer.storage.history import hold_history
from plimsoll_quota_enforcer.storage.simulating import Tried


@pytest.fixture
async def http(quota: Platform) -> AsyncIterator[httpx.AsyncClient]:
    async with quota.http as client:
        yield client


async def tried(http: httpx.AsyncClient, scopes: dict[str, Any], since: datetime | None = None) -> Simulated:
    begin = (since or datetime.now(UTC) - timedelta(hours=1)).isoformat()
    answer = await http.post("/simulate", json={"scopes": scopes, "since": begin})
    return Simulated.model_validate_json(answer.raise_for_status().content)


async def everything(quota: Platform, tenant: str) -> list[list[tuple[Any, ...]]]:
    tables = ("charges", "holds", "usage", "decisions", "changes", "limits", "limit_history", "tenants", "waiters")
    found = []
    for table in tables:
        query = f"SELECT * FROM {table} WHERE tenant = $1 ORDER BY 1, 2, 3"  # noqa: S608  names of this file
        found.append([tuple(row) for row in await quota.database.fetch(query, tenant)])
    return found


async def test_lower_limits_name_whom_they_would_have_refused(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    await quota.set_limits(tenant, {"cpu": 1000})
    place = {"environment": "prod", "stack": "blog"}
    asked = [asking("reserve", tenant, deployment=f"d{n}", footprint={"cpu": 400}, **place) for n in range(3)]
    for body in asked:
        await wire.ask(body)
    for body in asked[:2]:
        await wire.ask(asking("commit", tenant, hold=body["request_id"]))
    delta = {"tenant": tenant, "deployment": "d1", "revision": 5, "after": {"cpu": 450}, **place}
    await wire.tell(USAGE_DELTAS, delta)

    async def settled() -> bool:
        return (await quota.used(tenant, "cpu"))[0] == 850

    await eventually(settled)
    before = await everything(quota, tenant)

    lower = await tried(http, {tenant: {"cpu": "500m"}})
    assert (lower.replayed, lower.facts, lower.refused_then, lower.refused_proposed) == (5, 1, 1, 2)
    assert (lower.newly_refused, lower.newly_allowed, lower.left_out, lower.differs) == (1, 0, 2, {})
    (found,) = lower.refusals
    assert (found.request_id, found.scope, found.deployment) == (asked[1]["request_id"], f"{tenant}/blog/prod", "d1")
    assert found.code == codes.CPU_EXCEEDED.code
    over = found.over[0]
    assert (over.scope, over.limit, over.held + over.used, over.asked, over.over_by) == (tenant, 500, 400, 400, 300)
    now = lower.over_now[0]
    assert (now.scope, now.limit, now.used, now.over_by) == (tenant, 500, 850, 350)

    higher = await tried(http, {tenant: {"cpu": "2"}})
    assert [each.request_id for each in higher.admissions] == [asked[2]["request_id"]]
    assert (higher.newly_refused, higher.over_now) == (0, ())
    same = await tried(http, {f"{tenant}/env:dev": {"cpu": 1}})
    assert (same.newly_refused, same.newly_allowed, same.refused_proposed, same.differs) == (0, 0, 1, {})
    inherits = await tried(http, {tenant: {"cpu": None}})
    assert inherits.newly_allowed == 1
    assert (await tried(http, {tenant: {"cpu": 1}}, since=datetime.now(UTC))).replayed == 0
    assert await everything(quota, tenant) == before, "nothing is written"


async def test_holds_that_expired_and_limits_that_moved_come_out_as_recorded(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    await quota.set_limits(tenant, {"cpu": 400})
    short = asking("reserve", tenant, deployment="d1", footprint={"cpu": 400}, ttl_seconds=1)
    await wire.ask(short)
    middle = datetime.now(UTC)

    async def expired() -> bool:
        state = await quota.database.fetchval("SELECT state FROM holds WHERE tenant = $1", tenant)
        return bool(state == "expired")

    await eventually(expired)
    closed = datetime.now(UTC)
    await wire.ask(asking("reserve", tenant, deployment="d2", footprint={"cpu": 300}))
    await quota.set_limits(tenant, {"cpu": 800})
    await wire.ask(asking("commit", tenant, hold=short["request_id"]))
    await wire.ask(asking("reserve", tenant, deployment="d3", footprint={"cpu": 200}))
    for since, count in ((None, 4), (middle, 3), (closed, 3)):
        found = await tried(http, {tenant: {}}, since)
        assert (found.replayed, found.refused_then, found.refused_proposed, found.differs) == (count, 1, 1, {})


async def test_defaults_that_moved_meanwhile_are_followed(http: httpx.AsyncClient, wire: Wire, tenant: str) -> None:
    body: dict[str, Any] = {"limits": {"vapps": 2}, "reason": "test"}
    begin = datetime.now(UTC)
    await wire.ask(asking("reserve", tenant, deployment="d1", footprint={"vapps": 3}))
    assert (await http.patch("/defaults", json=body)).is_success
    try:
        await wire.ask(asking("reserve", tenant, deployment="d2", footprint={"vapps": 1}))
    finally:
        assert (await http.patch("/defaults", json={**body, "limits": {"vapps": None}})).is_success
    await wire.ask(asking("reserve", tenant, deployment="d3", footprint={"vapps": 1}))
    found = await tried(http, {tenant: {}}, begin)
    assert (found.replayed, found.refused_then, found.refused_proposed, found.differs) == (3, 1, 1, {})
    assert (await tried(http, {tenant: {"vapps": 9}}, begin)).newly_allowed == 1


async def test_what_cannot_be_tried_is_told(http: httpx.AsyncClient, tenant: str) -> None:
    since = datetime.now(UTC).isoformat()
    for body, code in (
        ({"scopes": {unique(): {"cpu": 1}}, "since": since}, codes.NOT_FOUND),
        ({"scopes": {tenant: {"gpu": 1}}, "since": since}, codes.DIMENSION_UNKNOWN),
        ({"scopes": {"a/b/c/d": {"cpu": 1}}, "since": since}, codes.INVALID_NAME),
        ({"scopes": {f"{tenant}/blog": {"cpu": 1}}, "since": since}, codes.SCOPE_IS_ROLLUP),
        ({"scopes": {}}, codes.INVALID_REQUEST),
        ({"scopes": {}, "since": since, "until": since}, codes.UNKNOWN_FIELD),
    ):
        answer = await http.post("/simulate", json=body)
        assert (answer.status_code, answer.json()["code"]) == (code.status, code.code), body


async def test_a_tenant_that_is_known_for_less_time_is_replayed_and_so_are_defaults(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    begin = datetime.now(UTC)
    await wire.ask(asking("reserve", tenant, deployment="d1", footprint={"disk": 77}))
    answer = await http.post(
        "/simulate", json={"defaults": {"disk": 70}, "scopes": {tenant: {}}, "since": begin.isoformat()}
    )
    found = Simulated.model_validate_json(answer.content)
    assert [each.tenant for each in found.refusals] == [tenant]
    assert found.tenants > 1
    ages_ago = {"scopes": {tenant: {}}, "since": (begin - timedelta(days=1)).isoformat()}
    assert (await http.post("/simulate", json=ages_ago)).json()["replayed"] == 1
    earlier = "UPDATE tenants SET known_since = $2 WHERE tenant = $1"
    await quota.database.execute(earlier, tenant, begin - timedelta(days=90))
    ages_ago["since"] = (begin - timedelta(days=80)).isoformat()
    assert (await http.post("/simulate", json=ages_ago)).json()["code"] == codes.BEFORE_RETENTION.code


async def test_it_is_cut_at_so_many_decisions_and_says_where(
    quota: Platform, wire: Wire, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await wire.ask(asking("adjust", tenant, deployment=f"d{number}"))
    monkeypatch.setattr(simulating, "DECISIONS_MAX", 3)
    begin = datetime.now(UTC) - timedelta(hours=1)
    pool: asyncpg.Pool = quota.database
    found = await simulating.simulate(pool, POLICY, Tried(begin, scopes={tenant: {("", ""): {}}}))
    fourth = (await quota.decisions(tenant))[3]
    assert (found.replayed, found.cut, found.replayed_until) == (3, True, fourth["decided_at"])


async def test_it_is_cut_at_so_many_tenants_and_says_so(
    quota: Platform, wire: Wire, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = unique()
    for name in (tenant, other):
        await wire.ask(asking("adjust", name))
    monkeypatch.setattr(simulating, "TENANTS_MAX", 1)
    begin = datetime.now(UTC) - timedelta(hours=1)
    pool: asyncpg.Pool = quota.database
    two: dict[str, dict[Place, Declaration]] = {name: {TENANT: {}} for name in (tenant, other)}
    found = await simulating.simulate(pool, POLICY, Tried(begin, scopes=two))
    assert (found.tenants, found.replayed, found.cut, found.replayed_until) == (1, 1, True, begin)


async def test_enforcement_goes_on_while_a_simulation_reads(quota: Platform, wire: Wire, tenant: str) -> None:
    async with (
        quota.database.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        await hold_history(connection)
        assert (await wire.ask(asking("reserve", tenant), seconds=5)).allowed
