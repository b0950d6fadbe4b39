"""How are limits changed over HTTP?"""

import re
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Header, Response

from plimsoll_contracts import codes
from plimsoll_contracts.api import DefaultLimits, LimitChange, LimitsChanged, LimitsPatch, ScopeStatus
from plimsoll_contracts.dimensions import Dimension, unit_of
from plimsoll_contracts.fields import UNLIMITED, Name, parse_limit
from plimsoll_contracts.quantities import QuantityError
from plimsoll_contracts.scopes import DEFAULTS
from plimsoll_quota_enforcer import metrics
from plimsoll_quota_enforcer.answers import scope_of
from plimsoll_quota_enforcer.api.access import Administrator, Writer, done_by, reads
from plimsoll_quota_enforcer.api.once import MaybeOnce
from plimsoll_quota_enforcer.api.parts import At, Given
from plimsoll_quota_enforcer.storage import reading
from plimsoll_quota_enforcer.storage.limits import Changed, Patch, Wanted, change_defaults, change_limits
from plimsoll_runtime.auth import Principal
from plimsoll_runtime.http import Problem
from plimsoll_streams.transactions import Connection

IfMatch = Annotated[str | None, Header()]

Tagged = TypeVar("Tagged", DefaultLimits, LimitsChanged, ScopeStatus)

router = APIRouter()


@router.patch("/tenants/{tenant}/limits")
async def patch_limits(
    parts: Given,
    who: Writer,
    tenant: Name,
    place: At,
    patch: LimitsPatch,
    *,
    once: MaybeOnce,
    response: Response,
    if_match: IfMatch = None,
) -> LimitsChanged:
    """Set and unset limits of one scope, all or none."""
    scope = scope_of(tenant, place).render()

    async def change(connection: Connection) -> Changed:
        read = _patch(who, patch, if_match)
        return await change_limits(connection, parts.cache, parts.policy, tenant=tenant, place=place, patch=read)

    changed = await parts.write(change, once=once, told=lambda changed: _view(scope, changed))
    counted(changed)
    return tagged(_view(scope, changed), response)


@router.get("/defaults", dependencies=[reads])
async def read_defaults(parts: Given, response: Response) -> DefaultLimits:
    """Show the global defaults."""
    return tagged(await reading.defaults(parts.pool), response)


@router.patch("/defaults")
async def patch_defaults(
    parts: Given,
    who: Administrator,
    patch: LimitsPatch,
    *,
    once: MaybeOnce,
    response: Response,
    if_match: IfMatch = None,
) -> LimitsChanged:
    """Set and unset global defaults, all or none. Every tenant is judged by them within seconds."""

    async def change(connection: Connection) -> Changed:
        return await change_defaults(connection, parts.policy, _patch(who, patch, if_match))

    changed = await parts.write(change, once=once, told=lambda changed: _view(DEFAULTS, changed))
    counted(changed)
    return tagged(_view(DEFAULTS, changed), response)


def tagged(view: Tagged, response: Response) -> Tagged:
    """Give an answer the tag of the limits in it, for ``If-Match``."""
    response.headers["ETag"] = f'"{view.limits_version}"'
    return view


def _patch(who: Principal, body: LimitsPatch, if_match: str | None) -> Patch:
    values: dict[Dimension, Wanted | None] = {}
    for name, value in body.limits.items():
        dimension = read_dimension(name)
        values[dimension] = None if value is None else read_wanted(dimension, value)
    return Patch(values, done_by(who, body.by), body.reason, body.mode, body.expires_at, body.force, _matched(if_match))


def read_dimension(name: str) -> Dimension:
    """Read the name of a dimension.

    Raises:
        Problem: there is none such.
    """
    try:
        return Dimension(name)
    except ValueError:
        raise Problem(codes.DIMENSION_UNKNOWN, f"{name!r} is none of {', '.join(Dimension)}") from None


def read_wanted(dimension: Dimension, value: int | str) -> Wanted:
    """Read the value of a limit.

    Raises:
        Problem: it is neither an amount of this dimension nor ``unlimited``.
    """
    try:
        limit = parse_limit(dimension, value)
    except QuantityError as error:
        raise Problem(codes.INVALID_AMOUNT[unit_of(dimension)], str(error)) from None
    return Wanted(None if limit == UNLIMITED else limit)


def _matched(if_match: str | None) -> int | Literal["*"] | None:
    """Read ``If-Match``: one strong tag, as an ``ETag`` here was."""
    if if_match is None or if_match == "*":
        return "*" if if_match else None
    if not re.fullmatch('"[0-9]{1,18}"', if_match):
        raise Problem(codes.LIMIT_VERSION_CONFLICT, f"If-Match {if_match[:40]!r} is no ETag of limits")
    return int(if_match.strip('"'))


def counted(changed: Changed) -> None:
    """Take note that a change is durable."""
    changed.committed()
    for plan in changed.plans:
        metrics.limit_changes.inc(kind="set" if plan.limit is not None else "unset")


def _view(scope: str, changed: Changed) -> LimitsChanged:
    return LimitsChanged(
        scope=scope,
        changes=tuple(
            LimitChange(
                dimension=plan.dimension,
                before=reading.limit_view(plan.before),
                after=reading.limit_view(plan.after),
                warnings=plan.warnings,
            )
            for plan in changed.plans
        ),
        seq=changed.seq,
        limits_version=changed.tag,
    )
