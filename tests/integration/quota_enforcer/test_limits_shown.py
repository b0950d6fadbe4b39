"""Which limits are set and how they came about: lists and history, page by page."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.integration.quota_enforcer.test_api import http, patch, problem

from plimsoll_contracts import codes
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.stack.credentials import OPERATOR
from plimsoll_devkit.wire import unique

__all__ = ["http"]

SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


async def pages(http: httpx.AsyncClient, path: str, name: str, key: str, **params: Any) -> list[dict[str, Any]]:
    """Read every page of a list, two at a time."""
    found: list[dict[str, Any]] = []
    more: dict[str, Any] | None = {}
    while more is not None:
        page = (await http.get(path, params={**params, **more, "limit": 2})).raise_for_status().json()
        assert len(page[name]) <= 2
        found += page[name]
        more = {key: page["next"]} if page["next"] is not None else None
    return found


@pytest.fixture
async def limited(quota: Platform, tenant: str) -> str:
    """A tenant with limits at three scopes."""
    await quota.set_limits(tenant, {"cpu": 4000, "memory": "unlimited"})
    await quota.set_limits(tenant, {"cpu": 2000}, environment="prod", mode="shadow", reason="to see")
    await quota.set_limits(tenant, {"cpu": 1000, "disk": 5}, environment="prod", stack="blog", expires_at=SOON)
    return tenant


async def test_every_override_of_a_tenant_is_listed_page_by_page(http: httpx.AsyncClient, limited: str) -> None:
    found = await pages(http, f"/tenants/{limited}/limits", "limits", "after")
    assert [(each["scope"], each["dimension"], each["limit"]["value"]) for each in found] == [
        (limited, "cpu", 4000),
        (limited, "memory", "unlimited"),
        (f"{limited}/env:prod", "cpu", 2000),
        (f"{limited}/blog/prod", "cpu", 1000),
        (f"{limited}/blog/prod", "disk", 5),
    ]
    shadow = found[2]["limit"]
    assert (shadow["mode"], shadow["set_by"], shadow["reason"], shadow["version"]) == ("shadow", OPERATOR, "to see", 1)


async def test_a_list_is_filtered(http: httpx.AsyncClient, limited: str) -> None:
    where = f"/tenants/{limited}/limits"
    later = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    for params, scopes in (
        ({"dimension": "cpu"}, [limited, f"{limited}/env:prod", f"{limited}/blog/prod"]),
        ({"mode": "shadow"}, [f"{limited}/env:prod"]),
        ({"mode": "enforce", "dimension": "memory"}, [limited]),
        ({"expires_before": later}, [f"{limited}/blog/prod"] * 2),
        ({"expires_before": datetime.now(UTC).isoformat()}, []),
    ):
        assert [each["scope"] for each in await pages(http, where, "limits", "after", **params)] == scopes
    problem(await http.get(where, params={"dimension": "gpu"}), codes.INVALID_REQUEST)
    problem(await http.get(where, params={"expires_before": "tomorrow"}), codes.INVALID_REQUEST)
    problem(await http.get(where, params={"after": "a\x00"}), codes.INVALID_REQUEST)


async def test_the_platform_is_listed_as_a_whole(quota: Platform, http: httpx.AsyncClient) -> None:
    prefix = unique("all")
    for number in range(3):
        await quota.set_limits(f"{prefix}-{number}", {"apps": number})
    found = await pages(http, "/limits", "limits", "after", dimension="apps")
    assert [each["scope"] for each in found if each["scope"].startswith(prefix)] == [f"{prefix}-{n}" for n in range(3)]


async def test_history_says_who_why_when_and_what_was_before(
    quota: Platform, http: httpx.AsyncClient, tenant: str
) -> None:
    for who, limits, more in (
        ("alice", {"cpu": 100, "disk": 1}, {"reason": "first"}),
        ("bob", {"cpu": "unlimited"}, {"reason": "second", "mode": "shadow", "expires_at": SOON}),
        ("carol", {"cpu": None}, {"reason": "third"}),
    ):
        async with quota.http_as(quota.stack.credentials.token(subject=who), **{"If-Match": "*"}) as theirs:
            (await theirs.patch(f"/tenants/{tenant}/limits", json=patch(limits, **more))).raise_for_status()
    await quota.set_limits(tenant, {"cpu": 7}, environment="prod")

    found = await pages(http, f"/tenants/{tenant}/limits/history", "versions", "before", dimension="cpu")
    assert [
        (each["version"], _value(each["before"]), _value(each["after"]), each["changed_by"], each["reason"])
        for each in found
    ] == [
        (3, "unlimited", None, "carol", "third"),
        (2, 100, "unlimited", "bob", "second"),
        (1, None, 100, "alice", "first"),
    ]
    assert (found[1]["after"]["mode"], found[0]["before"]["mode"]) == ("shadow", "shadow")
    assert datetime.fromisoformat(found[0]["before"]["expires_at"]) == datetime.fromisoformat(SOON)
    assert found[2]["seq"] < found[1]["seq"] < found[0]["seq"]
    below = await pages(http, f"/tenants/{tenant}/limits/history", "versions", "before", below=True)
    assert {(each["scope"], each["dimension"]) for each in below} == {
        (tenant, "cpu"),
        (tenant, "disk"),
        (f"{tenant}/env:prod", "cpu"),
    }
    inside = await pages(http, f"/tenants/{tenant}/limits/history", "versions", "before", environment="prod")
    assert [each["scope"] for each in inside] == [f"{tenant}/env:prod"]


def _value(limit: dict[str, Any] | None) -> object:
    return limit["value"] if limit is not None else None


async def test_history_knows_what_expired_and_the_defaults(
    quota: Platform, http: httpx.AsyncClient, tenant: str
) -> None:
    at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    await quota.set_limits(tenant, {"cpu": 100}, expires_at=at)

    async def expired() -> bool:
        return len((await http.get(f"/tenants/{tenant}/limits/history")).json()["versions"]) == 2

    await eventually(expired, seconds=7)
    (last, _) = (await http.get(f"/tenants/{tenant}/limits/history")).json()["versions"]
    assert (last["after"], last["changed_by"], last["before"]["value"]) == (None, "plimsoll", 100)

    for value in (5, None):
        await http.patch("/defaults", json=patch({"apps": value}, force=True))
    told = (await http.get("/defaults/history", params={"dimension": "apps", "limit": 2})).json()["versions"]
    assert [(each["scope"], _value(each["before"]), _value(each["after"])) for each in told] == [
        ("defaults", 5, None),
        ("defaults", None, 5),
    ]
    everybody = (await http.get("/limits/history", params={"limit": 3})).json()["versions"]
    assert [each["scope"] for each in everybody][:2] == ["defaults", "defaults"]
    assert [each["id"] for each in everybody] == sorted((each["id"] for each in everybody), reverse=True)


async def test_a_tenant_called_defaults_can_have_no_limits(http: httpx.AsyncClient) -> None:
    for place in ({}, {"environment": "prod"}):
        answer = await http.patch("/tenants/defaults/limits", params=place, json=patch({"cpu": 1}))
        assert "defaults" in problem(answer, codes.NAME_RESERVED).detail
    body = {"tenant": "defaults", "dimension": "cpu", "value": 1, "reason": "x"}
    problem(await http.post("/limit-requests", json=body), codes.NAME_RESERVED)


async def test_a_token_sees_its_own_tenants_only(quota: Platform, limited: str) -> None:
    other = unique("other")
    await quota.set_limits(other, {"cpu": 1})
    token = quota.stack.credentials.token(tenants=[other])
    async with quota.http_as(token) as theirs:
        assert {each["scope"] for each in await pages(theirs, "/limits", "limits", "after")} == {other}
        assert {each["scope"] for each in await pages(theirs, "/limits/history", "versions", "before")} == {other}
        for path in ("limits", "limits/history"):
            unknown = await theirs.get(f"/tenants/{unique('nobody')}/{path}")
            foreign = await theirs.get(f"/tenants/{limited}/{path}")
            problem(foreign, codes.NOT_FOUND)
            assert foreign.json()["detail"] == unknown.json()["detail"]
