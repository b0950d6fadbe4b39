"""How does a tenant's state come out of its rows: whole for what counts, by name for what a batch asks about."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, Verb
from plimsoll_quota_enforcer.domain.model import (
    Ask,
    Charge,
    Fact,
    Gauge,
    Hold,
    Limit,
    Measured,
    Node,
    Place,
    ReplyTo,
    StoredDecision,
    Waiter,
)
from plimsoll_quota_enforcer.domain.multipliers import WIDEST
from plimsoll_quota_enforcer.domain.placing import Needed
from plimsoll_quota_enforcer.domain.state import OverKey, Policy, TenantState, fold
from plimsoll_quota_enforcer.requests import Decoder
from plimsoll_quota_enforcer.storage import rows
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_streams.transactions import Connection


@dataclass(frozen=True, slots=True)
class Locked:
    """Guards that are locked, and what was read after all of them were."""

    now: datetime
    defaults_version: int
    seqs: Mapping[str, int]
    """Of each tenant that was locked."""
    decisions: Mapping[str, Mapping[str, StoredDecision]]
    """Earlier answers to the requests that were named, by tenant and id."""


async def lock(
    connection: Connection, tenants: Sequence[str], asks: Iterable[Ask], back: timedelta, *, idle: bool
) -> Locked:
    """Lock guards in their order; with ``idle`` those that somebody has are passed over."""
    asked = sorted({(ask.tenant, ask.request_id) for ask in asks if ask.verb is not Verb.CHECK})
    columns = rows.columns(asked) or [(), ()]
    platform, *found = await connection.fetch(QUERIES["lock_tenants"], tenants, *columns, back, idle)
    seqs: dict[str, int] = {}
    decisions: dict[str, dict[str, StoredDecision]] = {}
    for row in found:
        tenant, seq, request, fingerprint, reply, hold, *_ = row
        if request is None:
            seqs[tenant] = seq
        else:
            decisions.setdefault(tenant, {})[request] = StoredDecision(fingerprint, reply.encode(), hold)
    return Locked(platform["now"], platform["defaults_version"], seqs, decisions)


async def load(
    connection: Connection, seqs: Mapping[str, int], defaults: Mapping[Dimension, Limit], policy: Policy
) -> dict[str, TenantState]:
    """Load whole tenants: all that counts and binds, without what only a batch may name."""
    tenants = list(seqs)
    charges: dict[str, dict[str, Charge]] = {tenant: {} for tenant in tenants}
    for row in await connection.fetch(QUERIES["load_charges"], tenants):
        charges[row["tenant"]][row["deployment"]] = rows.charge(row)
    holds: dict[str, dict[str, Hold]] = {tenant: {} for tenant in tenants}
    for row in await connection.fetch(QUERIES["load_open_holds"], tenants):
        holds[row["tenant"]][row["request_id"]] = rows.hold(row)
    limits = rows.limits_by_place(await connection.fetch(QUERIES["load_limits"], tenants))
    entitlements = {
        row["tenant"]: rows.entitlement(row) for row in await connection.fetch(QUERIES["load_entitlements"], tenants)
    }
    over: dict[str, dict[OverKey, datetime]] = {tenant: {} for tenant in tenants}
    for row in await connection.fetch(QUERIES["load_over_limits"], tenants):
        key = ((row["environment"], row["stack"]), Gauge(row["gauge"]), row["threshold"])
        over[row["tenant"]][key] = row["since"]
    measured: dict[str, dict[Place, Measured]] = {tenant: {} for tenant in tenants}
    for row in await connection.fetch(QUERIES["load_measured"], tenants):
        measured[row["tenant"]][row["environment"], row["stack"]] = rows.measured(row)
    waiters: dict[str, list[Waiter]] = {tenant: [] for tenant in tenants}
    # Who waits was let in to wait: bounds that were narrowed since must not make its tenant unreadable.
    decoder = Decoder(replace(policy, bounds=WIDEST, require_resources=False))
    for row in await connection.fetch(QUERIES["load_waiters"], tenants):
        reply_to = ReplyTo(row["reply_topic"], row["reply_partition"], row["correlation_id"])
        waiters[row["tenant"]].append(rows.waiter(row, decoder.again(row["request"], reply_to)))
    return {
        tenant: fold(
            tenant,
            seqs[tenant],
            charges=charges[tenant],
            holds=holds[tenant],
            limits=limits.get(tenant, {}),
            defaults=defaults,
            entitlement=entitlements.get(tenant),
            over=over[tenant],
            measured=measured[tenant],
            waiters=tuple(waiters[tenant]),
        )
        for tenant in tenants
    }


async def lock_nodes(connection: Connection, needed: Needed, reported: Sequence[str]) -> dict[str, Node]:
    """Lock the nodes that may be needed, in order; one that was never heard of is made first."""
    told = sorted({*needed.nodes, *reported})
    if not told and not needed.looked_at and not needed.pools:
        return {}
    if told:
        await connection.execute(QUERIES["open_nodes"], told)
    names = sorted({*told, *needed.looked_at})
    found = await connection.fetch(QUERIES["lock_nodes"], names, sorted(needed.pools))
    return {row["node"]: rows.node(row) for row in found}


async def load_defaults(connection: Connection) -> Mapping[Dimension, Limit]:
    """Load the global defaults."""
    found = await connection.fetch(QUERIES["load_defaults"])
    return {Dimension(row["dimension"]): rows.limit(row) for row in found}


@dataclass(frozen=True, slots=True)
class Named:
    """What a batch names that a tenant's state may not have: by (tenant, id)."""

    holds: Sequence[tuple[str, str]] = ()
    deployments: Sequence[tuple[str, str]] = ()


def named_by(asks: Iterable[Ask], facts: Iterable[Fact], states: Mapping[str, TenantState]) -> Named:
    """Find what requests and facts name: closed holds, tombstones."""
    holds = set()
    deployments = {(fact.tenant, fact.deployment) for fact in facts}
    reserved: dict[tuple[str, str], tuple[str, ...]] = {}
    for ask in asks:
        state = states[ask.tenant]
        if ask.verb is Verb.RESERVE:
            reserved[ask.tenant, ask.request_id] = (ask.deployment, *ask.replaces)
        elif ask.verb is Verb.ADJUST:
            deployments.add((ask.tenant, ask.deployment))
        elif ask.verb in (Verb.COMMIT, Verb.RELEASE):
            hold = state.holds.get(ask.hold)
            if hold is None:
                holds.add((ask.tenant, ask.hold))
            # A hold of this batch, or an open one: its commit continues the revisions of what was gone.
            members = hold.members if hold is not None else reserved.get((ask.tenant, ask.hold), ())
            deployments.update((ask.tenant, member) for member in members)
    missing = {(tenant, name) for tenant, name in deployments if name not in states[tenant].charges}
    return Named(sorted(holds), sorted(missing))


async def recall(
    connection: Connection,
    named: Named,
    decisions: Mapping[str, Mapping[str, StoredDecision]],
    states: Mapping[str, TenantState],
) -> dict[str, TenantState]:
    """Return the states of the tenants named, with earlier decisions and what was named added to them."""
    holds: dict[str, dict[str, Hold]] = {}
    # A repeated reserve tells its hold's present state, which may have been closed since.
    repeated = [(tenant, d.hold) for tenant, by_id in decisions.items() for d in by_id.values() if d.hold is not None]
    wanted = sorted({*named.holds, *repeated})
    if wanted:
        for row in await connection.fetch(QUERIES["recall_holds"], *rows.columns(wanted)):
            holds.setdefault(row["tenant"], {})[row["request_id"]] = rows.hold(row)
    of_holds = {
        (tenant, member) for tenant, by_id in holds.items() for hold in by_id.values() for member in hold.members
    }
    missing = [pair for pair in {*named.deployments, *of_holds} if pair[1] not in states[pair[0]].charges]
    charges: dict[str, dict[str, Charge]] = {}
    if missing:
        for row in await connection.fetch(QUERIES["recall_charges"], *rows.columns(sorted(missing))):
            charges.setdefault(row["tenant"], {})[row["deployment"]] = rows.charge(row)
    touched = decisions.keys() | holds.keys() | charges.keys()
    return {
        tenant: _with(states[tenant], decisions.get(tenant, {}), holds.get(tenant, {}), charges.get(tenant, {}))
        for tenant in touched
    }


def _with(
    state: TenantState,
    decisions: Mapping[str, StoredDecision],
    holds: Mapping[str, Hold],
    charges: Mapping[str, Charge],
) -> TenantState:
    """Add what was recalled; what the state has already is as fresh, or fresher within the same transaction."""
    return replace(
        state,
        decisions={**state.decisions, **decisions},
        holds={**holds, **state.holds} if holds else state.holds,
        charges={**charges, **state.charges} if charges else state.charges,
    )


def without_recalled(state: TenantState, settled: Iterable[str]) -> TenantState:
    """Return the state without what only a batch named: closed holds, tombstones and earlier answers.

    Args:
        state: as the batch left it.
        settled: the deployments that the batch settled or recalled, among which the tombstones are.
    """
    gone = [name for name in settled if (charge := state.charges.get(name)) is not None and charge.gone]
    holds = {id_: hold for id_, hold in state.holds.items() if hold.state is HoldState.OPEN}
    if not gone and not state.decisions and len(state.holds) == len(holds):
        return state
    charges = state.charges
    if gone:
        charges = dict(charges)
        for name in gone:
            del charges[name]
    return replace(
        state,
        decisions={},
        holds=holds,
        charges=charges,
    )


def with_defaults(state: TenantState, defaults: Mapping[Dimension, Limit]) -> TenantState:
    """Return the state under the present global defaults, which are no part of its seq."""
    return state if state.defaults is defaults else replace(state, defaults=defaults)
