"""What is shown of a scope: its limits and usage, read as they stand, under no lock."""

from datetime import datetime

import asyncpg

from plimsoll_contracts.api import DefaultLimits, DimensionStatus, GateStatus, LimitView, ScopeStatus
from plimsoll_contracts.dimensions import Dimension, applies_at, unit_of
from plimsoll_contracts.enforcement import Gate
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain import gates
from plimsoll_quota_enforcer.domain.limits import ceiling, resolve
from plimsoll_quota_enforcer.domain.model import GAUGES, TENANT, Gauge, Place
from plimsoll_quota_enforcer.domain.state import Passage, Policy, Resolved, TenantState
from plimsoll_quota_enforcer.storage import loading, rows
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.recording import PLATFORM, limits_tag, told
from plimsoll_streams.transactions import Connection

_GAUGES = len(Gauge)


async def scope_status(pool: asyncpg.Pool, policy: Policy, tenant: str, place: Place) -> ScopeStatus:
    """Read one scope's limits, usage and gates in one snapshot of the database."""
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        now = await connection.fetchval("SELECT clock_timestamp()")
        seq = await connection.fetchval(QUERIES["read_tenant"], tenant)
        state = await _rules(connection, tenant, seq or 0)
        usage = await connection.fetchrow(QUERIES["read_usage"], tenant, *place)
        holds = await connection.fetchval(QUERIES["count_open_holds"], tenant, *place)
        deployments = await connection.fetchval(QUERIES["count_deployments"], tenant, *place)
        tag = await limits_tag(connection, tenant, place)
    entitlement = state.entitlement
    return ScopeStatus(
        scope=answers.scope_of(tenant, place).render(),
        tenant=tenant,
        known=seq is not None,
        dimensions=_dimensions(state, place, usage, now, policy),
        gates=gate_states(state, policy),
        plan=entitlement.plan if entitlement is not None else None,
        entitlement_version=entitlement.version if entitlement is not None else None,
        entitlement_at=entitlement.at if entitlement is not None else None,
        open_holds=holds,
        deployments=deployments,
        seq=seq or 0,
        limits_version=tag,
        as_of=now,
    )


async def _rules(connection: Connection, tenant: str, seq: int) -> TenantState:
    """Load what a tenant is judged by, without what it has."""
    limits = rows.limits_by_place(await connection.fetch(QUERIES["load_limits"], [tenant]))
    entitlement = await connection.fetchrow(QUERIES["load_entitlements"], [tenant])
    return TenantState(
        tenant,
        seq,
        limits=limits.get(tenant, {}),
        defaults=await loading.load_defaults(connection),
        entitlement=rows.entitlement(entitlement) if entitlement is not None else None,
    )


def _dimensions(
    state: TenantState, place: Place, usage: asyncpg.Record | None, now: datetime, policy: Policy
) -> tuple[DimensionStatus, ...]:
    used = usage["used"] if usage is not None else [0] * _GAUGES
    held = usage["held"] if usage is not None else [0] * _GAUGES
    limits = resolve(state, place, now)
    found: list[DimensionStatus] = []
    for info in GAUGES:
        if not applies_at(info.dimension, answers.scope_of(state.tenant, place)):
            continue
        resolved = limits.get(info.dimension)
        top = ceiling(resolved, info, policy.multipliers)
        have, more = used[info.gauge], held[info.gauge]
        found.append(
            DimensionStatus(
                dimension=info.dimension,
                basis=info.basis,
                unit=unit_of(info.dimension),
                limit=limit_view(resolved),
                ceiling=top,
                used=have,
                held=more,
                headroom=top - have - more if top is not None else None,
                as_of=usage["changed_at"] if usage is not None else None,
            )
        )
    return tuple(found)


def limit_view(resolved: Resolved | None) -> LimitView:
    """Show a resolved limit with where it comes from."""
    if resolved is None:
        return LimitView(value=None, source="none")
    limit = resolved.limit
    if limit is None:
        return LimitView(value=told(resolved), source=resolved.source)
    return LimitView(
        value=told(resolved),
        source=resolved.source,
        mode=limit.mode,
        version=limit.version,
        set_by=limit.set_by,
        set_at=limit.set_at,
        reason=limit.reason,
        expires_at=limit.expires_at,
    )


def gate_states(state: TenantState, policy: Policy) -> tuple[GateStatus, ...]:
    """Say how each gate stands for a tenant, asked about growth in every dimension."""
    verdicts = gates.judge(state.entitlement, frozenset(Dimension), policy)
    if not verdicts:
        return tuple(GateStatus(gate=gate, state="off") for gate in Gate)
    missing = "no entitlement row for this tenant"
    return tuple(
        GateStatus(
            gate=verdict.gate,
            state=verdict.passage,
            detail=verdict.detail or (missing if verdict.passage is Passage.FAIL_OPEN else ""),
        )
        for verdict in verdicts
    )


async def defaults(pool: asyncpg.Pool) -> DefaultLimits:
    """Read the global defaults."""
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        found = await loading.load_defaults(connection)
        tag = await limits_tag(connection, PLATFORM, TENANT)
    limits = {dimension: limit_view(Resolved(limit.value, "default", limit)) for dimension, limit in found.items()}
    return DefaultLimits(limits=limits, limits_version=tag)


async def tenants(pool: asyncpg.Pool, after: str, limit: int, *, among: frozenset[str] | None) -> list[str]:
    """List tenants by name, from the one after a name, among some or (None) all."""
    found = await pool.fetch(QUERIES["list_tenants"], after, limit, None if among is None else sorted(among))
    return [row["tenant"] for row in found]


async def places(pool: asyncpg.Pool, tenant: str, after: Place | None, limit: int) -> list[Place]:
    """List the places of a tenant that have usage or limits, from the one after a place, or from the tenant on."""
    found = await pool.fetch(QUERIES["list_scopes"], tenant, *(after or (None, None)), limit)
    return [(row["environment"], row["stack"]) for row in found]
