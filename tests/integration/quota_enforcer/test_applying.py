"""Many limits declared at once: planned, applied all or none over all tenants, and undone exactly."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest
from tests.integration.quota_enforcer.test_api import http, problem
from tests.integration.quota_enforcer.test_limit_requests import ask

from plimsoll_contracts import codes
from plimsoll_contracts.access import Permission
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.limits_api import MAX_DECLARED
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS, QUOTA_LIMITS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, unique
from plimsoll_quota_enforcer.domain.declare import Declared
from plimsoll_quota_enforcer.domain.model import TENANT
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.storage.applying import Application, apply_limits
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.limits import Patch, Wanted, change_limits

__all__ = ["http"]

LATER = "2999-01-01T00:00:00Z"
Limits = dict[tuple[str, str], tuple[object, str, str | None]]


async def apply(http: httpx.AsyncClient, scopes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    answer = await http.post("/apply", json={"scopes": scopes, "reason": "as declared", **more})
    assert answer.is_success, answer.text
    return dict(answer.json())


async def stand(quota: Platform, *tenants: str) -> Limits:
    """Read what is set: values, modes and expiries of some tenants, and of the defaults."""
    found: Limits = {}
    async with quota.http as http:
        for tenant in tenants:
            for each in (await http.get(f"/tenants/{tenant}/limits", params={"limit": 500})).json()["limits"]:
                limit = each["limit"]
                found[each["scope"], each["dimension"]] = (limit["value"], limit["mode"], limit["expires_at"])
        for dimension, limit in (await http.get("/defaults")).json()["limits"].items():
            found["defaults", dimension] = (limit["value"], limit["mode"], limit["expires_at"])
    return found


async def versions(database: asyncpg.Pool, *tenants: str) -> int:
    """Count versions, of which none may be missing."""
    sql = """SELECT coalesce(sum(max), 0) FROM (
        SELECT count(*), max(version) FROM limit_history WHERE tenant = ANY ($1)
        GROUP BY tenant, environment, stack, dimension HAVING count(*) = max(version)) AS gapless"""
    total = await database.fetchval("SELECT count(*) FROM limit_history WHERE tenant = ANY ($1)", [*tenants])
    assert await database.fetchval(sql, [*tenants]) == total, "a version is missing"
    return int(total)


@pytest.fixture
async def clean_defaults(quota: Platform) -> AsyncIterator[None]:
    yield
    async with quota.http as http:
        await apply(http, {}, defaults=dict.fromkeys(["cpu", "memory", "disk", "apps", "vapps"]), force=True)


def lines(done: Mapping[str, Any]) -> list[tuple[str, str, object, object]]:
    return [(x["scope"], x["dimension"], _value(x["before"]), _value(x["after"])) for x in done["changes"]]


def _value(limit: dict[str, Any] | None) -> object:
    return limit["value"] if limit is not None else None


async def test_a_plan_changes_nothing_applied_it_does_and_again_it_does_nothing(
    quota: Platform, http: httpx.AsyncClient, wire: Wire
) -> None:
    one, two = unique("a"), unique("b")
    await quota.set_limits(one, {"cpu": 2000, "disk": 7})
    declared = {two: {"apps": "unlimited"}, f"{one}/env:dev": {"memory": "8g"}, one: {"cpu": "4", "disk": 7}}
    expected = [
        (one, "cpu", 2000, 4000),
        (f"{one}/env:dev", "memory", None, 8 << 30),
        (two, "apps", None, "unlimited"),
    ]

    plan = await apply(http, declared, dry_run=True)
    assert (lines(plan), plan["applied"], plan["unchanged"]) == (expected, False, 1)
    assert await versions(quota.database, one, two) == 2
    tenants = [row[0] for row in await quota.database.fetch("SELECT tenant FROM tenants WHERE tenant = $1", two)]
    assert tenants == [], "a plan leaves nothing behind, not even a guard"

    done = await apply(http, declared, plan=plan["plan"])
    assert (lines(done), done["applied"]) == (expected, True)
    assert await versions(quota.database, one, two) == 5
    told = await wire.events(QUOTA_LIMITS, one, count=4, kind="quota.limit_changed.v1")
    assert [(event.scope, event.before, event.after) for event in told[2:]] == [
        (one, 2000, 4000),
        (f"{one}/env:dev", None, 8 << 30),
    ]
    assert told[2].reason == "as declared"

    again = await apply(http, declared)
    assert (again["changes"], again["applied"], again["unchanged"]) == ([], False, 4)
    assert again["inverse"] == {"defaults": {}, "scopes": {}}
    assert await versions(quota.database, one, two) == 5
    assert (await quota.status(one))["seq"] == told[-1].seq


@pytest.mark.usefixtures("clean_defaults")
async def test_the_inverse_brings_everything_back(quota: Platform, http: httpx.AsyncClient) -> None:
    one, two = unique("a"), unique("b")
    await quota.set_limits(one, {"cpu": 2000}, mode="shadow", expires_at=LATER)
    await quota.set_limits(one, {"memory": "unlimited", "disk": 5})
    await apply(http, {}, defaults={"cpu": "1", "apps": {"value": 9, "mode": "shadow"}})
    before = await stand(quota, one, two)
    declared = {
        one: {"cpu": 4000, "memory": None, "disk": {"value": 5, "mode": "shadow"}},
        f"{two}/blog/prod": {"vapps": {"value": 0, "expires_at": LATER, "reason": "a trial"}},
    }

    done = await apply(http, declared, defaults={"cpu": None, "apps": 9, "disk": "1t"})
    changed = await stand(quota, one, two)
    assert changed[f"{two}/blog/prod", "vapps"] == (0, "enforce", LATER)
    assert changed["defaults", "disk"] == (1 << 40, "enforce", None)
    undone = await apply(http, done["inverse"]["scopes"], defaults=done["inverse"]["defaults"])

    assert await stand(quota, one, two) == before
    redone = await apply(http, undone["inverse"]["scopes"], defaults=undone["inverse"]["defaults"])
    assert await stand(quota, one, two) == changed
    assert len(done["changes"]) == len(undone["changes"]) == len(redone["changes"]) == 7


@pytest.mark.usefixtures("clean_defaults")
async def test_whatever_is_declared_the_inverse_is_its_inverse(quota: Platform, http: httpx.AsyncClient) -> None:
    chance = random.Random(7)
    tenants = [unique("p") for _ in range(3)]
    places = [where for t in tenants for where in (t, f"{t}/env:dev", f"{t}/blog/dev")]

    def one() -> Any:
        amount = chance.choice([0, 1, 2, "unlimited"])
        ends = chance.choice([None, LATER, "2998-01-01T00:00:00Z"])
        plain, whole = amount, {"value": amount, "mode": chance.choice(["enforce", "shadow"]), "expires_at": ends}
        return chance.choice([None, plain, whole])

    def some(*names: str) -> dict[str, Any]:
        return {name: one() for name in names if chance.random() < 0.5}

    for _ in range(25):
        scopes = {where: some("cpu", "vapps") for where in places if chance.random() < 0.6}
        before, defaults = await stand(quota, *tenants), some("cpu", "apps")
        count = await versions(quota.database, *tenants, "")
        plan = await apply(http, scopes, defaults=defaults, dry_run=True)
        done = await apply(http, scopes, defaults=defaults, plan=plan["plan"])
        assert done["changes"] == plan["changes"] or _without_times(done) == _without_times(plan)
        assert (await apply(http, scopes, defaults=defaults))["changes"] == []
        after = await stand(quota, *tenants)
        for where, declared in [*scopes.items(), ("defaults", defaults)]:
            for dimension, value in declared.items():
                whole = value if isinstance(value, dict) else {"value": value, "mode": "enforce", "expires_at": None}
                expected = None if value is None else (whole["value"], whole["mode"], whole["expires_at"])
                assert after.get((where, dimension)) == expected
        undone = await apply(http, done["inverse"]["scopes"], defaults=done["inverse"]["defaults"])
        assert await stand(quota, *tenants) == before
        assert len(done["changes"]) == len(undone["changes"])
        assert await versions(quota.database, *tenants, "") == count + 2 * len(done["changes"])
        await apply(http, scopes, defaults=defaults)  # the next round starts from another state


def _without_times(done: Mapping[str, Any]) -> list[Any]:
    return [{**change, "holds": {**change["holds"], "set_at": None}} for change in done["changes"]]


async def test_one_bad_limit_among_many_and_nothing_is_set(quota: Platform, http: httpx.AsyncClient) -> None:
    tenants = [unique("m") for _ in range(20)]
    good = {tenant: {"cpu": 1000, "memory": "1g"} for tenant in tenants}
    for name, bad, code in (
        (tenants[10], {"gpu": 1}, codes.DIMENSION_UNKNOWN),
        (tenants[10], {"memory": "1.5g"}, codes.INVALID_BYTES),
        (tenants[10], {"cpu": -1}, codes.INVALID_CPU),
        (f"{tenants[10]}/env:dev", {"environments": 1}, codes.LIMIT_NOT_HERE),
        (f"{tenants[10]}/blog", {"cpu": 1}, codes.SCOPE_IS_ROLLUP),
        ("Acme", {"cpu": 1}, codes.INVALID_NAME),
        ("defaults", {"cpu": 1}, codes.NAME_RESERVED),
        (tenants[10], {"cpu": {"value": 1, "colour": "blue"}}, codes.INVALID_REQUEST),
        (tenants[10], {"cpu": {"value": 1, "expires_at": "soon"}}, codes.INVALID_REQUEST),
        (tenants[10], {"cpu": True}, codes.INVALID_REQUEST),
        (tenants[10], {"cpu": {"mode": "shadow"}}, codes.INVALID_REQUEST),
    ):
        for dry_run in (False, True):
            body = {"scopes": {**good, name: bad}, "reason": "x", "dry_run": dry_run}
            said = problem(await http.post("/apply", json=body), code)
            assert name.lower() in said.detail.lower() or code is codes.INVALID_NAME, said
    both = {**good, tenants[3]: {"gpu": 1}, tenants[4]: {"memory": "x"}}
    said = problem(await http.post("/apply", json={"scopes": both, "reason": "x"}), codes.DIMENSION_UNKNOWN)
    assert tenants[3] in said.detail
    assert tenants[4] in said.detail, "what is wrong is told together"
    assert await versions(quota.database, *tenants) == 0
    assert await quota.database.fetchval("SELECT count(*) FROM limits WHERE tenant = ANY ($1)", tenants) == 0


async def test_below_usage_is_planned_refused_and_forced(quota: Platform, http: httpx.AsyncClient, wire: Wire) -> None:
    tenants = sorted(unique("u") for _ in range(3))
    await wire.ask(asking("adjust", tenants[1], footprint={"cpu": 300}))
    await wire.ask(asking("reserve", tenants[1], deployment="d2", footprint={"cpu": 100}))
    declared = {tenant: {"cpu": 399} for tenant in tenants}

    plan = await apply(http, declared, dry_run=True)
    assert [change["below_usage"] for change in plan["changes"]] == [False, True, False]
    assert "used 300m + held 100m" in plan["changes"][1]["warnings"][0]
    refused = await http.post("/apply", json={"scopes": declared, "reason": "x", "plan": plan["plan"]})
    assert tenants[1] in problem(refused, codes.LIMIT_BELOW_USAGE).detail
    assert await versions(quota.database, *tenants) == 0

    done = await apply(http, declared, plan=plan["plan"], force=True)
    assert done["applied"]
    (started,) = await wire.events(QUOTA_LIMITS, tenants[1], kind="quota.over_limit_started.v1")
    assert (started.limit, started.usage) == (399, 400)
    await apply(http, {tenants[1]: {"cpu": 400}})
    await wire.events(QUOTA_LIMITS, tenants[1], kind="quota.over_limit_ended.v1")


async def test_a_plan_that_is_no_longer_the_same_is_not_applied(
    quota: Platform, http: httpx.AsyncClient, wire: Wire
) -> None:
    one, two = unique("a"), unique("b")
    declared = {one: {"cpu": 4000}, two: {"cpu": 4000}}

    async def refused(tag: str, **more: Any) -> None:
        body = {"scopes": declared, "reason": "x", "plan": tag, **more}
        problem(await http.post("/apply", json=body), codes.LIMIT_PLAN_CHANGED)

    plan = (await apply(http, declared, dry_run=True))["plan"]
    await quota.set_limits(two, {"cpu": 1000})
    await refused(plan)
    await quota.set_limits(two, {"cpu": None})
    await refused(plan)  # it is as it was, but somebody was there

    plan = (await apply(http, declared, dry_run=True))["plan"]
    await quota.set_limits(one, {"memory": 1})  # of another dimension: the plan is the same
    await wire.ask(asking("adjust", one, footprint={"cpu": 5000}))
    await refused(plan, force=True)  # what nobody was told lies below usage now
    plan = (await apply(http, declared, dry_run=True))["plan"]
    assert (await apply(http, declared, plan=plan, force=True))["applied"]
    await refused(plan)


async def test_limits_of_one_application_are_judged_together(
    quota: Platform, http: httpx.AsyncClient, tenant: str
) -> None:
    await quota.set_limits(tenant, {"cpu": 1000})
    both = await apply(http, {f"{tenant}/env:dev": {"cpu": 4000}, tenant: {"cpu": 8000}})
    assert [change["warnings"] for change in both["changes"]] == [[], []], "the parent is raised with the child"
    above = await apply(http, {f"{tenant}/env:dev": {"cpu": 9000}})
    assert "binds before" in above["changes"][0]["warnings"][0]


@pytest.mark.usefixtures("clean_defaults")
async def test_what_falls_back_falls_to_the_default_of_the_same_application(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    await quota.set_limits(tenant, {"disk": 500})
    await wire.ask(asking("adjust", tenant, footprint={"disk": 400}))
    plan = await apply(http, {tenant: {"disk": None}}, defaults={"disk": 300}, dry_run=True)
    fallen = plan["changes"][1]
    assert (fallen["holds"]["source"], fallen["holds"]["value"], fallen["below_usage"]) == ("default", 300, True)
    await apply(http, {tenant: {"disk": None}}, defaults={"disk": 300}, force=True)
    (started,) = await wire.events(QUOTA_LIMITS, tenant, kind="quota.over_limit_started.v1", seconds=7)
    assert (started.limit, started.usage) == (300, 400)
    assert not (await wire.ask(asking("reserve", tenant, deployment="d2", footprint={"disk": 1}))).allowed


@pytest.mark.usefixtures("clean_defaults")
async def test_a_default_names_who_uses_more(quota: Platform, http: httpx.AsyncClient, wire: Wire) -> None:
    over, limited, planned, spared, burst = (unique(name) for name in ("over", "limited", "plan", "spared", "burst"))
    for tenant in (over, limited, planned, spared):
        await wire.ask(asking("adjust", tenant, footprint={"memory": 901}))
    await wire.ask(asking("adjust", burst, footprint={"memory": 900}))
    await quota.set_limits(limited, {"memory": 5000})
    snapshot = {"tenant": planned, "entitlement_version": 1, "plan": "team", "limits": {"memory": 5000}}
    await wire.tell(ENTITLEMENT_EVENTS, snapshot)

    async def entitled() -> bool:
        return bool((await quota.status(planned))["plan"])

    await eventually(entitled)
    plan = await apply(http, {spared: {"memory": 5000}}, defaults={"memory": 900}, dry_run=True)
    (warning,) = plan["changes"][0]["warnings"]
    assert [over in warning, *(t in warning for t in (limited, planned, spared, burst))] == [True] + [False] * 4
    answer = await http.patch("/defaults", json={"limits": {"memory": 900}, "reason": "x"})
    (warning,) = answer.json()["changes"][0]["warnings"]
    assert (over in warning, spared in warning, limited in warning) == (True, True, False)


async def test_a_limit_whose_time_has_passed_counts_as_none(http: httpx.AsyncClient, tenant: str) -> None:
    past = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    assert (await apply(http, {tenant: {"cpu": {"value": 5, "expires_at": past}}}))["changes"] == []
    await apply(http, {tenant: {"cpu": 7}})
    done = await apply(http, {tenant: {"cpu": {"value": 5, "expires_at": past}}})
    assert lines(done) == [(tenant, "cpu", 7, None)]


async def test_tokens_bound_it(quota: Platform, tenant: str) -> None:
    def client(*scopes: Permission, tenants: Any = "*") -> httpx.AsyncClient:
        return quota.http_as(quota.stack.credentials.token(subject="bob", scopes=scopes, tenants=tenants))

    body = {"scopes": {tenant: {"cpu": 1}}, "reason": "x"}
    async with client(Permission.WRITE) as writer, client(Permission.READ, Permission.ADMIN) as reader:
        problem(await reader.post("/apply", json=body), codes.SCOPE_MISSING)
        problem(await writer.post("/apply", json={**body, "defaults": {"cpu": 1}}), codes.SCOPE_MISSING)
        assert (await writer.post("/apply", json=body)).is_success
    async with client(Permission.WRITE, tenants=[tenant]) as theirs:
        more = {"scopes": {tenant: {"cpu": 2}, unique("other"): {"cpu": 2}}, "reason": "x"}
        problem(await theirs.post("/apply", json=more), codes.NOT_FOUND)
        problem(await theirs.post("/apply", json={**more, "dry_run": True}), codes.NOT_FOUND)
    assert (await stand(quota, tenant))[tenant, "cpu"] == (1, "enforce", None)


async def test_it_is_bounded(quota: Platform, http: httpx.AsyncClient) -> None:
    prefix = unique("n")
    many = {f"{prefix}-{number}": {"cpu": number} for number in range(2000)}
    assert len((await apply(http, many))["changes"]) == 2000
    assert await versions(quota.database, *many) == 2000
    more = {f"{prefix}-{number}": dict.fromkeys(["cpu", "memory", "disk"]) for number in range(MAX_DECLARED // 3 + 1)}
    problem(await http.post("/apply", json={"scopes": more, "reason": "x"}), codes.TOO_LARGE)


async def test_thirty_at_once_leave_a_history_without_a_gap(
    quota: Platform, http: httpx.AsyncClient, wire: Wire
) -> None:
    tenants = [unique("c") for _ in range(4)]
    requests = [await ask(http, tenants[number % 4], value=number) for number in range(10)]

    async def applied(number: int) -> httpx.Response:
        some = tenants if number % 2 else tenants[::-1]
        body = {"scopes": {tenant: {"cpu": number} for tenant in some}, "reason": f"apply {number}"}
        return await http.post("/apply", json=body)

    async def patched(number: int) -> httpx.Response:
        body = {"limits": {"cpu": number, "apps": 3}, "reason": f"set {number}"}
        return await http.patch(f"/tenants/{tenants[number % 4]}/limits", json=body)

    async def approved(number: int) -> httpx.Response:
        return await http.post(f"/limit-requests/{requests[number]}/approve", json={"reason": "yes"})

    work = [make(number) for number in range(10) for make in (applied, patched, approved)]
    asks = [wire.ask(asking("adjust", tenants[n % 4], deployment=f"d{n}", footprint={"disk": 1})) for n in range(20)]
    answers, replies = await asyncio.gather(asyncio.gather(*work), asyncio.gather(*asks))
    assert all(reply.allowed for reply in replies), "requests go on meanwhile"
    assert [answer.text for answer in answers if not answer.is_success] == []
    total = await versions(quota.database, *tenants)
    sql = "SELECT count(*) FROM limit_history WHERE tenant = ANY ($1) AND reason LIKE $2"
    assert await quota.database.fetchval(sql, tenants, "set %") == 20
    assert await quota.database.fetchval(sql, tenants, "request %") == 10
    assert total == 30 + await quota.database.fetchval(sql, tenants, "apply %")
    for tenant in tenants:
        newest = (await http.get(f"/tenants/{tenant}/limits/history", params={"dimension": "cpu", "limit": 1})).json()
        assert newest["versions"][0]["after"]["value"] == (await stand(quota, tenant))[tenant, "cpu"][0]


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_has_expired_frees_its_node_and_harms_it_not(quota: Platform, wire: Wire, *, at_once: bool) -> None:
    tenants, node = [unique("x") for _ in range(2)], unique("node")
    sql = "INSERT INTO nodes (node, pool, cpu_capacity, memory_capacity) VALUES ($1, 'main', 1000, 1000)"
    await quota.database.execute(sql, node)
    for tenant in tenants:
        reserve = asking("reserve", tenant, footprint={"cpu": 400}, placement={"node": node})
        assert (await wire.ask(reserve)).allowed
    cpu: dict[Dimension, Any] = {Dimension.CPU: Wanted(399)}
    async with quota.database.acquire() as connection, connection.transaction():
        # In one transaction, so that the sweep does not come first.
        await connection.execute("UPDATE holds SET expires_at = now() WHERE tenant = ANY ($1)", tenants)
        cache, policy = StateCache(100), Policy()
        if at_once:
            scopes = {tenant: {TENANT: {Dimension.CPU: Declared(399)}} for tenant in tenants}
            await apply_limits(connection, cache, policy, Application({}, scopes, "test", "test"))
        else:
            for tenant in tenants:
                patch = Patch(cpu, "test", "test")
                await change_limits(connection, cache, policy, tenant=tenant, place=TENANT, patch=patch)
    row = await quota.database.fetchrow("SELECT * FROM nodes WHERE node = $1", node)
    assert row is not None
    assert (row["pool"], row["cpu_capacity"], row["cpu_allocated"], row["memory_allocated"]) == ("main", 1000, 0, 0)
