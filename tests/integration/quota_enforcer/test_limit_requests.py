"""Asking for another limit: approved it is set in the same transaction, rejected nothing changes, decided once."""

import asyncio
from typing import Any

import httpx
from tests.integration.quota_enforcer.test_api import http, patch, problem
from tests.integration.quota_enforcer.test_limits_shown import pages

from plimsoll_contracts import codes
from plimsoll_contracts.access import Permission
from plimsoll_contracts.topics import QUOTA_LIMITS
from plimsoll_devkit.platform import Platform
from plimsoll_devkit.stack.credentials import OPERATOR
from plimsoll_devkit.wire import Wire, asking, unique

__all__ = ["http"]

YES = {"reason": "agreed"}


async def ask(http: httpx.AsyncClient, tenant: str, **more: Any) -> int:
    body = {"tenant": tenant, "dimension": "cpu", "value": "2", "reason": "the sale", **more}
    answer = await http.post("/limit-requests", json=body)
    assert answer.is_success, answer.text
    return int(answer.json()["id"])


async def test_an_approved_request_sets_the_limit_and_tells_both(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    request = await ask(http, tenant, environment="prod")
    asked = (await http.get(f"/limit-requests/{request}")).json()
    assert (asked["state"], asked["scope"], asked["value"]) == ("asked", f"{tenant}/env:prod", 2000)

    decided = (await http.post(f"/limit-requests/{request}/approve", json=YES)).json()

    assert (decided["state"], decided["granted"], decided["version"], decided["decided_by"]) == (
        "approved",
        2000,
        1,
        OPERATOR,
    )
    (cpu, _) = [x for x in (await quota.status(tenant, environment="prod"))["dimensions"] if x["dimension"] == "cpu"]
    assert (cpu["limit"]["value"], cpu["limit"]["set_by"]) == (2000, OPERATOR)
    assert cpu["limit"]["reason"] == f"request {request}: agreed"
    told = await wire.events(QUOTA_LIMITS, tenant, count=3)
    assert [type(event).__name__ for event in told] == ["LimitRequested", "LimitChanged", "LimitRequestDecided"]
    assert (told[0].asked_by, told[0].reason, told[2].seq) == (OPERATOR, "the sale", told[1].seq)


async def test_it_may_be_approved_with_another_value_and_an_end(http: httpx.AsyncClient, tenant: str) -> None:
    request = await ask(http, tenant, value="unlimited")
    until = "2999-01-01T00:00:00Z"
    body = {**YES, "value": "500m", "expires_at": until, "mode": "shadow"}
    decided = (await http.post(f"/limit-requests/{request}/approve", json=body)).json()
    assert (decided["value"], decided["granted"], decided["expires_at"]) == ("unlimited", 500, until)
    (entry,) = (await http.get(f"/tenants/{tenant}/limits")).json()["limits"]
    assert (entry["limit"]["value"], entry["limit"]["mode"], entry["limit"]["expires_at"]) == (500, "shadow", until)


async def test_a_rejected_one_changes_nothing(http: httpx.AsyncClient, wire: Wire, tenant: str) -> None:
    request = await ask(http, tenant)
    answer = await http.post(f"/limit-requests/{request}/reject", json={"reason": "no room"})
    assert (answer.json()["state"], answer.json()["decided_reason"]) == ("rejected", "no room")
    assert (await http.get(f"/tenants/{tenant}/limits")).json()["limits"] == []
    told = await wire.events(QUOTA_LIMITS, tenant, count=2)
    assert (told[1].state, told[1].granted, told[1].version) == ("rejected", None, None)


async def test_what_is_decided_is_decided(http: httpx.AsyncClient, tenant: str) -> None:
    for first in ("approve", "reject"):
        request = await ask(http, tenant)
        assert (await http.post(f"/limit-requests/{request}/{first}", json=YES)).is_success
        before = (await http.get(f"/tenants/{tenant}/limits/history")).json()
        for second in ("approve", "reject"):
            again = await http.post(f"/limit-requests/{request}/{second}", json=YES)
            assert OPERATOR in problem(again, codes.LIMIT_REQUEST_DECIDED).detail
        assert (await http.get(f"/tenants/{tenant}/limits/history")).json() == before


async def test_of_many_that_decide_at_once_one_does(http: httpx.AsyncClient, tenant: str) -> None:
    request = await ask(http, tenant)
    verbs = ["approve", "reject"] * 8
    answers = await asyncio.gather(*(http.post(f"/limit-requests/{request}/{verb}", json=YES) for verb in verbs))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 15
    (winner,) = (verb for verb, answer in zip(verbs, answers, strict=True) if answer.is_success)
    versions = (await http.get(f"/tenants/{tenant}/limits/history")).json()["versions"]
    assert len(versions) == (winner == "approve")


async def test_the_usual_rules_speak_against_it_and_it_stays_open(
    http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    await wire.ask(asking("adjust", tenant, footprint={"cpu": 3000}))
    request = await ask(http, tenant)
    problem(await http.post(f"/limit-requests/{request}/approve", json=YES), codes.LIMIT_BELOW_USAGE)
    assert (await http.get(f"/limit-requests/{request}")).json()["state"] == "asked"
    assert (await http.get(f"/tenants/{tenant}/limits")).json()["limits"] == []
    problem(await http.post(f"/limit-requests/{request}/approve", json={**YES, "value": "1.5g"}), codes.INVALID_CPU)
    assert (await http.post(f"/limit-requests/{request}/approve", json={**YES, "force": True})).is_success


async def test_what_cannot_be_a_limit_cannot_be_asked_for(http: httpx.AsyncClient, tenant: str) -> None:
    for more, code in (
        ({"environment": "prod", "dimension": "environments", "value": 1}, codes.LIMIT_NOT_HERE),
        ({"stack": "blog"}, codes.SCOPE_IS_ROLLUP),
        ({"dimension": "gpu"}, codes.DIMENSION_UNKNOWN),
        ({"value": "1 core"}, codes.INVALID_CPU),
        ({"value": None}, codes.INVALID_REQUEST),
        ({"reason": " "}, codes.INVALID_REQUEST),
        ({"by": "bob"}, codes.BY_NOT_TAKEN),
        ({"colour": 1}, codes.UNKNOWN_FIELD),
    ):
        body = {"tenant": tenant, "dimension": "cpu", "value": 1, "reason": "x", **more}
        problem(await http.post("/limit-requests", json=body), code)
    assert (await http.get("/limit-requests", params={"tenant": tenant})).json()["requests"] == []
    problem(await http.get("/limit-requests/999999999"), codes.NOT_FOUND)
    problem(await http.post("/limit-requests/999999999/approve", json=YES), codes.NOT_FOUND)


async def test_requests_are_listed_by_tenant_and_state_page_by_page(http: httpx.AsyncClient, tenant: str) -> None:
    made = [await ask(http, tenant, value=number) for number in range(1, 6)]
    other = await ask(http, unique("other"))
    await http.post(f"/limit-requests/{made[1]}/reject", json=YES)
    await http.post(f"/limit-requests/{made[3]}/approve", json=YES)

    async def listed(**params: Any) -> list[int]:
        return [each["id"] for each in await pages(http, "/limit-requests", "requests", "before", **params)]

    assert await listed(tenant=tenant) == made[::-1]
    assert await listed(tenant=tenant, state="asked") == [made[4], made[2], made[0]]
    assert await listed(tenant=tenant, state="approved") == [made[3]]
    assert other in await listed(state="asked")


async def test_a_tenant_cannot_fill_the_table(quota: Platform, http: httpx.AsyncClient, tenant: str) -> None:
    sql = """INSERT INTO limit_requests (tenant, environment, stack, dimension, value, state, asked_by, asked_reason,
             asked_at) SELECT $1, '', '', 'cpu', 1, 'asked', 'x', 'x', now() FROM generate_series(1, 99)"""
    await quota.database.execute(sql, tenant)
    request = await ask(http, tenant)
    body = {"tenant": tenant, "dimension": "cpu", "value": 1, "reason": "x"}
    problem(await http.post("/limit-requests", json=body), codes.LIMIT_REQUESTS_FULL)
    await http.post(f"/limit-requests/{request}/reject", json=YES)
    assert (await http.post("/limit-requests", json=body)).is_success
    await http.patch(f"/tenants/{tenant}/limits", json=patch({"cpu": 1}))


async def test_nobody_approves_what_they_have_asked_for_unless_an_administrator(quota: Platform, tenant: str) -> None:
    plain = (Permission.READ, Permission.WRITE, Permission.ASK)

    def client(subject: str, *scopes: Permission, tenants: Any = "*") -> httpx.AsyncClient:
        return quota.http_as(quota.stack.credentials.token(subject=subject, scopes=scopes or plain, tenants=tenants))

    async with client("bob") as bob, client("alice") as alice, client("bob", *Permission) as admin:
        first, second, third = [await ask(bob, tenant, value=number) for number in range(1, 4)]
        problem(await bob.post(f"/limit-requests/{first}/approve", json=YES), codes.OWN_LIMIT_REQUEST)
        assert (await bob.get(f"/limit-requests/{first}")).json()["state"] == "asked"
        assert (await alice.post(f"/limit-requests/{first}/approve", json=YES)).json()["decided_by"] == "alice"
        assert (await admin.post(f"/limit-requests/{second}/approve", json=YES)).is_success
        assert (await bob.post(f"/limit-requests/{third}/reject", json=YES)).is_success, "to take it back is no risk"

    async with client("eve", tenants=[unique("hers")]) as eve, client("bob", Permission.ASK) as only_asks:
        fourth = await ask(only_asks, tenant)
        for answer in (
            await eve.get(f"/limit-requests/{fourth}"),
            await eve.post(f"/limit-requests/{fourth}/approve", json=YES),
            await eve.post(f"/limit-requests/{fourth}/reject", json=YES),
            await eve.get("/limit-requests", params={"tenant": tenant}),
            await eve.post("/limit-requests", json={"tenant": tenant, "dimension": "cpu", "value": 1, "reason": "x"}),
        ):
            problem(answer, codes.NOT_FOUND)
        assert (await eve.get("/limit-requests")).json()["requests"] == []
        problem(await only_asks.post(f"/limit-requests/{fourth}/approve", json=YES), codes.SCOPE_MISSING)
