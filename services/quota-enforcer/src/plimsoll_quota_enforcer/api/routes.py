"""Which routes are there? A noun's module brings its router, and is listed here."""

import json

from fastapi import FastAPI, Request, Response

from plimsoll_contracts.requests import MAX_REQUEST_BYTES
from plimsoll_quota_enforcer import __version__
from plimsoll_quota_enforcer.api import (
    applying,
    decisions,
    doctor,
    letters,
    limit_requests,
    limits,
    limits_shown,
    simulating,
    usage,
    verbs,
)
from plimsoll_quota_enforcer.api.once import Repeated
from plimsoll_quota_enforcer.api.parts import Parts
from plimsoll_runtime import problems
from plimsoll_runtime.auth import Authenticate, let_anybody
from plimsoll_runtime.http import LOOPBACK_HOSTS, create_app
from plimsoll_streams.failures import is_transient

PREFIX = "/api/v1/quota"

_ROUTERS = (
    usage.router,
    decisions.router,
    limits.router,
    limits_shown.router,
    limit_requests.router,
    applying.router,
    simulating.router,
    verbs.router,
    letters.router,
    doctor.router,
)


def build(parts: Parts, authenticate: Authenticate) -> FastAPI:
    """Build the application over its parts."""
    # A page of another site can send no token, so only where none is asked for does the name of the host matter.
    hosts = LOOPBACK_HOSTS if authenticate is let_anybody else None
    app = create_app(
        title="Plimsoll quota",
        version=__version__,
        authenticate=authenticate,
        body_bytes_max=MAX_REQUEST_BYTES,
        allowed_hosts=hosts,
        is_momentary=is_transient,
    )
    app.state.parts = parts
    app.add_exception_handler(Repeated, _repeat)
    app.include_router(problems.router)
    for router in _ROUTERS:
        app.include_router(router, prefix=PREFIX)
    return app


async def _repeat(_: Request, repeated: Exception) -> Response:
    version = json.loads(str(repeated)).get("limits_version")
    tag = {} if version is None else {"ETag": f'"{version}"'}
    return Response(str(repeated), media_type="application/json", headers={"Idempotency-Replayed": "true", **tag})
