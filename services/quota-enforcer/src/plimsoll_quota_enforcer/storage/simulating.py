"""What would other limits have done: the log of decisions read in one snapshot and decided again, a bite at a time."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import asyncpg

from plimsoll_contracts import codes
from plimsoll_contracts.decisions_api import Exceeded, Fared, Simulated
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.requests import RequestInvalid
from plimsoll_quota_enforcer.answers import scope_of
from plimsoll_quota_enforcer.domain.compose import ComposeRefused
from plimsoll_quota_enforcer.domain.declare import Declaration
from plimsoll_quota_enforcer.domain.history import state_after
from plimsoll_quota_enforcer.domain.model import Ask, Hold, Limit, Place, ReplyTo
from plimsoll_quota_enforcer.domain.multipliers import MultiplierOutOfBounds
from plimsoll_quota_enforcer.domain.simulate import (
    Proposal,
    Recorded,
    Relimited,
    Replay,
    Report,
    Told,
    Verdict,
    over_now,
)
from plimsoll_quota_enforcer.domain.state import Policy, TenantState, Violation
from plimsoll_quota_enforcer.requests import Decoder
from plimsoll_quota_enforcer.storage import loading, rows
from plimsoll_quota_enforcer.storage.history import SECONDS_MAX, HistoryRefused, hold_history, known_then
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.recording import PLATFORM
from plimsoll_streams.transactions import Connection

DECISIONS_MAX = 100_000
TENANTS_MAX = 1000
BITE = 10
"""Events after which the loop has its turn: a few milliseconds, so that no verdict waits for a simulation."""
_LARGE = 16_384
"""Characters from which on a request, which has a compose file then, is read beside the loop."""
_NOWHERE = ReplyTo("", None, None)

_one_at_a_time = asyncio.Lock()


@dataclass(frozen=True, slots=True)
class Tried:
    """Which limits are tried, on whom, from when on."""

    since: datetime
    defaults: Declaration = field(default_factory=dict)
    scopes: Mapping[str, Mapping[Place, Declaration]] = field(default_factory=dict)


@dataclass
class _Sum:
    """What the replays of several tenants come to."""

    total: Report = field(default_factory=Report)
    tenants: int = 0
    refusals: list[Fared] = field(default_factory=list)
    admissions: list[Fared] = field(default_factory=list)
    over: list[Exceeded] = field(default_factory=list)
    cut_at: datetime | None = None

    def add(self, tenant: str, report: Report) -> None:
        """Add one tenant's."""
        self.tenants += 1
        for name in ("replayed", "facts", "refused_then", "refused_proposed", "newly_refused", "newly_allowed",
                     "left_out", "not_replayed"):  # fmt: skip
            setattr(self.total, name, getattr(self.total, name) + getattr(report, name))
        self.total.differs.update(report.differs)
        self.refusals += [_fared(tenant, verdict) for verdict in report.refusals]
        self.admissions += [_fared(tenant, verdict) for verdict in report.admissions]


async def simulate(pool: asyncpg.Pool, policy: Policy, tried: Tried) -> Simulated:
    """Decide again what was decided since then, as it was and under the limits that are tried. One at a time.

    At most ``DECISIONS_MAX`` decisions of ``TENANTS_MAX`` tenants, in the order of tenants and of their histories;
    where there are more, that is told. What is read is one snapshot.

    Raises:
        HistoryRefused: it begins before what is kept or known, or there is too much to read.
    """
    came_to = _Sum()
    try:
        async with (
            _one_at_a_time,
            pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            now = await hold_history(connection)
            defaults = await loading.load_defaults(connection)
            tenants = await _tenants(connection, tried)
            if len(tenants) > TENANTS_MAX:
                came_to.cut_at = tried.since
            for tenant in tenants[:TENANTS_MAX]:
                left = DECISIONS_MAX - came_to.total.replayed
                if left <= 0:
                    came_to.cut_at = came_to.cut_at or tried.since
                    break
                proposal = Proposal(tried.scopes.get(tenant, {}), tried.defaults)
                await known_then(connection, tenant, max(tried.since, await _begin(connection, tenant)), now)
                present = (await loading.load(connection, {tenant: 0}, defaults, policy))[tenant]
                replay = await _replay(connection, policy, tried.since, present, proposal)
                cut_at = await _feed(connection, policy, (tenant, tried.since), replay, left)
                came_to.cut_at = cut_at or came_to.cut_at
                came_to.add(tenant, replay.report)
                came_to.over += [_exceeded(tenant, each) for each in over_now(present, proposal, now, policy)]
    except asyncpg.QueryCanceledError:
        raise HistoryRefused(codes.HISTORY_TOO_LONG, f"it was not read within {SECONDS_MAX} s") from None
    return _told(came_to, tried.since, now)


async def _tenants(connection: Connection, tried: Tried) -> Sequence[str]:
    """Return whom it concerns: those named, or with defaults all; one more than are replayed where there are more."""
    if not tried.defaults:
        return sorted(tried.scopes)
    found = await connection.fetch(QUERIES["list_tenants"], "", TENANTS_MAX + 1, None)
    # Those that are named come first: nobody asks about them to have them cut off.
    return [*sorted(tried.scopes), *(row["tenant"] for row in found if row["tenant"] not in tried.scopes)]


async def _begin(connection: Connection, tenant: str) -> datetime:
    """Return since when a tenant is known: before that it had nothing, which is no reason not to replay the rest."""
    since: datetime | None = await connection.fetchval(QUERIES["known_since"], tenant)
    if since is None:
        raise HistoryRefused(codes.NOT_FOUND, "there is no such tenant")
    return since


async def _replay(
    connection: Connection, policy: Policy, since: datetime, present: TenantState, proposal: Proposal
) -> Replay:
    """Begin a replay with what the tenant had then, under the limits of then, and its present plan."""
    tenant, day = present.tenant, since.date()
    steps = await connection.fetch(QUERIES["history_until"], tenant, since, day, True)  # noqa: FBT003  SQL's
    expiries = await connection.fetch(QUERIES["hold_expiries"], tenant, since)
    had = state_after(tenant, map(rows.change, steps), {row["request_id"]: row["expires_at"] for row in expiries})
    older = [rows.charge(row) for row in await connection.fetch(QUERIES["tombstones_older_than"], tenant, since)]
    named = await connection.fetch(QUERIES["closed_holds_named_later"], tenant, since, day)
    places: dict[Place, dict[Dimension, Limit]] = {}
    for row in await connection.fetch(QUERIES["limits_of_then"], tenant, since):
        if row["is_set"]:
            places.setdefault((row["environment"], row["stack"]), {})[Dimension(row["dimension"])] = _limit(row)
    defaults = {
        Dimension(row["dimension"]): _limit(row)
        for row in await connection.fetch(QUERIES["limits_of_then"], PLATFORM, since)
        if row["is_set"]
    }
    relimited = [_relimited(row) for row in await connection.fetch(QUERIES["limits_since"], [tenant, PLATFORM], since)]
    charges = {charge.deployment: charge for charge in older} | dict(had.charges)
    state = replace(had, charges=charges, limits=places, defaults=defaults, entitlement=present.entitlement)
    return Replay(state, {row["hold"]: _closed(row) for row in named}, relimited, proposal, policy)


async def _feed(
    connection: Connection, policy: Policy, log: tuple[str, datetime], replay: Replay, left: int
) -> datetime | None:
    """Play at most so many decisions, with the facts between them; return where it was cut, if it was."""
    tenant, since = log
    decoder, asked = Decoder(policy), (tenant, since, since.date())
    decisions = aiter(connection.cursor(QUERIES["replay_decisions"], *asked, left + 1, prefetch=200))
    facts = aiter(connection.cursor(QUERIES["replay_facts"], *asked, prefetch=200))
    decision, fact = await anext(decisions, None), await anext(facts, None)
    played = 0
    while decision is not None or fact is not None:
        if decision is not None and (fact is None or decision["seq"] < fact["seq"]):
            if replay.report.replayed == left:
                return _at(decision)
            ask = await _asked(decoder, decision["request"])
            if ask is None:
                replay.skip(allowed=decision["allowed"])
            else:
                replay.feed(_recorded(decision, ask))
            decision = await anext(decisions, None)
        elif fact is not None:
            replay.feed(Told(rows.change(fact), _at(fact)))
            fact = await anext(facts, None)
        played += 1
        if played % BITE == 0:
            await asyncio.sleep(0)
    return None


async def _asked(decoder: Decoder, request: str) -> Ask | None:
    try:
        if len(request) < _LARGE:
            return decoder.again(request, _NOWHERE)
        return await asyncio.to_thread(decoder.again, request, _NOWHERE)
    except (RequestInvalid, ComposeRefused, MultiplierOutOfBounds):  # settings have changed since
        return None


def _at(row: asyncpg.Record) -> datetime:
    at: datetime = row["at"]
    return at


def _recorded(row: asyncpg.Record, ask: Ask) -> Recorded:
    return Recorded(ask, row["at"], row["seq"], row["allowed"], row["code"], row["entitlement_version"])


def _closed(row: asyncpg.Record) -> Hold:
    change = rows.change(row)
    hold = state_after("", [change], {change.hold: row["expires_at"]}).holds[change.hold]
    return replace(hold, settled_revision=row["settled_revision"], settled_outcome=row["settled_outcome"])


def _limit(row: asyncpg.Record) -> Limit:
    return Limit(
        row["value"], Mode(row["mode"]), row["version"], row["expires_at"], row["changed_by"], row["changed_at"]
    )


def _relimited(row: asyncpg.Record) -> Relimited:
    place, dimension = (row["environment"], row["stack"]), Dimension(row["dimension"])
    return Relimited(place, dimension, _limit(row) if row["is_set"] else None, row["changed_at"], row["seq"])


def _exceeded(tenant: str, violation: Violation) -> Exceeded:
    return Exceeded(
        scope=scope_of(tenant, violation.place).render(),
        dimension=violation.info.dimension,
        basis=violation.info.basis,
        limit=violation.ceiling,
        used=violation.used,
        held=violation.held,
        asked=violation.asked,
        over_by=violation.asked - violation.headroom,
    )


def _fared(tenant: str, verdict: Verdict) -> Fared:
    return Fared(
        decided_at=verdict.recorded.at,
        tenant=tenant,
        request_id=verdict.recorded.ask.request_id,
        scope=scope_of(tenant, verdict.place).render(),
        deployment=verdict.deployment,
        code=verdict.code,
        over=tuple(_exceeded(tenant, each) for each in verdict.violations),
    )


def _told(came_to: _Sum, since: datetime, now: datetime) -> Simulated:
    total = came_to.total
    return Simulated(
        since=since,
        as_of=now,
        tenants=came_to.tenants,
        replayed=total.replayed,
        facts=total.facts,
        refused_then=total.refused_then,
        refused_proposed=total.refused_proposed,
        newly_refused=total.newly_refused,
        newly_allowed=total.newly_allowed,
        refusals=tuple(came_to.refusals),
        admissions=tuple(came_to.admissions),
        left_out=total.left_out,
        not_replayed=total.not_replayed,
        differs=dict(total.differs),
        cut=came_to.cut_at is not None,
        replayed_until=came_to.cut_at,
        over_now=tuple(came_to.over),
    )
