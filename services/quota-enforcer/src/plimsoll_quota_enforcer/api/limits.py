"""How are limits changed over HTTP?"""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Header

from plimsoll_contracts import codes
from plimsoll_contracts.api import LimitChange, LimitsChanged, LimitsPatch, LimitView
from plimsoll_contracts.dimensions import Dimension, unit_of
from plimsoll_contracts.fields import UNLIMITED, Name, parse_limit
from plimsoll_contracts.quantities import QuantityError
from plimsoll_contracts.scopes import DEFAULTS
from plimsoll_quota_enforcer import metrics
from plimsoll_quota_enforcer.answers import scope_of
from plimsoll_quota_enforcer.api.access import Administrator, Writer, done_by, reads
from plimsoll_quota_enforcer.api.parts import At, Given
from plimsoll_quota_enforcer.storage import reading
from plimsoll_quota_enforcer.storage.limits import Changed, Patch, Wanted, change_defaults, change_limits
from plimsoll_runtime.auth import Principal
from plimsoll_runtime.http import Problem
from plimsoll_streams.transactions import Connection

IfMatch = Annotated[str | None, Header()]

router = APIRouter()


@router.patch("/tenants/{tenant}/limits")
async def patch_limits(
    parts: Given, who: Writer, tenant: Name, place: At, patch: LimitsPatch, *, if_match: IfMatch = None
) -> LimitsChanged:
    """Set and unset limits of one scope, all or none."""

    async def change(connection: Connection) -> Changed:
        read = _patch(who, patch, if_match)
        return await change_limits(connection, parts.cache, parts.policy, tenant=tenant, place=place, patch=read)

    return _changed(scope_of(tenant, place).render(), await parts.write(change))


@router.get("/defaults", dependencies=[reads])
async def read_defaults(parts: Given) -> Mapping[str, Mapping[str, LimitView]]:
    """Show the global defaults."""
    found = await reading.defaults(parts.pool)
    return {"limits": {str(dimension): limit for dimension, limit in found.items()}}


@router.patch("/defaults")
async def patch_defaults(
    parts: Given, who: Administrator, patch: LimitsPatch, if_match: IfMatch = None
) -> LimitsChanged:
    """Set and unset global defaults, all or none. Every tenant is judged by them within seconds."""
    changed = await parts.write(lambda connection: change_defaults(connection, _patch(who, patch, if_match)))
    return _changed(DEFAULTS, changed)


def _patch(who: Principal, body: LimitsPatch, if_match: str | None) -> Patch:
    values: dict[Dimension, Wanted | None] = {}
    for name, value in body.limits.items():
        dimension = read_dimension(name)
        values[dimension] = None if value is None else read_wanted(dimension, value)
    return Patch(
        values, done_by(who, body.by), body.reason, body.mode, body.expires_at, body.force, _version(if_match, body)
    )


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


def _version(if_match: str | None, body: LimitsPatch) -> int | None:
    """Read ``If-Match``: the version of the one dimension that the patch names."""
    if if_match is None or if_match == "*":
        return None
    text = if_match.strip('"')
    if not (text.isascii() and text.isdigit()) or len(text) > 18:  # noqa: PLR2004 - digits of an int64
        raise Problem(codes.LIMIT_VERSION_CONFLICT, f"If-Match {if_match[:40]!r} is no version of a limit")
    if len(body.limits) != 1:
        raise Problem(codes.INVALID_REQUEST, "If-Match goes with exactly one dimension")
    return int(text)


def counted(changed: Changed) -> None:
    """Take note that a change is durable."""
    changed.committed()
    for plan in changed.plans:
        metrics.limit_changes.inc(kind="set" if plan.limit is not None else "unset")


def _changed(scope: str, changed: Changed) -> LimitsChanged:
    counted(changed)
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
    )
