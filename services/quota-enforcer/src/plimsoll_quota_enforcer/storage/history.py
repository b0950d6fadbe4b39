"""What did a scope use at an instant: read from what was kept when days were dropped, and every change since."""

from datetime import datetime

import asyncpg

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.decisions_api import UsageAt, UsageThen
from plimsoll_contracts.dimensions import applies_at, unit_of
from plimsoll_quota_enforcer.answers import scope_of
from plimsoll_quota_enforcer.domain.history import state_after
from plimsoll_quota_enforcer.domain.model import GAUGES, Place
from plimsoll_quota_enforcer.domain.state import TenantState
from plimsoll_quota_enforcer.storage import rows
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_streams.transactions import Connection

SECONDS_MAX = 8
"""How long the database may look for an answer, about four million changes; then the question is refused."""


class HistoryRefused(Exception):
    """The past cannot tell: an answer would be a guess."""

    def __init__(self, code: Code, detail: str) -> None:
        """Say why."""
        super().__init__(detail)
        self.code = code
        self.detail = detail


async def hold_history(connection: Connection) -> datetime:
    """Keep days from being dropped while this transaction reads, bound its time, and return the database's clock.

    First of all: the snapshot must be taken after the lock, or it could miss what a dropped day came to.
    """
    await connection.execute("LOCK TABLE changes, decisions IN ACCESS SHARE MODE")
    await connection.execute(f"SET LOCAL statement_timeout = '{SECONDS_MAX}s'")
    now: datetime = await connection.fetchval(QUERIES["clock"])
    return now


async def kept_from(connection: Connection) -> datetime:
    """Return the earliest instant that history can tell of."""
    found: datetime = await connection.fetchval(QUERIES["history_kept_from"])
    return found


async def usage_at(pool: asyncpg.Pool, tenant: str, place: Place, at: datetime | None) -> UsageAt:
    """Read usage of one scope at an instant, or now.

    The database reads every change of the tenant that is kept up to then; what comes back are its live charges and
    open holds at that time.

    Raises:
        HistoryRefused: it lies before what is kept or known, or in the future, or there is too much to read.
    """
    try:
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            now = await hold_history(connection)
            begin = await known_then(connection, tenant, at or now, now)
            state = await state_at(connection, tenant, at or now)
    except asyncpg.QueryCanceledError:
        detail = f"the changes of {tenant} up to then were not read within {SECONDS_MAX} s"
        raise HistoryRefused(codes.HISTORY_TOO_LONG, detail) from None
    usage = state.tally.usage(place)
    return UsageAt(
        scope=scope_of(tenant, place).render(),
        tenant=tenant,
        at=at or now,
        dimensions=tuple(
            UsageThen(
                dimension=info.dimension,
                basis=info.basis,
                unit=unit_of(info.dimension),
                used=usage.used[info.gauge],
                held=usage.total[info.gauge] - usage.used[info.gauge],
            )
            for info in GAUGES
            if applies_at(info.dimension, scope_of(tenant, place))
        ),
        deployments=sum(_within(place, charge.content.place) for charge in state.charges.values()),
        open_holds=sum(_within(place, hold.target.place) for hold in state.holds.values()),
        kept_from=begin,
    )


async def known_then(connection: Connection, tenant: str, at: datetime, now: datetime) -> datetime:
    """Make sure that the past can tell of an instant, and return the earliest of which it can.

    Raises:
        HistoryRefused: it cannot.
    """
    if at > now:
        raise HistoryRefused(codes.INVALID_REQUEST, f"{at.isoformat()} lies in the future")
    begin = await kept_from(connection)
    if at < begin:
        raise HistoryRefused(codes.BEFORE_RETENTION, f"history is kept from {begin.isoformat()} on")
    since = await connection.fetchval(QUERIES["known_since"], tenant)
    if since is None:
        raise HistoryRefused(codes.NOT_FOUND, "there is no such tenant")
    if at < since:
        raise HistoryRefused(codes.NOTHING_KNOWN_THEN, f"{tenant} is known since {since.isoformat()}")
    return begin


async def state_at(connection: Connection, tenant: str, at: datetime) -> TenantState:
    """Fold what a tenant had at an instant that is kept."""
    found = await connection.fetch(QUERIES["history_until"], tenant, at, at.date(), False)  # noqa: FBT003  SQL's
    return state_after(tenant, map(rows.change, found))


def _within(place: Place, other: Place) -> bool:
    return place[0] in ("", other[0]) and place[1] in ("", other[1])
