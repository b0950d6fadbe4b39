"""The log of decisions over HTTP: pages, filters, one decision with what it rests on; usage then; gates."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.decisions_api import (
    DecisionDetail,
    DecisionList,
    Explanation,
    FigureExplained,
    GatesOverview,
    TenantGates,
    UsageAt,
)
from plimsoll_contracts.topics import DISK_MEASUREMENTS, ENTITLEMENT_EVENTS, USAGE_DELTAS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, unique
from plimsoll_quota_enforcer.storage import decisions

MANY = 100_000


@pytest.fixture
async def http(quota: Platform) -> AsyncIterator[httpx.AsyncClient]:
    async with quota.http as client:
        yield client


async def listed(http: httpx.AsyncClient, tenant: str, **query: Any) -> DecisionList:
    answer = await http.get(f"/tenants/{tenant}/decisions", params=query)
    return DecisionList.model_validate_json(answer.raise_for_status().content)


async def every_page(http: httpx.AsyncClient, tenant: str, **query: Any) -> list[str]:
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = await listed(http, tenant, **query, **after)
        found += [line.request_id for line in page.decisions]
        if page.next is None:
            return found
        after = {"after": page.next}


async def some_decisions(quota: Platform, wire: Wire, tenant: str) -> dict[str, str]:
    """Make a decision of every kind, and return their ids by what they are."""
    await quota.set_limits(tenant, {"cpu": 300}, environment="prod")
    blog = {"environment": "prod", "stack": "blog"}
    asked = {
        "reserve": asking("reserve", tenant, deployment="d1", footprint={"cpu": 200}, **blog),
        "refused": asking("reserve", tenant, deployment="d2", footprint={"cpu": 200}, **blog),
        "shadow": asking("reserve", tenant, deployment="d3", footprint={"cpu": 200}, mode="shadow", **blog),
        "fact": asking("adjust", tenant, deployment="d4", footprint={"cpu": 5}, environment="dev"),
    }
    asked["commit"] = asking("commit", tenant, hold=asked["reserve"]["request_id"])
    for body in asked.values():
        await wire.ask(body)
    return {what: body["request_id"] for what, body in asked.items()}


async def test_pages_come_in_either_order_and_every_decision_once(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    ids = list((await some_decisions(quota, wire, tenant)).values())

    assert await every_page(http, tenant) == ids[::-1]
    for size in (1, 2, 4, 5):
        assert await every_page(http, tenant, limit=size) == ids[::-1]
        assert await every_page(http, tenant, limit=size, oldest_first=True) == ids
    everybody = [line["request_id"] for line in (await http.get("/decisions", params={"limit": 5})).json()["decisions"]]
    assert everybody == ids[::-1]


async def test_filters_narrow_and_pages_of_a_filter_end(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await some_decisions(quota, wire, tenant)
    wanted: list[tuple[dict[str, Any], set[str]]] = [
        ({"verb": "reserve"}, {"reserve", "refused", "shadow"}),
        ({"allowed": "false"}, {"refused"}),
        ({"allowed": "true", "verb": "reserve"}, {"reserve", "shadow"}),
        ({"code": codes.CPU_EXCEEDED.code}, {"refused"}),
        ({"deployment": "d1"}, {"reserve", "commit"}),
        ({"environment": "prod"}, {"reserve", "refused", "shadow", "commit"}),
        ({"environment": "prod", "stack": "shop"}, set()),
        ({"environment": "dev"}, {"fact"}),
        ({"verb": "release"}, set()),
    ]
    for query, expected in wanted:
        for size in (1, 100):
            assert set(await every_page(http, tenant, limit=size, **query)) == {ids[what] for what in expected}, query
    whole = await listed(http, tenant)
    middle = whole.decisions[2].decided_at.isoformat()
    assert await every_page(http, tenant, since=middle) == [line.request_id for line in whole.decisions[:3]]
    assert await every_page(http, tenant, until=middle) == [line.request_id for line in whole.decisions[3:]]
    assert await every_page(http, tenant, until=middle, oldest_first=True) == [
        line.request_id for line in whole.decisions[:2:-1]
    ]

    # However few match, a page looks at so many; then it says where to go on.
    monkeypatch.setattr(decisions, "LOOKED_AT_MAX", 2)
    found: list[str] = []
    after, pages = None, 0
    while pages == 0 or after is not None:
        only = decisions.Wanted(tenant, deployment="d1")
        cursor = decisions.Cursor.read(after) if after else None
        page = await decisions.page(quota.database, only, cursor, 1)
        found += [line.request_id for line in page.decisions]
        after, pages = page.next, pages + 1
    assert found == [ids["commit"], ids["reserve"]]
    assert pages == 4


async def test_one_decision_is_shown_with_what_it_rests_on(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    ids = await some_decisions(quota, wire, tenant)

    async def show(what: str) -> DecisionDetail:
        answer = await http.get(f"/tenants/{tenant}/decisions/{ids[what]}")
        return DecisionDetail.model_validate_json(answer.raise_for_status().content)

    refused = await show("refused")
    assert (refused.scope, refused.deployment, refused.allowed) == (f"{tenant}/blog/prod", "d2", False)
    assert refused.request["footprint"] == {"cpu": 200}
    (violation,) = [v for v in refused.reply.violations if v.basis == "reserved"]
    assert (violation.limit, violation.used, violation.held, violation.asked) == (300, 0, 200, 200)
    assert refused.hold_now is None
    assert (await show("reserve")).hold_now is not None
    assert (await show("reserve")).hold_now.state == "committed"  # type: ignore[union-attr]
    commit = await show("commit")
    assert (commit.scope, commit.deployment) == (f"{tenant}/blog/prod", "d1")
    assert (await show("shadow")).would_deny
    assert commit.seq > refused.seq
    assert refused.present_defaults_version >= refused.defaults_version
    unknown = await http.get(f"/tenants/{tenant}/decisions/nothing")
    assert (unknown.status_code, unknown.json()["code"]) == (404, codes.NOT_FOUND.code)


async def test_what_is_asked_wrongly_is_told(http: httpx.AsyncClient, tenant: str) -> None:
    cursors = ("nonsense", "a~b", "2026-01-01T00:00:00Z~b~c~d", "9999-12-31T23:59:59-14:00~a~b")
    for query in (
        *({"after": cursor} for cursor in cursors),
        {"verb": "eat"},
        {"since": "yesterday"},
        {"deployment": "a b"},
    ):
        answer = await http.get(f"/tenants/{tenant}/decisions", params=query)
        assert answer.status_code == 400, query
    assert (await http.get(f"/tenants/{tenant}/decisions", params={"stack": "blog"})).status_code == 400
    assert (await listed(http, tenant, after="2026-01-01T00:00:00~x~")).decisions == ()


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from _nodes(below)


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_a_page_costs_the_same_anywhere_in_a_hundred_thousand(
    quota: Platform, tenant: str, *, oldest_first: bool
) -> None:
    sql = """
        INSERT INTO decisions (day, tenant, request_id, verb, fingerprint, request, reply, allowed, code, fail_open,
            seq, defaults_version, decided_at)
        SELECT (at AT TIME ZONE 'UTC')::date, $1 || (n % 2), 'r' || n, 'adjust', '', '{}', '{}', false, 'X', '{}',
            0, 0, at
        FROM (
            SELECT n, clock_timestamp() - n * interval '1 second' / 10 AS at FROM generate_series(0, $2 - 1) AS n
        ) AS x"""
    try:
        await quota.database.execute(sql, tenant, MANY)
        await quota.database.execute("ANALYZE decisions")
        now = datetime.now(UTC)
        for of_tenant in (True, False):
            for age in (0, MANY / 20, MANY / 10 - 60):
                at = now - timedelta(seconds=age)
                name = f"{tenant}0" if of_tenant else ""
                statement = decisions.statement(of_tenant=of_tenant, oldest_first=oldest_first)
                span = (at - timedelta(days=40), at + timedelta(days=1))
                days = (span[0].date(), span[1].date(), *span)
                asked = (name, *days, at, "", 100, *(None,) * 4, "", "")
                explained = await quota.database.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *asked)
                for node in _nodes(json.loads(explained)[0]["Plan"]):
                    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    if node.get("Relation Name", "").startswith("decisions"):
                        assert node["Node Type"] != "Seq Scan" or read == 0, node
                        assert read <= 101, "no more is read than a page shows"
    finally:
        await quota.database.execute("DELETE FROM decisions WHERE tenant LIKE $1 || '_'", tenant)


async def test_usage_then_is_what_it_was_and_never_a_wrong_zero(
    http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    before = datetime.now(UTC)
    await wire.ask(asking("reserve", tenant, deployment="d1", footprint={"cpu": 200}, environment="prod"))
    between = datetime.now(UTC)
    await wire.ask(asking("adjust", tenant, deployment="d1", footprint={"cpu": 50}, environment="prod"))
    await wire.tell(USAGE_DELTAS, {"tenant": tenant, "deployment": "d2", "revision": 1, "after": {"cpu": 7}})

    async def usage(**query: Any) -> dict[str, tuple[int, int]]:
        answer = await http.get(f"/tenants/{tenant}/usage", params=query)
        found = UsageAt.model_validate_json(answer.raise_for_status().content)
        return {f"{line.dimension} {line.basis}": (line.used, line.held) for line in found.dimensions}

    async def told() -> bool:
        return (await usage())["cpu reserved"] == (57, 150)

    await eventually(told, what="the present as history has it")
    assert (await usage(at=between.isoformat()))["cpu reserved"] == (0, 200)
    assert (await usage(at=between.isoformat(), environment="dev"))["cpu burst"] == (0, 0)
    assert (await usage(environment="prod"))["cpu reserved"] == (50, 150)
    for at, code in (
        (before, codes.NOTHING_KNOWN_THEN),
        (before - timedelta(days=400), codes.BEFORE_RETENTION),
        (before + timedelta(days=1), codes.INVALID_REQUEST),
    ):
        answer = await http.get(f"/tenants/{tenant}/usage", params={"at": at.isoformat()})
        assert (answer.status_code, answer.json()["code"]) == (code.status, code.code)
    assert (await http.get(f"/tenants/{unique()}/usage")).json()["code"] == codes.NOT_FOUND.code


async def test_gates_tell_who_is_not_judged(http: httpx.AsyncClient, wire: Wire, tenant: str) -> None:
    async def overview(**query: Any) -> GatesOverview:
        return GatesOverview.model_validate_json((await http.get("/gates", params=query)).raise_for_status().content)

    async def gates() -> TenantGates:
        answer = await http.get(f"/tenants/{tenant}/gates")
        return TenantGates.model_validate_json(answer.raise_for_status().content)

    before = await overview()
    begin = datetime.now(UTC)
    await wire.ask(asking("reserve", tenant))
    await wire.ask(asking("adjust", tenant, deployment="d9", footprint={"cpu": 1}))
    after = await overview(after=tenant[:-1], limit=1)

    assert after.expected
    assert [each.failed_open for each in after.gates] == [each.failed_open + 1 for each in before.gates]
    assert all(each.last_at is not None and each.last_at >= begin for each in after.gates)
    (line,) = after.without_entitlement
    assert (line.tenant, line.deployments, after.next) == (tenant, 1, tenant)
    assert line.last_decision_at is not None
    assert line.last_decision_at >= begin
    found = await gates()
    assert {each.state for each in found.gates} == {"fail_open"}
    assert found.last_fail_open_at is not None

    await wire.tell(ENTITLEMENT_EVENTS, {"tenant": tenant, "entitlement_version": 3, "plan": "team"})

    async def entitled() -> bool:
        return (await gates()).entitlement_version == 3

    await eventually(entitled)
    assert {each.state for each in (await gates()).gates} == {"pass"}
    assert tenant not in {each.tenant for each in (await overview(after=tenant[:-1])).without_entitlement}


async def test_a_figure_is_explained_with_every_input_and_its_source(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    async def explained(**query: Any) -> Explanation:
        answer = await http.get(f"/tenants/{tenant}/explain", params=query)
        return Explanation.model_validate_json(answer.raise_for_status().content)

    def figure(found: Explanation, dimension: str, basis: str | None = None) -> FigureExplained:
        return next(each for each in found.figures if (each.dimension, each.basis) == (dimension, basis))

    assert (await http.get(f"/tenants/{tenant}/explain")).json()["code"] == codes.NOT_FOUND.code
    plan = {"tenant": tenant, "entitlement_version": 3, "plan": "team", "limits": {"cpu": "8", "apps": 4}}
    await wire.tell(ENTITLEMENT_EVENTS, plan)

    async def entitled() -> bool:
        return bool((await quota.status(tenant))["plan"])

    await eventually(entitled)
    await quota.set_limits(tenant, {"cpu": 1000}, reason="a small one")
    await quota.set_limits(tenant, {"cpu": 900}, environment="prod")
    blog, shop = ({"environment": "prod", "stack": stack} for stack in ("blog", "shop"))
    web = {"footprint": {"cpu": 100, "disk": 777}, "app": "web"}
    await wire.ask(asking("adjust", tenant, deployment="d1", **web, **blog))
    await wire.ask(asking("adjust", tenant, deployment="d2", footprint={"cpu": 300}, **shop))
    await wire.ask(asking("reserve", tenant, deployment="d1", footprint={"cpu": 150}, **blog))
    await wire.ask(asking("reserve", tenant, deployment="d3", footprint={"cpu": 200}, **blog))
    measured = {"tenant": tenant, "bytes": 700, "method": "walk", "complete": True, "term": 1, "scan": 1}
    await wire.tell(DISK_MEASUREMENTS, {**measured, "measured_at": datetime.now(UTC).isoformat(), **blog})

    async def has_measurement() -> bool:
        return bool((await explained()).measurements)

    await eventually(has_measurement)
    whole = await explained()
    cpu = figure(whole, "cpu", "reserved")
    assert (cpu.used, cpu.held, cpu.ceiling, cpu.headroom) == (400, 250, 1000, 350)
    assert [(each.level, each.holds, each.limit.value) for each in cpu.levels] == [
        ("override", True, 1000),
        ("plan", False, 8000),
        ("default", False, None),
    ]
    assert cpu.levels[0].limit.reason == "a small one"
    assert [(each.deployment, each.counts, each.revision) for each in cpu.charges] == [("d2", 300, 1), ("d1", 100, 1)]
    assert [(each.deployment, each.adds) for each in cpu.holds] == [("d3", 200), ("d1", 50)]
    assert all(each.expires_at > whole.as_of > each.since for each in cpu.holds)
    assert sum(each.counts for each in cpu.charges) == cpu.used
    assert sum(each.adds for each in cpu.holds) == cpu.held
    assert figure(whole, "apps").members == ("web",)
    assert figure(whole, "stacks").members == ("blog/prod", "shop/prod")
    assert [level.holds for level in figure(whole, "apps").levels] == [False, True, False]
    assert figure(whole, "disk").used == 777
    (found,) = whole.measurements
    assert (found.scope, found.bytes, found.method, found.complete) == (f"{tenant}/blog/prod", 700, "walk", True)
    assert (whole.gates.plan, whole.gates.entitlement_version) == ("team", 3)
    assert {gate.state for gate in whole.gates.gates} == {"pass"}

    part = await explained(dimension="cpu", **blog)
    assert {each.dimension for each in part.figures} == {"cpu"}
    reserved = figure(part, "cpu", "reserved")
    assert (reserved.used, reserved.held, reserved.ceiling) == (100, 250, None)
    assert [(each.level, each.limit.source) for each in reserved.levels] == [("override", "none")]
    assert [(each.scope, each.ceiling, each.used, each.headroom) for each in reserved.above] == [
        (f"{tenant}/env:prod", 900, 400, 250),
        (tenant, 1000, 400, 350),
    ]
    assert part.measurements == ()
    assert (await http.get(f"/tenants/{tenant}/explain", params={"dimension": "gpu"})).status_code == 400
