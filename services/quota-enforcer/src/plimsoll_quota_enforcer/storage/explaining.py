"""Why is a figure what it is: every input of it with its source and age, read in one snapshot of the database."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter

import asyncpg

from plimsoll_contracts import codes
from plimsoll_contracts.api import LimitView
from plimsoll_contracts.decisions_api import (
    ChargeShare,
    Explanation,
    FigureAbove,
    FigureExplained,
    HoldShare,
    LimitLevel,
    Measurement,
    Waiting,
)
from plimsoll_contracts.dimensions import Dimension, applies_at, unit_of
from plimsoll_quota_enforcer.answers import scope_of
from plimsoll_quota_enforcer.domain.limits import ceiling, resolve
from plimsoll_quota_enforcer.domain.model import GAUGES, TENANT, Charge, Content, Gauge, GaugeInfo, Hold, Place, chain
from plimsoll_quota_enforcer.domain.state import Policy, Resolved, TenantState
from plimsoll_quota_enforcer.domain.tally import Tally
from plimsoll_quota_enforcer.storage import loading
from plimsoll_quota_enforcer.storage.gates import tenant_gates
from plimsoll_quota_enforcer.storage.history import HistoryRefused
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.reading import limit_view

SHOWN_MAX = 10
_NOTHING_SET = LimitView(value=None, source="none")
_RESERVED = frozenset({Gauge.CPU_RESERVED, Gauge.MEMORY_RESERVED})
_MEMBERS: Mapping[Gauge, Callable[[Content], str]] = {
    Gauge.STACKS: lambda content: "/".join(reversed(content.place)) if content.place[1] else "",
    Gauge.ENVIRONMENTS: lambda content: content.place[0],
    Gauge.APPS: lambda content: content.app,
}


async def explain(
    pool: asyncpg.Pool, policy: Policy, tenant: str, place: Place, dimension: Dimension | None
) -> Explanation:
    """Read every input of one scope's figures, or of those of one dimension.

    Raises:
        HistoryRefused: nothing was ever recorded of the tenant.
    """
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        now: datetime = await connection.fetchval(QUERIES["clock"])
        seq = await connection.fetchval(QUERIES["read_tenant"], tenant)
        if seq is None:
            raise HistoryRefused(codes.NOT_FOUND, "there is no such tenant")
        defaults = await loading.load_defaults(connection)
        state = (await loading.load(connection, {tenant: seq}, defaults, policy))[tenant]
        found = await connection.fetch(QUERIES["ages_of_charges_and_holds"], tenant)
        gates = await tenant_gates(connection, policy, state)
    ages = {row["subject"]: row["changed_at"] for row in found}
    scope = scope_of(tenant, place)
    return Explanation(
        scope=scope.render(),
        tenant=tenant,
        as_of=now,
        figures=tuple(
            _figure(state, place, info, (now, policy), ages)
            for info in GAUGES
            if applies_at(info.dimension, scope) and dimension in (None, info.dimension)
        ),
        gates=gates,
        measurements=tuple(
            Measurement(
                scope=scope_of(tenant, where).render(),
                bytes=each.bytes,
                method=each.method,
                complete=each.complete,
                measured_at=each.at,
            )
            for where, each in sorted(state.measured.items())
            if place in chain(where) and dimension in (None, Dimension.DISK)
        ),
        waiting=tuple(
            Waiting(
                request_id=each.ask.request_id,
                deployment=each.ask.deployment,
                scope=scope_of(tenant, each.ask.place).render(),
                since=each.since,
                until=each.until,
            )
            for each in state.waiters
            if place in chain(each.ask.place)
        ),
    )


def _figure(
    state: TenantState, place: Place, info: GaugeInfo, when: tuple[datetime, Policy], ages: Mapping[str, datetime]
) -> FigureExplained:
    above, *higher = [_above(state, each, info, when) for each in chain(place)]
    charges = [each for each in state.charges.values() if place in chain(each.content.place)]
    holds = [state.holds[name] for name in set(state.open_holds.values())]
    shares = [_hold(state, each, (place, info), ages) for each in holds if place in chain(each.target.place)]
    adding = sorted((each for each in shares if each.adds), key=attrgetter("adds"), reverse=True)
    counted = _charges(state, charges, info, ages)
    return FigureExplained(
        dimension=info.dimension,
        basis=info.basis,
        unit=unit_of(info.dimension),
        ceiling=above.ceiling,
        used=above.used,
        held=above.held,
        headroom=above.headroom,
        levels=_levels(state, place, info.dimension, when[0]),
        charges=tuple(counted[:SHOWN_MAX]),
        charges_in_all=len(counted),
        holds=tuple(adding[:SHOWN_MAX]),
        holds_in_all=len(adding),
        members=_members(info.gauge, (*(each.content for each in charges), *(each.target for each in holds)), place),
        above=tuple(higher),
    )


def _above(state: TenantState, place: Place, info: GaugeInfo, when: tuple[datetime, Policy]) -> FigureAbove:
    resolved = resolve(state, place, when[0]).get(info.dimension)
    top, usage = ceiling(resolved, info, when[1].multipliers), state.tally.usage(place)
    used, total = usage.used[info.gauge], usage.total[info.gauge]
    return FigureAbove(
        scope=scope_of(state.tenant, place).render(),
        limit=limit_view(resolved),
        ceiling=top,
        used=used,
        held=total - used,
        headroom=top - total if top is not None else None,
    )


def _levels(state: TenantState, place: Place, dimension: Dimension, now: datetime) -> tuple[LimitLevel, ...]:
    """Say what each level that applies here sets, also where that is nothing, or something that has ended."""
    override = state.limits.get(place, {}).get(dimension)
    said: list[tuple[str, Resolved | None]] = [
        ("override", Resolved(override.value, "override", override) if override is not None else None)
    ]
    if place == TENANT:
        plan, default = state.entitlement, state.defaults.get(dimension)
        given = plan is not None and dimension in plan.limits
        said += [
            ("plan", Resolved(plan.limits[dimension], "plan") if plan is not None and given else None),
            ("default", Resolved(default.value, "default", default) if default is not None else None),
        ]
    source = limit_view(resolve(state, place, now).get(dimension)).source
    return tuple(
        LimitLevel(level=level, holds=level == source, limit=limit_view(each) if each is not None else _NOTHING_SET)
        for level, each in said
    )


def _charges(
    state: TenantState, charges: Iterable[Charge], info: GaugeInfo, ages: Mapping[str, datetime]
) -> list[ChargeShare]:
    """Return what each deployment counts for, the largest first; nothing for what is counted by members."""
    if info.gauge in _MEMBERS:
        return []
    found = []
    for charge in charges:
        content = charge.content
        f = content.footprint
        raw = (f.cpu_reserved, f.cpu_limit, f.memory_reserved, f.memory_limit, f.disk, f.vapps)[info.gauge]
        counts = f.charged(content.multipliers)[info.gauge]
        if counts:
            found.append(
                ChargeShare(
                    deployment=charge.deployment,
                    revision=charge.revision,
                    scope=scope_of(state.tenant, content.place).render(),
                    counts=counts,
                    raw=raw,
                    multiplier_milli=content.multipliers.reservation_milli if info.gauge in _RESERVED else 1000,
                    since=ages[f"charge {charge.deployment}"],
                )
            )
    return sorted(found, key=attrgetter("counts"), reverse=True)


def _hold(state: TenantState, hold: Hold, figure: tuple[Place, GaugeInfo], ages: Mapping[str, datetime]) -> HoldShare:
    place, info = figure
    bound = {name: state.charges[name] for name in hold.members if name in state.charges}
    alone = Tally.fold(bound, [hold], {}).usage(place)
    return HoldShare(
        hold=hold.id,
        deployment=hold.deployment,
        scope=scope_of(state.tenant, hold.target.place).render(),
        adds=alone.total[info.gauge] - alone.used[info.gauge],
        since=ages[f"hold {hold.id}"],
        expires_at=hold.expires_at,
    )


def _members(gauge: Gauge, contents: Sequence[Content], place: Place) -> tuple[str, ...]:
    name = _MEMBERS.get(gauge)
    if name is None:
        return ()
    found = sorted({name(each) for each in contents if place in chain(each.place)} - {""})
    return tuple(found[:SHOWN_MAX])
