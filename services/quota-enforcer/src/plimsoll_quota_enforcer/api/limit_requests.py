"""How is another limit asked for over HTTP, and who decides that?"""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query

from plimsoll_contracts import codes
from plimsoll_contracts.access import Permission
from plimsoll_contracts.fields import Name
from plimsoll_contracts.limit_requests import RequestState
from plimsoll_contracts.limits_api import Approval, LimitAsk, LimitRequestList, LimitRequestView, Rejection
from plimsoll_quota_enforcer.api.access import Asker, Reader, Writer, done_by, own
from plimsoll_quota_enforcer.api.limits import counted, read_dimension, read_wanted
from plimsoll_quota_enforcer.api.once import MaybeOnce
from plimsoll_quota_enforcer.api.parts import INT64_MAX, Given, Page, Parts
from plimsoll_quota_enforcer.storage import asking
from plimsoll_quota_enforcer.storage.once import Once
from plimsoll_runtime.auth import Principal
from plimsoll_runtime.http import Problem
from plimsoll_streams.transactions import Connection

RequestId = Annotated[int, Path(ge=0, le=INT64_MAX)]
Before = Annotated[int, Query(ge=0, le=INT64_MAX)]

router = APIRouter()


@router.post("/limit-requests")
async def ask(parts: Given, who: Asker, once: MaybeOnce, body: LimitAsk) -> LimitRequestView:
    """Ask for another limit; somebody else decides."""
    own(who, body.tenant)
    dimension = read_dimension(body.dimension)
    wanted, by = read_wanted(dimension, body.value), done_by(who, body.by)

    async def write(connection: Connection) -> LimitRequestView:
        return await asking.ask(connection, body.scope, dimension, wanted, by=by, reason=body.reason)

    return await parts.write(write, once=once, told=lambda view: view)


@router.get("/limit-requests")
async def list_requests(
    parts: Given,
    who: Reader,
    *,
    state: RequestState | None = None,
    tenant: Name | None = None,
    before: Before = INT64_MAX,
    limit: Page = 100,
) -> LimitRequestList:
    """List requests for limits, newest first, of one tenant or of all of the token's."""
    if tenant is not None:
        own(who, tenant)
    tenants = frozenset({tenant}) if tenant is not None else who.tenants
    found = await asking.requests(parts.pool, tenants, state, before=before, limit=limit)
    return LimitRequestList(requests=tuple(found), next=found[-1].id if len(found) == limit else None)


@router.get("/limit-requests/{request}")
async def show_request(parts: Given, who: Reader, request: RequestId) -> LimitRequestView:
    """Show one request for a limit."""
    try:
        found = await asking.find(parts.pool, request)
    except LookupError as error:
        raise Problem(codes.NOT_FOUND, str(error)) from None
    _see(who, found)
    return found


@router.post("/limit-requests/{request}/approve")
async def approve(parts: Given, who: Writer, once: MaybeOnce, request: RequestId, body: Approval) -> LimitRequestView:
    """Set the limit that was asked for, or another, and say so; who asked may not, unless an administrator."""
    verdict = asking.Verdict(
        approved=True,
        by=done_by(who, body.by),
        reason=body.reason,
        mode=body.mode,
        expires_at=body.expires_at,
        force=body.force,
    )
    return await _decide(parts, who, once, request, verdict=verdict, value=body.value)


@router.post("/limit-requests/{request}/reject")
async def reject(parts: Given, who: Writer, once: MaybeOnce, request: RequestId, body: Rejection) -> LimitRequestView:
    """Say no to a request, and why."""
    verdict = asking.Verdict(approved=False, by=done_by(who, body.by), reason=body.reason)
    return await _decide(parts, who, once, request, verdict=verdict)


async def _decide(
    parts: Parts,
    who: Principal,
    once: Once | None,
    request: int,
    *,
    verdict: asking.Verdict,
    value: int | str | None = None,
) -> LimitRequestView:
    def may(found: LimitRequestView) -> asking.Verdict:
        _see(who, found)
        mine = who.subject is not None and who.subject == found.asked_by
        if verdict.approved and mine and Permission.ADMIN not in who.scopes:
            raise Problem(codes.OWN_LIMIT_REQUEST, f"request {found.id} was asked by {found.asked_by}")
        return verdict if value is None else replace(verdict, other=read_wanted(found.dimension, value))

    async def decide(connection: Connection) -> asking.Decided:
        try:
            return await asking.decide(connection, parts.cache, parts.policy, request=request, verdict=may)
        except LookupError as error:
            raise Problem(codes.NOT_FOUND, str(error)) from None

    decided = await parts.write(decide, once=once, told=lambda decided: decided.request)
    if decided.changed is not None:
        counted(decided.changed)
    return decided.request


def _see(who: Principal, found: LimitRequestView) -> None:
    if not who.may_see(found.tenant):
        raise Problem(codes.NOT_FOUND, f"there is no request {found.id}")
