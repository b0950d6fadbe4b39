"""How do the gates stand: for one tenant, and how often each has failed open over all of them."""

import asyncpg

from plimsoll_contracts.decisions_api import GatesOverview, GateTotal, TenantGates, TenantWithoutEntitlement
from plimsoll_contracts.enforcement import Gate
from plimsoll_quota_enforcer.domain.state import Policy, TenantState
from plimsoll_quota_enforcer.storage import rows
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.reading import gate_states
from plimsoll_streams.transactions import Connection


async def overview(pool: asyncpg.Pool, policy: Policy, after: str, limit: int) -> GatesOverview:
    """Read how often each gate failed open, and a page of the tenants of whose entitlement nothing is known."""
    counted = {row["gate"]: row for row in await pool.fetch(QUERIES["gate_totals"])}
    expected = policy.entitlements_expected
    found = await pool.fetch(QUERIES["tenants_without_entitlement"], after, limit) if expected else []
    return GatesOverview(
        expected=expected,
        gates=tuple(
            GateTotal(gate=gate, failed_open=row["total"] if row else 0, last_at=row["last_at"] if row else None)
            for gate in Gate
            for row in [counted.get(gate)]
        ),
        without_entitlement=tuple(
            TenantWithoutEntitlement(
                tenant=row["tenant"], deployments=row["deployments"], last_decision_at=row["last_at"]
            )
            for row in found
        ),
        next=found[-1]["tenant"] if len(found) == limit else None,
    )


async def of_tenant(pool: asyncpg.Pool, policy: Policy, tenant: str) -> TenantGates:
    """Read how each gate stands for one tenant."""
    async with pool.acquire() as connection:
        row = await connection.fetchrow(QUERIES["load_entitlements"], [tenant])
        known = rows.entitlement(row) if row is not None else None
        return await tenant_gates(connection, policy, TenantState(tenant, entitlement=known))


async def tenant_gates(connection: Connection, policy: Policy, state: TenantState) -> TenantGates:
    """Say how each gate stands for a tenant whose entitlement is known, or known to be missing."""
    known = state.entitlement
    return TenantGates(
        tenant=state.tenant,
        gates=gate_states(state, policy),
        plan=known.plan if known is not None else None,
        entitlement_version=known.version if known is not None else None,
        entitlement_at=known.at if known is not None else None,
        last_fail_open_at=await connection.fetchval(QUERIES["last_fail_open"], state.tenant),
    )
