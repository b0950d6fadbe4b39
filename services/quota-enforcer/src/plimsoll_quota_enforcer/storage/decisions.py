"""Which decisions were made: pages of the log in either direction, and one decision with all it rests on."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg

from plimsoll_contracts.decisions_api import DecisionDetail, DecisionLine, DecisionList
from plimsoll_contracts.enforcement import EnforcementReply, Gate, HoldState, HoldView, Verb
from plimsoll_quota_enforcer.answers import scope_of
from plimsoll_quota_enforcer.domain.model import TENANT, Place
from plimsoll_quota_enforcer.storage.queries import QUERIES

LOOKED_AT_MAX = 1000
"""Decisions looked at for one page where only some of them are wanted."""

_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
_END = datetime(2999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where in the log a page ended."""

    decided_at: datetime
    tenant: str = ""
    request_id: str = ""

    def render(self) -> str:
        """Write it as callers hand it back; no name and no id has a tilde."""
        return f"{self.decided_at.isoformat()}~{self.tenant}~{self.request_id}"

    @classmethod
    def read(cls, text: str) -> "Cursor":
        """Read what ``render`` wrote.

        Raises:
            ValueError: it is nothing of ours.
        """
        at, tenant, request_id = text.split("~")
        return cls(datetime.fromisoformat(at).astimezone(UTC), tenant, request_id)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which decisions: None and empty are all of them. ``since`` is included, ``until`` is not."""

    tenant: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    verb: Verb | None = None
    code: str | None = None
    allowed: bool | None = None
    deployment: str | None = None
    place: Place = TENANT

    @property
    def is_filter(self) -> bool:
        """Whether some of those in the span of time are left out."""
        return (self.verb, self.code, self.allowed, self.deployment, self.place) != (None, None, None, None, TENANT)


def statement(*, of_tenant: bool, oldest_first: bool) -> str:
    """Return the statement of a page: each has an index whose order it follows."""
    columns = ["decided_at", "request_id"] if of_tenant else ["decided_at", "tenant", "request_id"]
    sign, way = (">", "") if oldest_first else ("<", " DESC")
    # Parameters are the same in all four; what one of them does not need it must name.
    key = "($6, $7)" if of_tenant else "($6, $1, $7)"
    return QUERIES["page_decisions"].format(
        whose="tenant = $1" if of_tenant else "true",
        beyond=f"({', '.join(columns)}) {sign} {key}",
        order=", ".join(f"{column}{way}" for column in columns),
    )


async def page(
    pool: asyncpg.Pool, wanted: Wanted, after: Cursor | None, limit: int, *, oldest_first: bool = False
) -> DecisionList:
    """Read one page, newest first or oldest first; ``after`` is the ``next`` of the page before."""
    first, last = wanted.since or _BEGINNING, wanted.until or _END
    if after is None:
        after = Cursor(first if oldest_first else last)
    elif oldest_first:
        first = max(first, after.decided_at)
    else:
        last = min(last, after.decided_at + timedelta(microseconds=1))
    of_tenant = wanted.tenant is not None
    looked_at = max(LOOKED_AT_MAX, limit) if wanted.is_filter else limit
    found = await pool.fetch(
        statement(of_tenant=of_tenant, oldest_first=oldest_first),
        wanted.tenant if of_tenant else after.tenant,
        first.date(),
        last.date(),
        first,
        last,
        after.decided_at,
        after.request_id,
        looked_at,
        wanted.verb,
        wanted.code,
        wanted.allowed,
        wanted.deployment,
        *wanted.place,
    )
    lines: list[DecisionLine] = []
    seen = None
    for row in found:
        if len(lines) == limit:
            break
        seen = row
        if row["matches"]:
            lines.append(_line(row))
    ended = len(found) < looked_at and (not found or seen is found[-1])
    more = Cursor(seen["decided_at"], seen["tenant"], seen["request_id"]) if seen is not None and not ended else None
    return DecisionList(decisions=tuple(lines), next=more.render() if more is not None else None)


def _line(row: asyncpg.Record) -> DecisionLine:
    return DecisionLine(
        tenant=row["tenant"],
        request_id=row["request_id"],
        verb=row["verb"],
        scope=scope_of(row["tenant"], (row["environment"], row["stack"])).render(),
        deployment=row["deployment"],
        allowed=row["allowed"],
        would_deny=row["would_deny"],
        code=row["code"],
        fail_open=tuple(Gate(gate) for gate in row["fail_open"]),
        message=row["message"] or "",
        decided_at=row["decided_at"],
    )


async def show(pool: asyncpg.Pool, tenant: str, request_id: str) -> DecisionDetail | None:
    """Read one decision, or None where none is kept under that id."""
    row = await pool.fetchrow(QUERIES["show_decision"], tenant, request_id)
    if row is None:
        return None
    asked, reply = json.loads(row["request"]), EnforcementReply.model_validate_json(row["reply"])
    place = (
        asked.get("environment") or row["hold_environment"] or "",
        asked.get("stack") or row["hold_stack"] or "",
    )
    hold = None
    if row["hold_state"] is not None:
        hold = HoldView(
            id=row["hold"],
            deployment=row["hold_deployment"],
            state=HoldState(row["hold_state"]),
            expires_at=row["hold_expires_at"],
        )
    return DecisionDetail(
        tenant=tenant,
        request_id=request_id,
        verb=row["verb"],
        scope=scope_of(tenant, place).render(),
        deployment=asked.get("deployment") or row["hold_deployment"],
        allowed=row["allowed"],
        would_deny=reply.would_deny,
        code=row["code"],
        fail_open=tuple(Gate(gate) for gate in row["fail_open"]),
        message=reply.message,
        decided_at=row["decided_at"],
        request=asked,
        reply=reply,
        seq=row["seq"],
        entitlement_version=row["entitlement_version"],
        present_entitlement_version=row["present_entitlement_version"],
        defaults_version=row["defaults_version"],
        present_defaults_version=row["present_defaults_version"],
        hold_now=hold,
    )
