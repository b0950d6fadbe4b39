"""What may whoever asks do here: a scope for every route, and no tenant but theirs."""

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer, SecurityScopes

from plimsoll_contracts import codes
from plimsoll_contracts.access import Permission
from plimsoll_runtime.auth import Principal, forbidden, principal_of
from plimsoll_runtime.http import Problem

_bearer = HTTPBearer(auto_error=False, bearerFormat="JWT", scheme_name="token", description="See docs/http.md.")


async def _may(needed: SecurityScopes, request: Request, _documented: Annotated[object, Depends(_bearer)]) -> Principal:
    """Return who asks, who may do this; the tenant in the path, where there is one, is theirs.

    Raises:
        Problem: 403 without the scope, or with less than all tenants where all are concerned;
            404 for a tenant that is not theirs, as if there were none.
    """
    principal = principal_of(request)
    for permission in needed.scopes:
        if permission not in principal.scopes:
            raise forbidden(permission)
    if Permission.ADMIN in needed.scopes:
        everywhere(principal)
    if (tenant := request.path_params.get("tenant")) is not None:
        own(principal, tenant)
    return principal


def own(principal: Principal, tenant: str) -> None:
    """Let through what is about a tenant of theirs; for routes whose tenant is not in the path.

    Raises:
        Problem: 404 in the same words whether or not there is such a tenant.
    """
    if not principal.may_see(tenant):
        raise Problem(codes.NOT_FOUND, "there is no such tenant")


def everywhere(principal: Principal) -> None:
    """Let through what concerns the whole platform; for routes of which only a part does.

    Raises:
        Problem: whoever asks is no administrator, or not of all tenants.
    """
    if Permission.ADMIN not in principal.scopes or principal.tenants is not None:
        raise forbidden(Permission.ADMIN, "and all tenants: it concerns the whole platform")


def done_by(principal: Principal, named: str | None) -> str:
    """Tell who did what is written down: the token's subject, or whom the body names where authentication is off.

    Raises:
        Problem: the body names somebody although the token does, or nobody although it must.
    """
    if principal.subject is not None:
        if named is not None:
            raise Problem(codes.BY_NOT_TAKEN, "body.by: the token says who does it")
        return principal.subject
    if named is None:
        raise Problem(codes.INVALID_REQUEST, "body.by: Field required: authentication is off, so nothing else says who")
    return named


reads = Security(_may, scopes=[Permission.READ])
writes = Security(_may, scopes=[Permission.WRITE])
asks = Security(_may, scopes=[Permission.ASK])
administers = Security(_may, scopes=[Permission.ADMIN])

Reader = Annotated[Principal, reads]
Writer = Annotated[Principal, writes]
Asker = Annotated[Principal, asks]
Administrator = Annotated[Principal, administers]
