"""Which overrides are there, and how did they come about? Read page by page, under no lock."""

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.fields import UNLIMITED, LimitValue
from plimsoll_contracts.limits_api import LimitEntry, LimitHistory, LimitList, LimitVersion, SetLimit
from plimsoll_contracts.scopes import DEFAULTS
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.model import Place
from plimsoll_quota_enforcer.domain.state import Resolved
from plimsoll_quota_enforcer.storage import rows
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.reading import limit_view
from plimsoll_quota_enforcer.storage.recording import PLATFORM

Tenants = frozenset[str] | None
"""Whose limits are shown; None is everybody's, and the defaults' history with them."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Which overrides are wanted; None does not matter."""

    dimension: Dimension | None = None
    mode: Mode | None = None
    expires_before: datetime | None = None


async def overrides(pool: asyncpg.Pool, tenants: Tenants, sought: Sought, after: str, limit: int) -> LimitList:
    """List overrides by tenant, environment, stack and dimension, from the one after ``after`` on."""
    begin = (*after.split("/"), "", "", "")[:4]
    among = None if tenants is None else sorted(tenants)
    found = await pool.fetch(
        QUERIES["list_limits"], *begin, among, sought.dimension, sought.mode, sought.expires_before, limit
    )
    entries = tuple(
        LimitEntry(
            scope=_scope(row),
            dimension=row["dimension"],
            limit=limit_view(Resolved(row["value"], "override", rows.limit(row))),
        )
        for row in found
    )
    last = found[-1] if len(found) == limit else None
    key = ("tenant", "environment", "stack", "dimension")
    return LimitList(limits=entries, next="/".join(last[part] for part in key) if last is not None else None)


async def history(
    pool: asyncpg.Pool,
    tenants: Tenants,
    place: tuple[str | None, str | None],
    dimension: Dimension | None,
    *,
    before: int,
    limit: int,
) -> LimitHistory:
    """List changes of limits, newest first, from the one before ``before`` on.

    Args:
        pool: the database.
        tenants: whose.
        place: of which environment and stack; None is any.
        dimension: of which dimension; None is any.
        before: the id of the last change that was shown.
        limit: how many at most.
    """
    among = None if tenants is None else sorted(tenants)
    found = await pool.fetch(QUERIES["list_limit_history"], before, among, *place, dimension, limit)
    return LimitHistory(
        versions=tuple(_version(row) for row in found), next=found[-1]["id"] if len(found) == limit else None
    )


def within(place: Place, *, below: bool) -> tuple[str | None, str | None]:
    """Say which places are meant: just this one, or also those that lie in it."""
    environment, stack = place
    return (environment or None, stack or None) if below else (environment, stack)


def value_of(cell: int | None) -> LimitValue:
    """Read the value of a limit that is set: no amount is unlimited."""
    return UNLIMITED if cell is None else cell


def _version(row: asyncpg.Record) -> LimitVersion:
    was = SetLimit(
        value=value_of(row["was_value"]),
        mode=row["was_mode"],
        expires_at=row["was_until"],
        reason=row["was_reason"],
    ) if row["was_is_set"] else None  # fmt: skip
    becomes = SetLimit(
        value=value_of(row["value"]), mode=row["mode"], expires_at=row["expires_at"], reason=row["reason"]
    )
    return LimitVersion(
        id=row["id"],
        scope=_scope(row),
        dimension=row["dimension"],
        version=row["version"],
        before=was,
        after=becomes if row["is_set"] else None,
        changed_by=row["changed_by"],
        reason=row["reason"],
        changed_at=row["changed_at"],
        seq=row["seq"],
    )


def _scope(row: asyncpg.Record) -> str:
    if row["tenant"] == PLATFORM:
        return DEFAULTS
    return answers.scope_of(row["tenant"], (row["environment"], row["stack"])).render()
