"""The verbs over HTTP: the same requests on the same topic, and a key that makes them safe to send again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.verbs import RefusedVerb
from plimsoll_devkit.platform import Platform
from plimsoll_devkit.wire import unique


@pytest.fixture
async def http(quota: Platform) -> AsyncIterator[httpx.AsyncClient]:
    async with quota.http as client:
        yield client


def asked(tenant: str, cpu: int = 100, **more: Any) -> dict[str, Any]:
    place = {"environment": "prod", "stack": "blog", "app": "web"}
    return {"tenant": tenant, **place, "deployment": "d", "footprint": {"cpu": cpu}, **more}


def key(text: str) -> dict[str, str]:
    return {"idempotency-key": text}


async def test_a_deployment_lives_its_whole_life_over_http(
    quota: Platform, http: httpx.AsyncClient, tenant: str
) -> None:
    await quota.set_limits(tenant, {"cpu": 1000})
    reserved = await http.post("/reserve", json=asked(tenant), headers=key("r-1"))
    reply = EnforcementReply.model_validate_json(reserved.content)
    assert (reserved.status_code, reply.request_id, reply.hold and reply.hold.state) == (200, "r-1", "open")
    assert await quota.used(tenant, "cpu") == (0, 100)

    committed = await http.post("/commit", json={"tenant": tenant, "hold": "r-1"})
    assert committed.json()["settled"]["outcome"] == "settled"
    adjusted = await http.post("/adjust", json=asked(tenant, 300))
    assert adjusted.json()["settled"]["revision"] == 2
    assert await quota.used(tenant, "cpu") == (300, 0)

    second = (await http.post("/reserve", json=asked(tenant, deployment="d2"))).json()["request_id"]
    released = await http.post("/release", json={"tenant": tenant, "hold": second})
    assert released.json()["hold"]["state"] == "released"
    gone = await http.post("/adjust", json=asked(tenant) | {"footprint": None})
    assert gone.is_success
    assert await quota.used(tenant, "cpu") == (0, 0)


async def test_a_denial_is_a_problem_with_the_whole_reply(
    quota: Platform, http: httpx.AsyncClient, tenant: str
) -> None:
    await quota.set_limits(tenant, {"cpu": 50})
    denied = await http.post("/reserve", json=asked(tenant))
    problem = RefusedVerb.model_validate_json(denied.content)
    assert denied.headers["content-type"] == "application/problem+json"
    assert (denied.status_code, problem.code) == (403, codes.CPU_EXCEEDED.code)
    assert problem.type == f"/problems/{codes.CPU_EXCEEDED.code}"
    assert {(v.basis, v.asked, v.would_fit) for v in problem.reply.violations} == {
        ("reserved", 100, 50),
        ("burst", 100, 75),
    }
    closed = await http.post("/commit", json={"tenant": tenant, "hold": "no-such"})
    assert (closed.status_code, closed.json()["code"]) == (409, codes.HOLD_CLOSED.code)


async def test_a_check_that_is_denied_is_an_answer_and_one_that_is_wrong_is_not(
    quota: Platform, http: httpx.AsyncClient, tenant: str
) -> None:
    await quota.set_limits(tenant, {"cpu": 50})
    denied = await http.post("/check", json=asked(tenant))
    assert (denied.status_code, denied.json()["allowed"]) == (200, False)
    compose = "services: {web: {image: x, deploy: {resources: {reservations: {cpus: '0.04'}}}}}"
    body = asked(tenant, compose=compose)
    del body["footprint"]
    assert (await http.post("/check", json=body)).json()["allowed"]
    broken = await http.post("/check", json=body | {"compose": "services: ["})
    assert (broken.status_code, broken.json()["code"]) == (400, codes.COMPOSE_INVALID.code)


async def test_the_same_key_is_the_same_request_however_often_it_comes(
    quota: Platform, http: httpx.AsyncClient, tenant: str
) -> None:
    answers = await asyncio.gather(
        *(http.post("/reserve", json=asked(tenant), headers=key(f"{tenant}.1")) for _ in range(10))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert len(await quota.decisions(tenant)) == 1
    assert await quota.used(tenant, "cpu") == (0, 100)
    assert sorted(answer.json()["repeated"] for answer in answers) == [False] + [True] * 9

    other = await http.post("/reserve", json=asked(tenant, 101), headers=key(f"{tenant}.1"))
    assert (other.status_code, other.json()["code"]) == (409, codes.IDEMPOTENCY_MISMATCH.code)
    elsewhere = await http.post("/adjust", json=asked(tenant), headers=key(f"{tenant}.1"))
    assert elsewhere.status_code == 409
    of_another = await http.post("/reserve", json=asked(unique()), headers=key(f"{tenant}.1"))
    assert (of_another.status_code, of_another.json()["code"]) == (409, codes.IDEMPOTENCY_MISMATCH.code)
    await http.post("/release", json={"tenant": tenant, "hold": f"{tenant}.1"})
    again = await http.post("/reserve", json=asked(tenant), headers=key(f"{tenant}.1"))
    assert (again.status_code, again.json()["code"]) == (409, codes.HOLD_EXPIRED.code), "nothing is held any more"


async def test_a_key_of_somebody_else_tells_nothing(quota: Platform, http: httpx.AsyncClient, tenant: str) -> None:
    mine = unique()
    assert (await http.post("/reserve", json=asked(tenant), headers=key(f"{tenant}.1"))).is_success
    async with quota.http_as(quota.stack.credentials.token(subject="bob", tenants=[mine])) as bob:
        assert (await bob.post("/reserve", json=asked(mine), headers=key(f"{tenant}.1"))).is_success
        foreign = await bob.post("/reserve", json=asked(tenant), headers=key(f"{tenant}.1"))
    assert foreign.status_code == 404


BAD: dict[str, tuple[str, dict[str, Any], codes.Code]] = {
    "no footprint": ("reserve", {"deployment": "d"}, codes.INVALID_REQUEST),
    "less than nothing": ("reserve", {"deployment": "d", "footprint": {"cpu": -1}}, codes.INVALID_CPU),
    "a roll-up": ("reserve", {"deployment": "d", "footprint": {}, "stack": "s"}, codes.SCOPE_IS_ROLLUP),
    "an id of its own": ("reserve", {"deployment": "d", "footprint": {}, "request_id": "r"}, codes.INVALID_REQUEST),
    "another verb": ("reserve", {"deployment": "d", "footprint": {}, "verb": "adjust"}, codes.INVALID_REQUEST),
    "no fact": ("adjust", {"deployment": "d"}, codes.INVALID_REQUEST),
    "an unknown field": ("commit", {"hold": "h", "force": True}, codes.UNKNOWN_FIELD),
    "no hold": ("release", {}, codes.INVALID_REQUEST),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_body_asks_nothing(quota: Platform, http: httpx.AsyncClient, tenant: str, what: str) -> None:
    verb, body, code = BAD[what]
    answer = await http.post(f"/{verb}", json={"tenant": tenant, **body})
    assert (answer.status_code, answer.json()["code"]) == (code.status, code.code), answer.text
    assert await quota.decisions(tenant) == []


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, "-a"])
async def test_a_key_outside_the_grammar_is_refused(http: httpx.AsyncClient, tenant: str, bad: str) -> None:
    answer = await http.post("/reserve", json=asked(tenant), headers=key(bad))
    assert (answer.status_code, answer.json()["code"]) == (400, codes.INVALID_REQUEST.code)


async def test_no_answer_in_time_is_no_verdict(quota: Platform, http: httpx.AsyncClient, tenant: str) -> None:
    await http.post("/check", json=asked(tenant))  # the service's client is started now
    quota.stack.freeze("kafka")
    try:
        answer = await http.post("/reserve", json=asked(tenant), headers=key("frozen"))
    finally:
        quota.stack.thaw("kafka")
    assert (answer.status_code, answer.json()["code"]) == (503, codes.GATE_UNAVAILABLE.code)
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["request_id"] == "frozen"
    for _ in range(5):
        again = await http.post("/reserve", json=asked(tenant), headers=key("frozen"))
        if again.status_code != 503:
            break
    assert again.is_success
    assert len(await quota.decisions(tenant)) == 1


async def test_what_is_on_nodes_is_said_by_the_platform_and_not_by_a_tenant(quota: Platform, tenant: str) -> None:
    said = asked(tenant, nodes={unique("n"): {"cpu": 100}})
    async with quota.http_as(quota.stack.credentials.token(subject="bob", tenants=[tenant])) as bob:
        refused = await bob.post("/adjust", json=said)
        without = await bob.post("/adjust", json=asked(tenant))
    async with quota.http as platform:
        taken = await platform.post("/adjust", json=said)
    assert (refused.status_code, refused.json()["code"]) == (403, codes.SCOPE_MISSING.code)
    assert (without.status_code, taken.status_code) == (200, 200)
