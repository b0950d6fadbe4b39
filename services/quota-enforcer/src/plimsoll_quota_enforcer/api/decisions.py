"""What of the past and its reasons: usage at an instant, decisions, gates."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from plimsoll_contracts import codes
from plimsoll_contracts.decisions_api import (
    DecisionDetail,
    DecisionList,
    Explanation,
    GatesOverview,
    TenantGates,
    UsageAt,
)
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Verb
from plimsoll_contracts.fields import ID_PATTERN, Id, Instant, Name
from plimsoll_quota_enforcer.api.access import administers, reads
from plimsoll_quota_enforcer.api.parts import AfterName, At, Given, Page
from plimsoll_quota_enforcer.storage import decisions, explaining, gates, history
from plimsoll_quota_enforcer.storage.decisions import Cursor, Wanted
from plimsoll_runtime.http import Problem

RequestId = Annotated[str, Path(pattern=ID_PATTERN)]
Text = Annotated[str | None, Query(max_length=128)]

router = APIRouter()


@router.get("/tenants/{tenant}/usage", dependencies=[reads])
async def read_usage(parts: Given, tenant: Name, place: At, at: Instant | None = None) -> UsageAt:
    """Show what one scope used and held at an instant; now where none is given."""
    try:
        return await history.usage_at(parts.pool, tenant, place, at)
    except history.HistoryRefused as refused:
        raise Problem(refused.code, refused.detail) from None


@router.get("/tenants/{tenant}/explain", dependencies=[reads])
async def explain_scope(parts: Given, tenant: Name, place: At, dimension: Dimension | None = None) -> Explanation:
    """Show every input of one scope's figures with its source and age, or of those of one dimension."""
    try:
        return await explaining.explain(parts.pool, parts.policy, tenant, place, dimension)
    except history.HistoryRefused as refused:
        raise Problem(refused.code, refused.detail) from None


def _wanted(
    place: At,
    *,
    since: Instant | None = None,
    until: Instant | None = None,
    verb: Verb | None = None,
    code: Text = None,
    allowed: bool | None = None,
    deployment: Id | None = None,
) -> Wanted:
    return Wanted(None, since, until, verb, code, allowed, deployment, place)


Filters = Annotated[Wanted, Depends(_wanted)]


@router.get("/tenants/{tenant}/decisions", dependencies=[reads])
async def list_decisions_of_tenant(
    parts: Given, tenant: Name, wanted: Filters, *, after: Text = None, oldest_first: bool = False, limit: Page = 100
) -> DecisionList:
    """List a tenant's stored decisions, newest first; ``after`` is what ``next`` said."""
    return await _page(parts, replace(wanted, tenant=tenant), after, limit, oldest_first=oldest_first)


@router.get("/decisions", dependencies=[administers])
async def list_decisions(
    parts: Given, wanted: Filters, *, after: Text = None, oldest_first: bool = False, limit: Page = 100
) -> DecisionList:
    """List the stored decisions of all tenants, newest first; ``after`` is what ``next`` said."""
    return await _page(parts, wanted, after, limit, oldest_first=oldest_first)


async def _page(parts: Given, wanted: Wanted, after: str | None, limit: int, *, oldest_first: bool) -> DecisionList:
    try:
        cursor = Cursor.read(after) if after is not None else None
    except (ValueError, OverflowError):
        raise Problem(codes.INVALID_REQUEST, "after: give what next said, as it is") from None
    return await decisions.page(parts.pool, wanted, cursor, limit, oldest_first=oldest_first)


@router.get("/tenants/{tenant}/decisions/{request_id}", dependencies=[reads])
async def show_decision(parts: Given, tenant: Name, request_id: RequestId) -> DecisionDetail:
    """Show one stored decision: what was asked, what was answered, and what it was decided on."""
    found = await decisions.show(parts.pool, tenant, request_id)
    if found is None:
        raise Problem(codes.NOT_FOUND, f"no decision on {request_id} is kept")
    return found


@router.get("/gates", dependencies=[administers])
async def read_gates(parts: Given, after: AfterName = "", limit: Page = 100) -> GatesOverview:
    """Show how often each gate failed open, and the tenants of whose entitlement nothing is known."""
    return await gates.overview(parts.pool, parts.policy, after, limit)


@router.get("/tenants/{tenant}/gates", dependencies=[reads])
async def read_gates_of_tenant(parts: Given, tenant: Name) -> TenantGates:
    """Show how each gate stands for a tenant."""
    return await gates.of_tenant(parts.pool, parts.policy, tenant)
