"""How does a service answer over HTTP: one form for every error, bounded bodies, a request id on everything."""

import json
import re
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import structlog
from fastapi import Depends, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plimsoll_contracts import codes
from plimsoll_contracts.api import Problem as ProblemDocument
from plimsoll_contracts.codes import Code

BODY_BYTES_MAX = 65_536
REQUEST_ID_HEADER = "X-Request-Id"
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
PUBLIC = "/problems/"
"""Below it is a page for each code: the same for everybody, and shown without a token."""

_REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
# 400 is FastAPI's own only where the bytes of a body cannot be read as text.
_BY_STATUS: Mapping[int, Code] = {
    400: codes.UNDECODABLE,
    404: codes.NOT_FOUND,
    405: codes.METHOD_NOT_ALLOWED,
    413: codes.TOO_LARGE,
}

log = structlog.get_logger()


class Problem(HTTPException):
    """An error answer: a registered code, what happened this time, and members of its own."""

    def __init__(
        self, code: Code, detail: str, *, headers: Mapping[str, str] | None = None, **extensions: object
    ) -> None:
        super().__init__(code.status, detail, headers)
        self.code = code
        self.extensions = extensions


def create_app(
    *,
    title: str,
    version: str,
    authenticate: Callable[[Sequence[str]], Awaitable[object]],
    body_bytes_max: int = BODY_BYTES_MAX,
    allowed_hosts: Collection[str] | None = LOOPBACK_HOSTS,
    is_momentary: Callable[[Exception], bool] = lambda _: False,
) -> FastAPI:
    """Make an API whose every error is a problem document.

    Args:
        title: the API's name in its OpenAPI document.
        version: its version there.
        authenticate: from the values of the Authorization header to who asks, for ``request.state.principal``;
            raises a Problem before anything else of the request is looked at.
        body_bytes_max: larger request bodies are answered 413.
        allowed_hosts: names that the Host header may have, so that no web page can reach a loopback API
            through a name of its own; None lets any.
        is_momentary: which failures waiting may cure by itself, such as a database that is away: they are no
            error of ours and are answered 503.
    """
    app = FastAPI(
        title=title,
        version=version,
        # Served from the repository's docs/reference instead: less to reach from outside.
        openapi_url=None,
        dependencies=[Depends(_only_what_is_understood)],
        responses={"default": {"model": ProblemDocument, "description": "A problem (RFC 9457)"}},
    )
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_middleware(
        _Edge,
        authenticate=authenticate,
        body_bytes_max=body_bytes_max,
        allowed_hosts=allowed_hosts,
        is_momentary=is_momentary,
    )
    return app


def beside(probes: ASGIApp, api: ASGIApp, *, paths: Collection[str]) -> ASGIApp:
    """Serve two ASGI apps on one port: `probes` gets its exact paths and the lifespan, `api` all else."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = probes if scope["type"] == "lifespan" or scope["path"] in paths else api
        await chosen(scope, receive, send)

    return app


class _Edge:
    """What every request passes: id, host, who it is, body limit, and the last word on what nobody caught."""

    def __init__(
        self,
        app: ASGIApp,
        authenticate: Callable[[Sequence[str]], Awaitable[object]],
        body_bytes_max: int,
        allowed_hosts: Collection[str] | None,
        is_momentary: Callable[[Exception], bool],
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._body_bytes_max = body_bytes_max
        self._allowed_hosts = allowed_hosts
        self._is_momentary = is_momentary

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        offered = headers.get(REQUEST_ID_HEADER, "")
        request_id = offered if _REQUEST_ID.match(offered) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                out = MutableHeaders(scope=message)
                out[REQUEST_ID_HEADER] = request_id
                out.setdefault("Cache-Control", "no-store")
                out.setdefault("X-Content-Type-Options", "nosniff")
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                self._check_host(headers)
                if not scope["path"].startswith(PUBLIC):
                    scope["state"]["principal"] = await self._authenticate(headers.getlist("authorization"))
                body = await self._read(receive)
                await self._app(scope, _replay(body, receive), send_with_headers)
            except Problem as problem:
                await _document(problem, request_id)(scope, receive, send_with_headers)
            except Exception as error:
                if started:
                    raise  # the answer is half sent: only cutting the connection tells the caller
                if self._is_momentary(error):
                    log.warning("request not answered", path=scope["path"], error=repr(error))
                    failed = Problem(codes.UNAVAILABLE, "The request could not be answered now.")
                else:
                    log.exception("request failed", method=scope["method"], path=scope["path"])
                    failed = Problem(codes.INTERNAL, "The request failed; the log has the cause.")
                await _document(failed, request_id)(scope, receive, send_with_headers)

    def _check_host(self, headers: Headers) -> None:
        host = re.sub(r":\d+$", "", headers.get("host", ""))
        if self._allowed_hosts is not None and host not in self._allowed_hosts:
            raise Problem(codes.NOT_FOUND, "This API is not served under that host name.")
        # A page of another site may post without a body, and the browser asks nobody before; it does say its origin.
        origin = headers.get("origin")
        if self._allowed_hosts is not None and origin and _host_of(origin) not in self._allowed_hosts:
            raise Problem(codes.NOT_FOUND, "This API is not served to pages of other sites.")

    async def _read(self, receive: Receive) -> bytes:
        """Read the whole body, which is small, so that no handler meets an endless one."""
        limit = self._body_bytes_max
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > limit:
                raise Problem(codes.TOO_LARGE, f"The body may have {limit} bytes.", limit_bytes=limit)
            if not message.get("more_body", False):
                return bytes(body)


def _host_of(origin: str) -> str:
    """`http://[::1]:8080` is of `[::1]`; what is no web origin, such as `null`, is of nobody."""
    return re.sub(r":\d+$", "", origin.removeprefix("https://").removeprefix("http://"))


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _only_what_is_understood(request: Request) -> None:
    """Refuse what would be dropped in silence: `?env=prod` for `?environment=prod` would change another scope."""
    known = frozenset(_query_names(request.scope["route"].dependant))
    given = [name for name, _ in request.query_params.multi_items()]
    if unknown := [name for name in given if name not in known]:
        can = f"there are {', '.join(sorted(known))}" if known else "this address takes none"
        raise Problem(codes.UNKNOWN_FIELD, f"query.{unknown[0][:64]}: no such parameter, {can}")
    if len(set(given)) < len(given):
        raise Problem(codes.INVALID_REQUEST, "query: a parameter is given twice: which one counts is anybody's guess")
    if (body := await request.body()) and request.scope["route"].body_field is not None:
        with suppress(ValueError):  # no JSON, since its content type says nothing of it: refused by what reads fields
            json.loads(body, object_pairs_hook=_written_once)


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_names(each)


def _written_once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Problem(codes.INVALID_REQUEST, "body: a key is written twice: which one counts is anybody's guess")
    return members


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this type only
    found = error.errors()
    kinds = {each["type"]: None for each in found}
    of_a_field = next((codes.CODES[kind] for kind in kinds if kind in codes.CODES), None)
    if of_a_field is not None:
        code = of_a_field
    elif "json_invalid" in kinds:
        code = codes.UNDECODABLE
    else:
        code = codes.UNKNOWN_FIELD if set(kinds) == {"extra_forbidden"} else codes.INVALID_REQUEST
    errors = [{"field": _field(each["loc"]), "message": each["msg"]} for each in found]
    detail = "; ".join(f"{each['field']}: {each['message']}" for each in errors[:5])
    return _document(Problem(code, detail, errors=errors), request.state.request_id)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type only
    if isinstance(error, Problem):
        return _document(error, request.state.request_id)
    code = _BY_STATUS.get(error.status_code, codes.INVALID_REQUEST if error.status_code < 500 else codes.INTERNAL)  # noqa: PLR2004 - HTTP's own classes
    return _document(Problem(code, str(error.detail), headers=error.headers), request.state.request_id)


def _field(location: Sequence[object]) -> str:
    """Render ("body", "limits", 0, "amount") as `body.limits.0.amount`."""
    return ".".join(str(part) for part in location)


def _document(problem: Problem, request_id: str) -> Response:
    code = problem.code
    body = {
        **problem.extensions,
        "type": f"{PUBLIC}{code.code}",
        "title": code.title,
        "status": code.status,
        "detail": problem.detail,
        "instance": f"urn:request:{request_id}",
        "code": code.code,
        "remedy": code.remedy,
    }
    return Response(
        json.dumps(body, default=str),
        status_code=code.status,
        headers=problem.headers and dict(problem.headers),
        media_type="application/problem+json",
    )
