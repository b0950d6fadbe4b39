"""Which limits are set, and how did they come about?"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.fields import Instant, Name
from plimsoll_contracts.limits_api import LimitHistory, LimitList
from plimsoll_quota_enforcer.api.access import Reader, reads
from plimsoll_quota_enforcer.api.parts import INT64_MAX, At, Given, Page
from plimsoll_quota_enforcer.storage import listing
from plimsoll_quota_enforcer.storage.recording import PLATFORM

AfterLimit = Annotated[str, Query(max_length=255, pattern="^[a-z0-9._/-]*$")]
Before = Annotated[int, Query(ge=0, le=INT64_MAX)]

router = APIRouter()


def _sought(
    dimension: Dimension | None = None, mode: Mode | None = None, expires_before: Instant | None = None
) -> listing.Sought:
    return listing.Sought(dimension, mode, expires_before)


Sought = Annotated[listing.Sought, Depends(_sought)]


@router.get("/limits")
async def list_limits(
    parts: Given, who: Reader, sought: Sought, after: AfterLimit = "", limit: Page = 100
) -> LimitList:
    """List the overrides of all tenants, those of the token."""
    return await listing.overrides(parts.pool, who.tenants, sought, after, limit)


@router.get("/tenants/{tenant}/limits", dependencies=[reads])
async def list_limits_of_tenant(
    parts: Given, tenant: Name, sought: Sought, after: AfterLimit = "", limit: Page = 100
) -> LimitList:
    """List the overrides of a tenant, at every scope of it."""
    return await listing.overrides(parts.pool, frozenset({tenant}), sought, after, limit)


@router.get("/limits/history")
async def list_history(
    parts: Given, who: Reader, dimension: Dimension | None = None, before: Before = INT64_MAX, limit: Page = 100
) -> LimitHistory:
    """List changes of limits, newest first: of the token's tenants, or of everybody and the defaults."""
    return await listing.history(parts.pool, who.tenants, (None, None), dimension, before=before, limit=limit)


@router.get("/defaults/history", dependencies=[reads])
async def list_history_of_defaults(
    parts: Given, dimension: Dimension | None = None, before: Before = INT64_MAX, limit: Page = 100
) -> LimitHistory:
    """List changes of the global defaults, newest first."""
    of_platform = frozenset({PLATFORM})
    return await listing.history(parts.pool, of_platform, (None, None), dimension, before=before, limit=limit)


@router.get("/tenants/{tenant}/limits/history", dependencies=[reads])
async def list_history_of_scope(
    parts: Given,
    tenant: Name,
    place: At,
    *,
    dimension: Dimension | None = None,
    before: Before = INT64_MAX,
    limit: Page = 100,
    below: bool = False,
) -> LimitHistory:
    """List changes of one scope's limits, newest first; with ``below`` also of the scopes inside it."""
    where = listing.within(place, below=below)
    return await listing.history(parts.pool, frozenset({tenant}), where, dimension, before=before, limit=limit)
