"""Who is known, and how do they stand?"""

from fastapi import APIRouter, Response

from plimsoll_contracts.api import ScopeList, ScopeStatus
from plimsoll_contracts.fields import Name
from plimsoll_quota_enforcer.answers import scope_of
from plimsoll_quota_enforcer.api.access import Reader, reads
from plimsoll_quota_enforcer.api.limits import tagged
from plimsoll_quota_enforcer.api.parts import AfterName, At, Given, Page
from plimsoll_quota_enforcer.storage import reading

router = APIRouter()


@router.get("/tenants")
async def list_tenants(parts: Given, who: Reader, after: AfterName = "", limit: Page = 100) -> ScopeList:
    """List tenants by name, those of the token."""
    found = await reading.tenants(parts.pool, after, limit, among=who.tenants)
    return ScopeList(scopes=tuple(found), next=found[-1] if len(found) == limit else None)


@router.get("/tenants/{tenant}/scopes", dependencies=[reads])
async def list_scopes(parts: Given, tenant: Name, after: AfterName | None = None, limit: Page = 100) -> ScopeList:
    """List a tenant's scopes that have usage or limits; ``after`` is what ``next`` said."""
    environment, _, stack = (after or "").partition("/")
    begin = (environment, stack) if after is not None else None
    found = await reading.places(parts.pool, tenant, begin, limit)
    rendered = tuple(scope_of(tenant, place).render() for place in found)
    return ScopeList(scopes=rendered, next="/".join(found[-1]) if len(found) == limit else None)


@router.get("/tenants/{tenant}/status", dependencies=[reads])
async def read_status(parts: Given, tenant: Name, place: At, response: Response) -> ScopeStatus:
    """Show limits, usage and gates of one scope. The ETag is of the limits that are set here, for ``If-Match``."""
    return tagged(await reading.scope_status(parts.pool, parts.policy, tenant, place), response)
