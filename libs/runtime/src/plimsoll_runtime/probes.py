"""Is this process alive, ready, and doing what: the routes that orchestrators, scrapers and people read."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from plimsoll_runtime import metrics

CHECK_SECONDS = 2.0
"""A check that has not answered by then has failed: the prober's own patience is not longer."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    ok: bool
    detail: str = ""


Check = Callable[[], Awaitable[CheckResult]]


def routes(
    *,
    checks: Mapping[str, Check],
    status: Callable[[], Mapping[str, object]],
    alive: Mapping[str, Check] | None = None,
) -> list[tuple[str, ASGIApp]]:
    """Return (path, app) of /internal/alive, /internal/ready, /internal/status and /metrics.

    Args:
        checks: what readiness depends on, by name; nothing the service can do without.
        status: the service's own account of itself, JSON-like; other values are shown as text.
        alive: what liveness depends on; nothing by default, since the watchdog ends a stuck process.
    """

    async def answer_alive() -> Response:
        return await _answer(alive or {})

    async def answer_ready() -> Response:
        return await _answer(checks)

    async def answer_status() -> Response:
        return _json(dict(status()), 200)

    async def answer_metrics() -> Response:
        return Response(metrics.exposition(), media_type=metrics.CONTENT_TYPE)

    return [
        ("/internal/alive", _get_only(answer_alive)),
        ("/internal/ready", _get_only(answer_ready)),
        ("/internal/status", _get_only(answer_status)),
        ("/metrics", _get_only(answer_metrics)),
    ]


async def run(checks: Mapping[str, Check]) -> dict[str, CheckResult]:
    """Run checks side by side; one that raises or takes over 2 s has failed."""
    results = await asyncio.gather(*(_bounded(check) for check in checks.values()))
    return dict(zip(checks, results, strict=True))


async def _bounded(check: Check) -> CheckResult:
    try:
        return await asyncio.wait_for(check(), CHECK_SECONDS)
    except TimeoutError:
        return CheckResult(ok=False, detail=f"no answer within {CHECK_SECONDS:g} s")
    except Exception as error:  # noqa: BLE001 - whatever a check raises is its finding
        # The type only: a driver's message may carry an address or a password.
        return CheckResult(ok=False, detail=type(error).__name__)


async def _answer(checks: Mapping[str, Check]) -> Response:
    results = await run(checks)
    ok = all(result.ok for result in results.values())
    body = {"ok": ok, "checks": {name: asdict(result) for name, result in results.items()}}
    return _json(body, 200 if ok else 503)


def _json(body: Mapping[str, object], status: int) -> Response:
    return Response(json.dumps(body, default=str), status_code=status, media_type="application/json")


def _get_only(answer: Callable[[], Awaitable[Response]]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        allowed = scope["method"] in {"GET", "HEAD"}
        response = await answer() if allowed else Response(status_code=405, headers={"allow": "GET, HEAD"})
        await response(scope, receive, send)

    return app
