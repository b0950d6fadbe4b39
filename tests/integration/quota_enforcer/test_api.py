"""The HTTP API: limits and usage for people, every error a problem that says what to do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.api import LimitsChanged, Problem, ScopeList, ScopeStatus
from plimsoll_contracts.codes import Code
from plimsoll_contracts.dimensions import Basis
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS
from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.stack.credentials import OPERATOR
from plimsoll_devkit.wire import Wire, asking, unique


@pytest.fixture
async def http(quota: Platform) -> AsyncIterator[httpx.AsyncClient]:
    async with quota.http as client:
        yield client


def patch(limits: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"limits": limits, "reason": "as agreed", **fields}


def problem(answer: httpx.Response, code: Code) -> Problem:
    """Check that an answer is a problem document with this code, and return it."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    found = Problem.model_validate_json(answer.content)
    assert (answer.status_code, found.status, found.code) == (code.status, code.status, code.code), found
    assert (found.title, found.remedy) == (code.title, code.remedy)
    assert found.detail
    return found


async def test_limits_are_set_shown_and_unset(http: httpx.AsyncClient, tenant: str) -> None:
    answer = await http.patch(
        f"/tenants/{tenant}/limits", json=patch({"cpu": "4", "memory": "8g", "apps": "unlimited"})
    )
    changed = LimitsChanged.model_validate_json(answer.content)
    assert {change.dimension: change.after.value for change in changed.changes} == {
        "cpu": 4000,
        "memory": 8 * 2**30,
        "apps": "unlimited",
    }
    assert all(change.before.source == "none" for change in changed.changes)

    status = ScopeStatus.model_validate_json((await http.get(f"/tenants/{tenant}/status")).content)
    cpu = {line.basis: line for line in status.dimensions if line.dimension == "cpu"}
    assert (cpu[Basis.RESERVED].ceiling, cpu[Basis.BURST].ceiling) == (4000, 6000)
    assert (cpu[Basis.RESERVED].limit.set_by, cpu[Basis.RESERVED].limit.reason) == (OPERATOR, "as agreed")
    assert (cpu[Basis.RESERVED].used, cpu[Basis.RESERVED].headroom) == (0, 4000)
    assert next(line for line in status.dimensions if line.dimension == "apps").ceiling is None

    unset = LimitsChanged.model_validate_json(
        (await http.patch(f"/tenants/{tenant}/limits", json=patch({"cpu": None}))).content
    )
    assert (unset.changes[0].before.value, unset.changes[0].after.source) == (4000, "none")


async def test_a_tenant_nobody_knows_has_a_status_too(http: httpx.AsyncClient, tenant: str) -> None:
    status = ScopeStatus.model_validate_json((await http.get(f"/tenants/{tenant}/status")).content)

    assert (status.known, status.seq, status.open_holds, status.deployments) == (False, 0, 0, 0)
    assert all(line.used == 0 and line.as_of is None for line in status.dimensions)


async def test_an_unset_limit_falls_back_and_says_to_what(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    await wire.tell(
        ENTITLEMENT_EVENTS, {"tenant": tenant, "entitlement_version": 1, "plan": "team", "limits": {"memory": "2g"}}
    )

    async def entitled() -> bool:
        return bool((await quota.status(tenant))["plan"])

    await eventually(entitled)
    await http.patch("/defaults", json=patch({"disk": "5g"}))
    try:
        await http.patch(f"/tenants/{tenant}/limits", json=patch({"memory": "9g", "disk": "9g"}))
        answer = await http.patch(f"/tenants/{tenant}/limits", json=patch({"memory": None, "disk": None}))
        after = {change["dimension"]: change["after"] for change in answer.json()["changes"]}
        assert {name: (view["source"], view["value"]) for name, view in after.items()} == {
            "memory": ("plan", 2 * 2**30),
            "disk": ("default", 5 * 2**30),
        }
        shown = (await http.get("/defaults")).json()["limits"]["disk"]
        assert (shown["value"], shown["source"], shown["set_by"]) == (5 * 2**30, "default", OPERATOR)
    finally:
        await http.patch("/defaults", json=patch({"disk": None}))
    assert "disk" not in (await http.get("/defaults")).json()["limits"]


async def test_a_limit_below_usage_needs_force(
    quota: Platform, http: httpx.AsyncClient, wire: Wire, tenant: str
) -> None:
    await wire.ask(asking("adjust", tenant, footprint={"cpu": 300}))
    await wire.ask(asking("reserve", tenant, deployment="d2", footprint={"cpu": 100}))

    refused = await http.patch(f"/tenants/{tenant}/limits", json=patch({"cpu": 399, "memory": 5}))
    said = problem(refused, codes.LIMIT_BELOW_USAGE)
    assert "300m" in said.detail
    assert "100m" in said.detail
    assert (await http.get(f"/tenants/{tenant}/status")).json()["seq"] == 2, "all or none: memory was not set either"
    forced = await http.patch(f"/tenants/{tenant}/limits", json=patch({"cpu": 399}, force=True))
    assert forced.json()["changes"][0]["warnings"]
    assert await quota.used(tenant, "cpu") == (300, 100), "a limit never touches usage"
    fits = await http.patch(f"/tenants/{tenant}/limits", json=patch({"cpu": 400}))
    assert fits.is_success, "exactly what is used and held is not below it"


REFUSED: dict[str, tuple[dict[str, Any], dict[str, str], Code]] = {
    "one dimension of two is unknown": (patch({"cpu": 1, "gpu": 1}), {}, codes.DIMENSION_UNKNOWN),
    "one amount of two is bad": (patch({"memory": 1, "cpu": "1e3"}), {}, codes.INVALID_CPU),
    "bytes with a decimal": (patch({"memory": "1.5g"}), {}, codes.INVALID_BYTES),
    "a count below zero": (patch({"vapps": -1}), {}, codes.INVALID_COUNT),
    "a dimension that means nothing here": (
        patch({"cpu": 1, "stacks": 1}),
        {"environment": "prod", "stack": "blog"},
        codes.LIMIT_NOT_HERE,
    ),
    "a roll-up": (patch({"cpu": 1}), {"stack": "blog"}, codes.SCOPE_IS_ROLLUP),
    "an unknown field": (patch({"cpu": 1}, colour="blue"), {}, codes.UNKNOWN_FIELD),
    "no limits": (patch({}), {}, codes.INVALID_REQUEST),
    "somebody else who does it": (patch({"cpu": 1}, by="alice"), {}, codes.BY_NOT_TAKEN),
    "no reason": ({"limits": {"cpu": 1}, "reason": " "}, {}, codes.INVALID_REQUEST),
    "a boolean for an amount": (patch({"cpu": True}), {}, codes.INVALID_REQUEST),
    "a number for a moment": (patch({"cpu": 1}, expires_at=5), {}, codes.INVALID_REQUEST),
    "a control character": (patch({"cpu": 1}, reason="al\u0000ice"), {}, codes.INVALID_REQUEST),
    "a name outside the grammar": (patch({"cpu": 1}), {"environment": "Prod"}, codes.INVALID_NAME),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_bad_patch_sets_nothing(http: httpx.AsyncClient, tenant: str, what: str) -> None:
    body, place, code = REFUSED[what]

    problem(await http.patch(f"/tenants/{tenant}/limits", params=place, json=body), code)

    assert (await http.get(f"/tenants/{tenant}/status")).json()["seq"] == 0
    if not place:
        before = (await http.get("/defaults")).json()
        problem(await http.patch("/defaults", json=body), code)
        assert (await http.get("/defaults")).json() == before


async def test_if_match_keeps_two_operators_apart(quota: Platform, tenant: str) -> None:
    where, place = f"/tenants/{tenant}/limits", {"environment": "prod"}

    def match(tag: str) -> dict[str, str]:
        return {"if-match": tag}

    async with quota.http_as(quota.stack.credentials.token()) as http:
        seen = (await http.get(f"/tenants/{tenant}/status")).headers["etag"]
        assert seen == '"0"'
        first = await http.patch(where, json=patch({"cpu": 100, "memory": 5}), headers=match(seen))
        assert first.json()["changes"][0]["after"]["version"] == 1
        assert (first.headers["etag"], first.json()["limits_version"]) == ('"2"', 2)
        late = patch({"disk": 300})
        problem(await http.patch(where, json=late, headers=match(seen)), codes.LIMIT_VERSION_CONFLICT)
        for none in ("x", "2", 'W/"2"', '"2", "3"', '""', f'"{10**30}"'):
            problem(await http.patch(where, json=late, headers=match(none)), codes.LIMIT_VERSION_CONFLICT)
        assert (await http.patch(where, json=late, headers=match('"2"'))).headers["etag"] == '"3"'
        assert (await http.patch(where, params=place, json=late, headers=match('"0"'))).is_success, "another scope"

        problem(await http.patch(where, json=patch({"cpu": 300, "apps": 1})), codes.IF_MATCH_REQUIRED)
        problem(await http.patch(where, json=patch({"cpu": None})), codes.IF_MATCH_REQUIRED)
        assert (await http.patch(where, json=patch({"apps": 1, "vapps": None}))).is_success, "nothing is overwritten"
        assert (await http.patch(where, json=patch({"cpu": None}), headers=match("*"))).is_success
        again = await http.patch(where, json=patch({"cpu": 100}))
        assert again.json()["changes"][0]["after"]["version"] == 3, "versions grow also over unset and set"
        status = await http.get(f"/tenants/{tenant}/status")
        assert status.headers["etag"] == again.headers["etag"] == f'"{status.json()["limits_version"]}"'


async def test_defaults_have_a_tag_of_their_own(quota: Platform) -> None:
    async with quota.http_as(quota.stack.credentials.token()) as http:
        seen = (await http.get("/defaults")).headers["etag"]
        set_ = await http.patch("/defaults", json=patch({"apps": 50}), headers={"if-match": seen})
        try:
            assert set_.is_success, set_.text
            problem(await http.patch("/defaults", json=patch({"apps": 51})), codes.IF_MATCH_REQUIRED)
            late = await http.patch("/defaults", json=patch({"apps": 51}), headers={"if-match": seen})
            problem(late, codes.LIMIT_VERSION_CONFLICT)
        finally:
            await http.patch("/defaults", json=patch({"apps": None}), headers={"if-match": "*"})


async def test_a_change_sent_again_under_its_key_is_done_once(
    quota: Platform, http: httpx.AsyncClient, tenant: str
) -> None:
    where, key = f"/tenants/{tenant}/limits", {"idempotency-key": f"{tenant}-1"}
    answers = await asyncio.gather(*(http.patch(where, json=patch({"cpu": 100}), headers=key) for _ in range(6)))
    assert {answer.text for answer in answers} == {answers[0].text}
    assert {answer.headers["etag"] for answer in answers} == {'"1"'}
    assert sorted(answer.headers.get("idempotency-replayed", "no") for answer in answers) == ["no"] + ["true"] * 5

    problem(await http.patch(where, json=patch({"cpu": 101}), headers=key), codes.IDEMPOTENCY_MISMATCH)
    elsewhere = {"environment": "prod"}
    problem(
        await http.patch(where, params=elsewhere, json=patch({"cpu": 100}), headers=key), codes.IDEMPOTENCY_MISMATCH
    )
    assert (await http.get(f"/tenants/{tenant}/status")).headers["etag"] == '"1"'
    async with quota.http_as(quota.stack.credentials.token(subject="bob")) as bob:
        problem(await bob.patch(where, json=patch({"cpu": 100}), headers=key), codes.IF_MATCH_REQUIRED)


async def test_a_change_that_was_refused_is_tried_again(http: httpx.AsyncClient, wire: Wire, tenant: str) -> None:
    key = {"idempotency-key": f"{tenant}-1"}
    await wire.ask(asking("adjust", tenant, footprint={"cpu": 300}))
    change = patch({"cpu": 200})
    problem(await http.patch(f"/tenants/{tenant}/limits", json=change, headers=key), codes.LIMIT_BELOW_USAGE)
    await wire.ask(asking("adjust", tenant, footprint={"cpu": 100}))
    assert (await http.patch(f"/tenants/{tenant}/limits", json=change, headers=key)).is_success


async def test_a_key_is_forgotten_after_a_day(quota: Platform, http: httpx.AsyncClient, tenant: str) -> None:
    await http.patch(f"/tenants/{tenant}/limits", json=patch({"cpu": 1}), headers={"idempotency-key": f"{tenant}-1"})
    await quota.database.execute(
        "UPDATE idempotency_keys SET taken_at = taken_at - interval '25 hours' WHERE key = $1", f"{tenant}-1"
    )
    await quota.enforcer().stop()
    await quota.enforcer().start()
    await quota.enforcer().ready(PARTITIONS)
    assert not await quota.database.fetchval("SELECT count(*) FROM idempotency_keys WHERE key = $1", f"{tenant}-1")


async def test_a_child_above_its_parent_is_warned_of(http: httpx.AsyncClient, tenant: str) -> None:
    await http.patch(f"/tenants/{tenant}/limits", json=patch({"cpu": 1000}))

    answer = await http.patch(f"/tenants/{tenant}/limits", params={"environment": "prod"}, json=patch({"cpu": 2000}))

    (warning,) = answer.json()["changes"][0]["warnings"]
    assert tenant in warning
    assert "1000m" in warning


async def test_tenants_and_scopes_are_listed_page_by_page(quota: Platform, http: httpx.AsyncClient, wire: Wire) -> None:
    prefix = unique("list")
    tenants = [f"{prefix}-{n}" for n in range(5)]
    for tenant in tenants:
        await quota.set_limits(tenant, {"cpu": 1})
    found: list[str] = []
    after = prefix
    while True:
        page = ScopeList.model_validate_json((await http.get("/tenants", params={"after": after, "limit": 2})).content)
        found += [name for name in page.scopes if name.startswith(prefix)]
        if page.next is None or not page.next.startswith(prefix):
            break
        after = page.next
    assert found == tenants

    for stack in ("blog", "shop"):
        for environment in ("prod", "staging"):
            place = {"environment": environment, "stack": stack}
            await wire.ask(asking("adjust", tenants[0], deployment=f"{environment}-{stack}", **place))
    scopes: list[str] = []
    more: str | None = ""
    while more is not None:
        params = {"limit": 2} | ({"after": more} if more else {})
        answer = await http.get(f"/tenants/{tenants[0]}/scopes", params=params)
        page = ScopeList.model_validate_json(answer.content)
        scopes += page.scopes
        more = page.next
    t = tenants[0]
    assert scopes == [
        t,
        f"{t}/env:prod",
        f"{t}/blog/prod",
        f"{t}/shop/prod",
        f"{t}/env:staging",
        f"{t}/blog/staging",
        f"{t}/shop/staging",
    ]


async def test_a_check_over_http_goes_over_the_topic(quota: Platform, http: httpx.AsyncClient, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 500})
    counted = await quota.counted()

    yes = await http.post("/check", json={"tenant": tenant, "footprint": {"cpu": "500m"}})
    no = await http.post("/check", json={"tenant": tenant, "environment": "prod", "footprint": {"cpu": 501}})

    assert (yes.status_code, yes.json()["allowed"]) == (200, True)
    assert (no.status_code, no.json()["code"]) == (200, codes.CPU_EXCEEDED.code), "a denial is an answer, not an error"
    assert no.json()["violations"][0]["would_fit"] == 500
    assert await counted.since("quota_decisions_total", verb="check", verdict="allowed") == 1
    assert await counted.since("quota_decisions_total", verb="check", verdict="denied") == 1
    assert await quota.decisions(tenant) == []


async def test_a_bad_check_is_a_problem(http: httpx.AsyncClient, tenant: str) -> None:
    problem(await http.post("/check", json={"tenant": tenant, "stack": "blog"}), codes.SCOPE_IS_ROLLUP)
    problem(await http.post("/check", json={"tenant": tenant, "footprint": {"cpu": -1}}), codes.INVALID_CPU)
    problem(await http.post("/check", json={"tenant": "A"}), codes.INVALID_NAME)
    problem(await http.post("/check", json={"tenant": tenant, "node": "n1"}), codes.UNKNOWN_FIELD)
    for unreadable in (b"{", b"\xff", b'{"tenant": "\xff"}'):
        answer = await http.post("/check", content=unreadable, headers={"content-type": "application/json"})
        problem(answer, codes.UNDECODABLE)


async def test_roll_ups_have_no_status(http: httpx.AsyncClient, tenant: str) -> None:
    problem(await http.get(f"/tenants/{tenant}/status", params={"stack": "blog"}), codes.SCOPE_IS_ROLLUP)


async def test_every_error_is_a_problem(http: httpx.AsyncClient, tenant: str) -> None:
    problem(await http.get("/nothing"), codes.NOT_FOUND)
    problem(await http.get("/tenants/Acme/status"), codes.INVALID_NAME)
    problem(await http.delete(f"/tenants/{tenant}/limits"), codes.METHOD_NOT_ALLOWED)
    problem(await http.get("/tenants", params={"limit": 0}), codes.INVALID_REQUEST)
    problem(await http.get("/tenants", params={"limit": 501}), codes.INVALID_REQUEST)
    problem(await http.patch(f"/tenants/{tenant}/limits", content=b"no content type"), codes.INVALID_REQUEST)
    problem(await http.patch(f"/tenants/{tenant}/limits", content=b"x" * 400_000), codes.TOO_LARGE)
    nul = await http.get("/tenants", params={"after": "\x00"})
    problem(nul, codes.INVALID_REQUEST)
    problem(await http.get(f"/tenants/{tenant}/scopes", params={"after": "a\x00/b"}), codes.INVALID_REQUEST)


async def test_a_request_id_is_kept_or_made(http: httpx.AsyncClient) -> None:
    kept = await http.get("/nothing", headers={"x-request-id": "mine-1"})
    made = await http.get("/nothing", headers={"x-request-id": "bad id\x7f"})

    assert kept.headers["x-request-id"] == "mine-1"
    assert kept.json()["instance"] == "urn:request:mine-1"
    assert made.headers["x-request-id"] not in {"", "bad id\x7f"}


async def test_it_listens_on_loopback_only(quota: Platform) -> None:
    port = f"{quota.enforcer().port:04X}"
    listening = [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{quota.enforcer().pid}/net/{table}").read_text().splitlines()[1:]  # noqa: ASYNC240
        if line.split()[3] == "0A"
    ]

    assert [address for address in listening if address.endswith(f":{port}")] == [f"0100007F:{port}"]


async def test_probes_answer_beside_the_api(quota: Platform) -> None:
    async with httpx.AsyncClient(base_url=quota.enforcer().url) as http:
        for path in ("/internal/alive", "/internal/ready", "/internal/status", "/metrics"):
            assert (await http.get(path)).status_code == 200, path
            assert (await http.post(path)).status_code == 405, path
        status = (await http.get("/internal/status")).json()
    assert (status["service"], status["instance"]) == ("quota-enforcer", "quota-enforcer-0")
    assert status["database_away"] is False
