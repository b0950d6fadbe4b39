"""Every route of the application, with every token that must not do: it is refused, and tells nothing.

The routes are the application's own: a new one is in the walk by itself.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.access import Permission
from plimsoll_contracts.codes import Code
from plimsoll_devkit.forging import Key, eddsa, hmac_signed, rs256, tampered, unsigned
from plimsoll_devkit.platform import Platform
from plimsoll_devkit.reference import openapi
from plimsoll_devkit.stack.credentials import AUDIENCE, ISSUER, Credentials
from plimsoll_devkit.wire import asking, unique

DOCUMENT = openapi()
PUBLIC = [("get", "/problems/{code}")]
ASKED = {"environment": "prod", "stack": "blog", "deployment": "d", "footprint": {"cpu": 1}}
BODIES: Mapping[str, dict[str, Any]] = {
    "/api/v1/quota/check": ASKED,
    "/api/v1/quota/reserve": ASKED,
    "/api/v1/quota/adjust": ASKED,
    "/api/v1/quota/commit": {"hold": "h"},
    "/api/v1/quota/release": {"hold": "h"},
    "/api/v1/quota/limit-requests": {"dimension": "cpu", "value": "1", "reason": "r"},
}
"""What else is in the bodies that name a tenant, so that the tenant is what decides."""
DECLARING: Sequence[tuple[str, dict[str, Any]]] = (
    ("/api/v1/quota/apply", {"reason": "r", "dry_run": True}),
    ("/api/v1/quota/apply", {"reason": "r"}),
    ("/api/v1/quota/simulate", {"since": (datetime.now(UTC) - timedelta(hours=1)).isoformat()}),
)
"""What names tenants inside what it declares, with the rest of its body."""
SAMPLES = {"letter": "1", "request_id": "r-1", "request": "1"}


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    needs: str
    names_tenant: bool
    declares: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    async def ask(self, http: httpx.AsyncClient, tenant: str, token: str | None) -> httpx.Response:
        path = self.path.replace("{tenant}", tenant)
        for name, value in SAMPLES.items():
            path = path.replace(f"{{{name}}}", value)
        headers = {"x-request-id": "the-walk"} | ({"authorization": f"Bearer {token}"} if token is not None else {})
        body = {"tenant": tenant, **BODIES[self.path]} if self.path in BODIES else {"reason": "r"}
        return await http.request(self.method, path, headers=headers, json=body if self.method != "get" else None)


def routes() -> list[Route]:
    found: list[Route] = []
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            if (method, path) not in PUBLIC:
                ((needs,),) = [scopes for each in operation["security"] for scopes in each.values()]
                tenant = "{tenant}" in path or "tenant" in _properties(operation)
                found.append(Route(method, path, needs, tenant, "scopes" in _properties(operation)))
    return found


def _properties(operation: dict[str, Any]) -> set[str]:
    """What the body of a route may hold at its top."""
    content = operation.get("requestBody", {}).get("content", {})
    found: set[str] = set()
    for kind in content.values():
        schemas = [kind["schema"], *kind["schema"].get("anyOf", ()), *kind["schema"].get("oneOf", ())]
        for schema in schemas:
            name = schema.get("$ref", "").rpartition("/")[2]
            found |= set(DOCUMENT["components"]["schemas"].get(name, schema).get("properties", {}))
    return found


ROUTES = routes()


@pytest.fixture(scope="module")
async def http(running: Platform) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=running.enforcer().url, timeout=15) as client:
        yield client


@pytest.fixture(scope="module")
async def victim(running: Platform) -> str:
    """A tenant that somebody else has: with limits, usage and a name that must not show."""
    name = unique("victim")
    await running.set_limits(name, {"cpu": 4000})
    await running.set_limits(name, {"memory": "2g"}, environment="prod")
    await running.wire.ask(asking("adjust", name, environment="prod", stack="blog", footprint={"cpu": 100}))
    return name


def bad_tokens(credentials: Credentials) -> dict[str, tuple[str | None, Code]]:
    ours = Key(credentials.key.kid, "EdDSA", credentials.key.private)
    good: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "scope": " ".join(Permission), "tenants": "*"}
    return {
        "missing": (None, codes.TOKEN_MISSING),
        "garbage": ("garbage", codes.TOKEN_INVALID),
        "expired": (ours.sign(**good, exp=int(time.time()) - 120), codes.TOKEN_EXPIRED),
        "wrong audience": (ours.sign(**{**good, "aud": "other"}), codes.TOKEN_INVALID),
        "wrong issuer": (ours.sign(**{**good, "iss": "https://evil.example"}), codes.TOKEN_INVALID),
        "wrong key": (eddsa(ours.kid).sign(**good), codes.TOKEN_INVALID),
        "wrong kind of key": (rs256(ours.kid).sign(**good), codes.TOKEN_INVALID),
        "alg none": (unsigned(ours.kid, **good), codes.TOKEN_INVALID),
        "HS256 with the public key": (hmac_signed(ours.kid, ours.pem, **good), codes.TOKEN_INVALID),
        "tampered": (tampered(ours.sign(**{**good, "tenants": []}), tenants="*"), codes.TOKEN_INVALID),
    }


def refused(answer: httpx.Response, code: Code, route: Route, why: str) -> None:
    assert answer.headers["content-type"] == "application/problem+json", f"{route}, {why}: {answer.text}"
    found = answer.json()
    assert (answer.status_code, found["code"]) == (code.status, code.code), f"{route}, {why}: {answer.text}"


def test_the_walk_knows_every_route() -> None:
    assert len(ROUTES) > 10
    unknown = {name for route in ROUTES for name in route.path.split("/") if name.startswith("{")}
    assert {name.strip("{}") for name in unknown} <= {*SAMPLES, "tenant"}, "give the new parameter a sample"
    unasked = [r.path for r in ROUTES if r.names_tenant and "{tenant}" not in r.path and r.path not in BODIES]
    assert not unasked, "give the new body, which names a tenant, the rest of what it needs"
    assert {route.path for route in ROUTES if route.declares} == {path for path, _ in DECLARING}


async def test_no_token_that_does_not_hold_gets_anything(
    running: Platform, http: httpx.AsyncClient, victim: str
) -> None:
    before = await running.database.fetchval("SELECT count(*) FROM limit_history")
    for why, (token, code) in bad_tokens(running.stack.credentials).items():
        for route in ROUTES:
            answer = await route.ask(http, victim, token)
            refused(answer, code, route, why)
            assert answer.headers["www-authenticate"].startswith('Bearer realm="plimsoll"')
            assert victim not in answer.text + str(answer.headers)
            assert not token or token not in answer.text
        unknown = await http.get("/nothing", headers={"authorization": f"Bearer {token}"} if token is not None else {})
        assert unknown.status_code == 401, "nobody learns which addresses there are"
    assert await running.database.fetchval("SELECT count(*) FROM limit_history") == before
    assert len(await running.decisions(victim)) == 1, "nothing was decided"


async def test_each_route_wants_its_own_scope(running: Platform, http: httpx.AsyncClient, victim: str) -> None:
    for route in ROUTES:
        others = [permission for permission in Permission if permission != route.needs]
        answer = await route.ask(http, victim, running.stack.credentials.token(scopes=others))
        refused(answer, codes.SCOPE_MISSING, route, "all scopes but its own")
        assert f'error="insufficient_scope", scope="{route.needs}"' in answer.headers["www-authenticate"]
        assert victim not in answer.text
        nothing = await route.ask(http, victim, running.stack.credentials.token(scopes=[], tenants=[victim]))
        refused(nothing, codes.SCOPE_MISSING, route, "no scope, its own tenant")


async def test_a_foreign_tenant_is_as_one_that_nobody_knows(
    running: Platform, http: httpx.AsyncClient, victim: str
) -> None:
    token = running.stack.credentials.token(tenants=[unique("own")])
    before = await running.status(victim)
    for route in (each for each in ROUTES if each.names_tenant):
        foreign, unknown = await route.ask(http, victim, token), await route.ask(http, unique("nobody"), token)
        refused(foreign, codes.NOT_FOUND, route, "foreign tenant")
        assert foreign.content == unknown.content, route
        assert _told(foreign) == _told(unknown), route
    assert (await running.status(victim))["seq"] == before["seq"]


async def test_what_names_a_tenant_only_by_its_row_is_as_unknown(
    running: Platform, http: httpx.AsyncClient, victim: str
) -> None:
    wanted = {"tenant": victim, "dimension": "cpu", "value": "9", "reason": "mine"}
    async with running.http as as_admin:
        mine = (await as_admin.post("/limit-requests", json=wanted)).json()["id"]
    token = running.stack.credentials.token(tenants=[unique("own")])
    for route in (each for each in ROUTES if "{request}" in each.path):
        told = [
            await Route(
                route.method, route.path.replace("{request}", str(number)), route.needs, names_tenant=False
            ).ask(http, victim, token)
            for number in (mine, 999_999_999)
        ]
        for answer in told:
            refused(answer, codes.NOT_FOUND, route, "another's request")
        assert told[0].text.replace(f" {mine}", " N") == told[1].text.replace(" 999999999", " N")


async def test_what_declares_limits_may_name_only_what_its_bearer_may(
    running: Platform, http: httpx.AsyncClient, victim: str
) -> None:
    own = unique("own")
    await running.set_limits(own, {"cpu": 1})
    headers = {"authorization": f"Bearer {running.stack.credentials.token(tenants=[own])}", "x-request-id": "walk"}
    for path, rest in DECLARING:

        async def declare(path: str = path, rest: dict[str, Any] = rest, **declared: Any) -> httpx.Response:
            return await http.post(path, json={**rest, **declared}, headers=headers)

        mine = {own: {"cpu": 1}}
        foreign = await declare(scopes={**mine, f"{victim}/env:prod": {"cpu": 1}})
        unknown = await declare(scopes={**mine, f"{unique('no')}/env:prod": {"cpu": 1}})
        assert (foreign.status_code, foreign.content) == (404, unknown.content), path
        assert (await declare(defaults={"cpu": 1})).status_code == 403, path
        allowed = await declare(scopes=mine)
        assert allowed.is_success, allowed.text
        assert victim not in allowed.text + (await declare()).text, path


async def test_what_is_about_all_tenants_shows_only_ones_own(
    running: Platform, http: httpx.AsyncClient, victim: str
) -> None:
    own = unique("own")
    await running.set_limits(own, {"cpu": 1})
    token = running.stack.credentials.token(tenants=[own])
    for route in (each for each in ROUTES if not each.names_tenant):
        answer = await route.ask(http, victim, token)
        assert victim not in answer.text, route
        if route.needs == Permission.ADMIN:
            refused(answer, codes.SCOPE_MISSING, route, "an administrator of one tenant only")


async def test_pages_of_tenants_are_right_for_whoever_sees_only_some(running: Platform) -> None:
    prefix = unique("pages")
    names = [f"{prefix}-{n}" for n in range(7)]
    for name in names:
        await running.set_limits(name, {"cpu": 1})
    mine = [names[0], names[3], names[6]]
    found: list[str] = []
    async with running.http_as(running.stack.credentials.token(tenants=[*mine, f"{prefix}-unknown"])) as http:
        after: str | None = ""
        while after is not None:
            page = (await http.get("/tenants", params={"after": after, "limit": 2})).json()
            assert len(page["scopes"]) <= 2
            found += page["scopes"]
            after = page["next"]
    assert found == mine


async def test_the_right_token_passes_and_its_subject_did_it(running: Platform) -> None:
    own = unique("own")
    writer = running.stack.credentials.token(subject="alice", scopes=[Permission.WRITE], tenants=[own])
    reader = running.stack.credentials.token(scopes=[Permission.READ], tenants=[own])
    body = {"limits": {"cpu": 1000}, "reason": "mine"}
    async with running.http_as(writer) as as_writer, running.http_as(reader) as as_reader:
        assert (await as_writer.patch(f"/tenants/{own}/limits", json=body)).is_success
        shown = (await as_reader.get(f"/tenants/{own}/status")).json()
    limit = next(line["limit"] for line in shown["dimensions"] if line["dimension"] == "cpu")
    assert (limit["value"], limit["set_by"]) == (1000, "alice")


async def test_pages_of_codes_are_for_everybody(http: httpx.AsyncClient) -> None:
    answer = await http.get(f"/problems/{codes.CPU_EXCEEDED.code}", headers={"accept": "application/json"})
    assert (answer.status_code, answer.json()["name"]) == (200, "CPU_EXCEEDED")
    refused(await http.get("/problems/../api/v1/quota/tenants"), codes.TOKEN_MISSING, ROUTES[0], "dots")


async def test_probes_need_no_token_and_name_no_tenant(http: httpx.AsyncClient, victim: str) -> None:
    for path in ("/internal/alive", "/internal/ready", "/internal/status", "/metrics"):
        answer = await http.get(path)
        assert (answer.status_code, victim in answer.text) == (200, False), path


async def test_no_token_is_in_the_log(running: Platform, http: httpx.AsyncClient, victim: str) -> None:
    tokens = [token for token, _ in bad_tokens(running.stack.credentials).values() if token and "." in token]
    tokens.append(running.stack.credentials.token())
    for token in tokens:
        for route in ROUTES:
            await route.ask(http, victim, token)
    said = running.enforcer().log.read_text()
    assert not [token for token in tokens if token.split(".")[1] in said]


def _told(answer: httpx.Response) -> Mapping[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}
