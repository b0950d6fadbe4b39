"""How is another limit asked for, and how is that decided: a yes sets the limit in the same transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import asyncpg
from pydantic import BaseModel

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.limit_requests import LimitRequestDecided, LimitRequested, RequestState
from plimsoll_contracts.limits_api import LimitRequestView
from plimsoll_contracts.scopes import Scope
from plimsoll_contracts.topics import QUOTA_LIMITS
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.relimit import LimitRefused, may_have_limit
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.limits import Changed, Patch, Wanted, change_limits
from plimsoll_quota_enforcer.storage.listing import value_of
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_streams import outbox
from plimsoll_streams.transactions import Connection

OPEN_MAX = 100
"""Requests of one tenant that may wait to be decided: whoever may ask cannot fill the table."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What somebody decided about a request, and why."""

    approved: bool
    by: str
    reason: str
    other: Wanted | None = None
    """Another amount than was asked for."""
    mode: Mode = Mode.ENFORCE
    expires_at: datetime | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """A request as it is decided, and the change of the limit where that was a yes."""

    request: LimitRequestView
    changed: Changed | None = None


async def ask(
    connection: Connection, scope: Scope, dimension: Dimension, wanted: Wanted, *, by: str, reason: str
) -> LimitRequestView:
    """Write a request down inside the caller's transaction, and tell it.

    Raises:
        LimitRefused: no limit can be set there, or the tenant has too many open requests.
    """
    may_have_limit(scope, dimension)
    if await connection.fetchval(QUERIES["count_limit_requests"], scope.tenant) >= OPEN_MAX:
        raise LimitRefused(codes.LIMIT_REQUESTS_FULL, f"{scope.tenant} has {OPEN_MAX} open requests")
    place = (scope.environment, scope.stack)
    row = await connection.fetchrow(
        QUERIES["save_limit_request"], scope.tenant, *place, dimension, wanted.value, by, reason
    )
    view = _view(_row(row, 0))
    event = LimitRequested(
        id=view.id,
        tenant=view.tenant,
        scope=view.scope,
        dimension=view.dimension,
        value=view.value,
        asked_by=by,
        reason=reason,
        asked_at=view.asked_at,
    )
    await _tell(connection, view, "quota.limit_requested.v1", event, view.asked_at)
    return view


async def decide(
    connection: Connection,
    cache: StateCache,
    policy: Policy,
    *,
    request: int,
    verdict: Callable[[LimitRequestView], Verdict],
) -> Decided:
    """Decide a request inside the caller's transaction; a yes sets the limit under its tenant's guard.

    Args:
        connection: inside the transaction.
        cache: states of earlier batches.
        policy: the platform's.
        request: the id of the request.
        verdict: from the request to what is decided; raises where whoever decides may not decide this one.

    Raises:
        LookupError: there is no such request.
        LimitRefused: it was decided before, or a rule speaks against the limit; nothing was written.
    """
    row = _row(await connection.fetchrow(QUERIES["read_limit_request"], request), request)
    view = _view(row)
    said = verdict(view)
    _still_open(view)
    changed = await _grant(connection, cache, policy, row, said) if said.approved else None
    limit = changed.plans[0].limit if changed is not None else None
    granted = (limit.value, limit.expires_at, limit.version) if limit is not None else (None, None, None)
    state = RequestState.APPROVED if said.approved else RequestState.REJECTED
    decided = await connection.fetchrow(QUERIES["decide_limit_request"], request, state, said.by, said.reason, *granted)
    if decided is None:
        _still_open(await find(connection, request))
        raise LimitRefused(codes.LIMIT_REQUEST_DECIDED, f"request {request} was decided meanwhile")
    told = _view(decided)
    await _tell_decided(connection, told, changed.seq if changed is not None else None)
    return Decided(told, changed)


async def _grant(
    connection: Connection, cache: StateCache, policy: Policy, row: asyncpg.Record, said: Verdict
) -> Changed:
    values = {Dimension(row["dimension"]): said.other or Wanted(row["value"])}
    reason = f"request {row['id']}: {said.reason}"[:500]
    patch = Patch(values, said.by, reason, said.mode, said.expires_at, force=said.force)
    place = (row["environment"], row["stack"])
    return await change_limits(connection, cache, policy, tenant=row["tenant"], place=place, patch=patch)


def _still_open(view: LimitRequestView) -> None:
    if view.state is not RequestState.ASKED:
        when = f"{view.decided_at:%Y-%m-%d %H:%M %Z}"
        raise LimitRefused(
            codes.LIMIT_REQUEST_DECIDED, f"request {view.id} was {view.state} by {view.decided_by} on {when}"
        )


async def find(connection: Connection | asyncpg.Pool, request: int) -> LimitRequestView:
    """Read one request.

    Raises:
        LookupError: there is none such.
    """
    return _view(_row(await connection.fetchrow(QUERIES["read_limit_request"], request), request))


def _row(found: asyncpg.Record | None, request: int) -> asyncpg.Record:
    if found is None:
        raise LookupError(f"there is no request {request}")
    return found


async def requests(
    pool: asyncpg.Pool, tenants: frozenset[str] | None, state: RequestState | None, *, before: int, limit: int
) -> list[LimitRequestView]:
    """List requests, newest first, among some tenants or (None) all, from the one before an id on."""
    among = None if tenants is None else sorted(tenants)
    found = await pool.fetch(QUERIES["list_limit_requests"], before, among, state, limit)
    return [_view(row) for row in found]


def _view(row: asyncpg.Record) -> LimitRequestView:
    state = RequestState(row["state"])
    return LimitRequestView(
        id=row["id"],
        scope=answers.scope_of(row["tenant"], (row["environment"], row["stack"])).render(),
        tenant=row["tenant"],
        dimension=row["dimension"],
        value=value_of(row["value"]),
        state=state,
        asked_by=row["asked_by"],
        asked_reason=row["asked_reason"],
        asked_at=row["asked_at"],
        decided_by=row["decided_by"],
        decided_reason=row["decided_reason"],
        decided_at=row["decided_at"],
        granted=value_of(row["granted"]) if state is RequestState.APPROVED else None,
        expires_at=row["expires_at"],
        version=row["limit_version"],
    )


async def _tell_decided(connection: Connection, view: LimitRequestView, seq: int | None) -> None:
    assert view.decided_at is not None  # noqa: S101 - it is decided
    event = LimitRequestDecided(
        id=view.id,
        tenant=view.tenant,
        scope=view.scope,
        dimension=view.dimension,
        value=view.value,
        state=view.state,
        granted=view.granted,
        expires_at=view.expires_at,
        version=view.version,
        decided_by=view.decided_by or "",
        reason=view.decided_reason or "",
        decided_at=view.decided_at,
        seq=seq,
    )
    await _tell(connection, view, "quota.limit_request_decided.v1", event, view.decided_at)


async def _tell(connection: Connection, view: LimitRequestView, kind: str, event: BaseModel, at: datetime) -> None:
    name = f"limit-request:{view.id}:{view.state}"
    await outbox.insert(connection, [answers.message(QUOTA_LIMITS, view.tenant, kind, event, name=name, at=at)])
