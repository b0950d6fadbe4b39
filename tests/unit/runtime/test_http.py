from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Receive, Scope, Send

from plimsoll_contracts import codes
from plimsoll_runtime import http, problems
from plimsoll_runtime.auth import let_anybody


class Limit(BaseModel):
    model_config = ConfigDict(extra="forbid")

    dimension: str
    amount: int = Field(ge=0)


def make_app() -> ASGIApp:
    app = http.create_app(title="Example", version="1", authenticate=let_anybody, body_bytes_max=1_000)
    app.include_router(problems.router)

    @app.post("/limits")
    async def set_limits(limits: list[Limit]) -> int:
        return len(limits)

    @app.get("/limits")
    async def get_limits(page: Annotated[int, Query(le=500)] = 1) -> int:
        return page

    @app.get("/conflict")
    async def conflict() -> None:
        raise http.Problem(codes.LIMIT_VERSION_CONFLICT, "It is at 4.", headers={"ETag": '"4"'}, version=4)

    @app.get("/bug")
    async def bug() -> None:
        raise RuntimeError("the password is hunter2")

    return app


@pytest.fixture
async def api() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        yield client


def problem(answer: httpx.Response, code: codes.Code) -> dict[str, Any]:
    """Check what every problem has, and return it."""
    body: dict[str, Any] = answer.json()
    assert answer.status_code == code.status == body["status"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert (body["code"], body["title"], body["remedy"]) == (code.code, code.title, code.remedy)
    assert body["type"] == f"/problems/{code.code}"
    assert body["instance"] == f"urn:request:{answer.headers['x-request-id']}"
    return body


async def test_an_answer_carries_the_request_id_it_was_given(api: httpx.AsyncClient) -> None:
    answer = await api.get("/limits", headers={"X-Request-Id": "flow-42"})

    assert answer.json() == 1
    assert answer.headers["x-request-id"] == "flow-42"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("offered", ["", "a b", "x" * 65, 'a"b', "<script>"])
async def test_a_request_id_outside_the_grammar_is_replaced(api: httpx.AsyncClient, offered: str) -> None:
    answer = await api.get("/limits", headers={"X-Request-Id": offered})

    assert answer.headers["x-request-id"] != offered
    assert len(answer.headers["x-request-id"]) == 32


async def test_validation_lists_every_field(api: httpx.AsyncClient) -> None:
    answer = await api.post("/limits", json=[{"dimension": "cpu", "amount": -1}, {"amount": "many"}])

    body = problem(answer, codes.INVALID_REQUEST)
    assert {error["field"] for error in body["errors"]} == {
        "body.0.amount",
        "body.1.dimension",
        "body.1.amount",
    }
    assert "many" not in answer.text  # what was sent is not sent back


async def test_an_unknown_field_has_a_code_of_its_own(api: httpx.AsyncClient) -> None:
    answer = await api.post("/limits", json=[{"dimension": "cpu", "amount": 1, "used": 3}])

    assert problem(answer, codes.UNKNOWN_FIELD)["errors"][0]["field"] == "body.0.used"


async def test_a_query_parameter_is_named(api: httpx.AsyncClient) -> None:
    answer = await api.get("/limits", params={"page": 501})

    assert problem(answer, codes.INVALID_REQUEST)["errors"][0]["field"] == "query.page"


@pytest.mark.parametrize(
    ("address", "code", "detail"),
    [
        ("/limits?pgae=2", codes.UNKNOWN_FIELD, "query.pgae: no such parameter, there are page"),
        ("/limits?page=2&page=3", codes.INVALID_REQUEST, "query: a parameter is given twice"),
        ("/conflict?dryrun=true", codes.UNKNOWN_FIELD, "query.dryrun: no such parameter, this address takes none"),
    ],
)
async def test_a_query_parameter_that_would_be_dropped_is_refused(
    api: httpx.AsyncClient, address: str, code: codes.Code, detail: str
) -> None:
    assert problem(await api.get(address), code)["detail"].startswith(detail)


async def test_a_key_written_twice_is_refused(api: httpx.AsyncClient) -> None:
    twice = b'[{"dimension": "cpu", "amount": 1, "amount": 2}]'
    found = problem(
        await api.post("/limits", content=twice, headers={"content-type": "application/json"}), codes.INVALID_REQUEST
    )
    assert found["detail"].startswith("body: a key is written twice")
    assert (
        await api.post(
            "/limits", content=twice.replace(b', "amount": 2', b""), headers={"content-type": "application/json"}
        )
    ).json() == 1


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b""])
async def test_undecodable_bodies_are_refused_with_a_code(api: httpx.AsyncClient, body: bytes) -> None:
    answer = await api.post("/limits", content=body, headers={"content-type": "application/json"})

    assert answer.status_code == 400
    assert answer.json()["code"] in {codes.UNDECODABLE.code, codes.INVALID_REQUEST.code}


async def test_a_name_that_utf8_cannot_hold_is_still_answered(api: httpx.AsyncClient) -> None:
    body = rb'[{"dimension": "cpu", "amount": 1, "\ud800": 1}]'

    answer = await api.post("/limits", content=body, headers={"content-type": "application/json"})

    problem(answer, codes.INVALID_REQUEST)


async def test_a_form_from_a_web_page_is_not_taken_for_json(api: httpx.AsyncClient) -> None:
    """A page elsewhere may post text/plain to loopback without asking; JSON it may not."""
    answer = await api.post("/limits", content=b"[]", headers={"content-type": "text/plain"})

    problem(answer, codes.INVALID_REQUEST)


async def test_404_and_405_are_problems(api: httpx.AsyncClient) -> None:
    problem(await api.get("/nothing/here"), codes.NOT_FOUND)
    answer = await api.delete("/limits")
    problem(answer, codes.METHOD_NOT_ALLOWED)
    assert "POST" in answer.headers["allow"]


async def test_documentation_pages_are_not_served(api: httpx.AsyncClient) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        problem(await api.get(path), codes.NOT_FOUND)


async def test_a_large_body_is_refused_whether_or_not_it_says_its_size(api: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    json_type = {"content-type": "application/json"}
    body = problem(await api.post("/limits", content=b" " * 1_001, headers=json_type), codes.TOO_LARGE)
    assert body["limit_bytes"] == 1_000
    problem(await api.post("/limits", content=chunks(), headers=json_type), codes.TOO_LARGE)
    fits = await api.post("/limits", content=b"[]" + b" " * 998, headers=json_type)
    assert fits.status_code == 200


async def test_a_problem_carries_its_headers_and_members(api: httpx.AsyncClient) -> None:
    answer = await api.get("/conflict")

    body = problem(answer, codes.LIMIT_VERSION_CONFLICT)
    assert (body["detail"], body["version"], answer.headers["etag"]) == ("It is at 4.", 4, '"4"')


async def test_a_bug_is_a_500_that_says_nothing_of_its_cause(api: httpx.AsyncClient) -> None:
    answer = await api.get("/bug")

    problem(answer, codes.INTERNAL)
    assert "hunter2" not in answer.text


async def test_a_foreign_host_name_is_not_served(api: httpx.AsyncClient) -> None:
    """A web page that resolves its own name to loopback still sends that name."""
    for foreign in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil:80"):
        problem(await api.get("/limits", headers={"host": foreign}), codes.NOT_FOUND)
    assert (await api.get("/limits", headers={"host": "localhost:1234"})).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://evil:80"])
async def test_a_page_of_another_site_is_not_served(api: httpx.AsyncClient, origin: str) -> None:
    """Nothing of what it sends has an effect: a POST without a body needs no one's permission in a browser."""
    problem(await api.get("/limits", headers={"origin": origin}), codes.NOT_FOUND)
    for own in ("http://127.0.0.1:8080", "http://localhost:9", "http://[::1]:1"):
        assert (await api.get("/limits", headers={"origin": own})).status_code == 200


async def test_two_apps_share_one_port() -> None:
    async def probes(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = http.beside(probes, make_app(), paths={"/metrics"})
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as both:
        assert (await both.get("/metrics")).status_code == 204
        assert (await both.get("/limits")).status_code == 200
        problem(await both.get("/metrics/more"), codes.NOT_FOUND)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [("text/html,*/*;q=0.8", "text/html"), ("application/json", "application/json"), ("*/*", "text/plain")],
)
async def test_the_type_of_a_problem_leads_to_what_it_means(api: httpx.AsyncClient, accept: str, kind: str) -> None:
    where = (await api.get("/conflict")).json()["type"]
    page = await api.get(where, headers={"accept": accept})
    assert page.headers["content-type"].split(";")[0] == kind
    for word in (codes.LIMIT_VERSION_CONFLICT.code, codes.LIMIT_VERSION_CONFLICT.remedy):
        assert word in page.text
    problem(await api.get("/problems/X999999NOSUCH", headers={"accept": accept}), codes.NOT_FOUND)
