"""How are many limits set at once: over all tenants named, in one transaction, all or none, and only if it differs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.scopes import DEFAULTS, Scope
from plimsoll_quota_enforcer.domain.decide import expire
from plimsoll_quota_enforcer.domain.declare import Declaration, Declared, standing, tag, wishes
from plimsoll_quota_enforcer.domain.model import TENANT, Limit, Place
from plimsoll_quota_enforcer.domain.relimit import LimitPlan, LimitRefused, relimit
from plimsoll_quota_enforcer.domain.state import Policy, TenantState
from plimsoll_quota_enforcer.storage import loading
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.limits import default_plan, with_tenants_above
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.recording import PLATFORM, Step, Versions, last_versions, record
from plimsoll_quota_enforcer.storage.unit import Unit, open_unit
from plimsoll_streams import outbox
from plimsoll_streams.transactions import Connection

SHOWN_MAX = 5
"""Limits below usage that a refusal names; the plan has them all."""


@dataclass(frozen=True, slots=True)
class Application:
    """What somebody declares, with who and why."""

    defaults: Declaration
    scopes: Mapping[str, Mapping[Place, Declaration]]
    """By tenant and place."""
    by: str
    reason: str
    force: bool = False
    dry_run: bool = False
    plan: str | None = None
    """The tag of the plan that was looked at."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One change of an application."""

    tenant: str
    """``PLATFORM`` for a global default."""
    plan: LimitPlan
    before: Limit | None
    """What was set here until then; None where it inherited."""
    version: int
    """The one it gets."""

    @property
    def scope(self) -> str:
        """Where, as people write it."""
        return DEFAULTS if self.tenant == PLATFORM else Scope(self.tenant, *self.plan.place).render()


@dataclass(frozen=True, slots=True)
class Applied:
    """What an application did, or on a dry run would do."""

    changes: tuple[Planned, ...]
    tag: str
    committed: Callable[[], None]
    """To be called once the transaction is durable."""


@dataclass(frozen=True, slots=True)
class _Moved:
    """A tenant some of whose limits change."""

    after: TenantState
    planned: tuple[Planned, ...]


async def apply_limits(connection: Connection, cache: StateCache, policy: Policy, wanted: Application) -> Applied:
    """Set what is declared and is not so yet, inside the caller's transaction.

    Guards are taken in order, then, where defaults are named, the platform's row. A dry run writes nothing but may
    open guards: its transaction is taken back.

    Raises:
        LimitRefused: a rule speaks against one of the limits, or the plan is no longer the one that was looked at;
            nothing was written.
    """
    unit = await open_unit(connection, sorted(wanted.scopes), cache, policy)
    defaults = await _lock_defaults(connection) if wanted.defaults else None
    versions = await last_versions(
        connection, [(PLATFORM, TENANT), *((tenant, place) for tenant, of in wanted.scopes.items() for place in of)]
    )
    planned, becomes = _plan_defaults(wanted, defaults or {}, versions, unit.now)
    planned = tuple([await _with_tenants_above(unit, wanted, change) for change in planned])
    moved = [
        each
        for tenant in sorted(wanted.scopes)
        if (each := _plan_tenant(unit, wanted, tenant, versions, (defaults, becomes))) is not None
    ]
    changes = (*planned, *(change for each in moved for change in each.planned))
    name = tag(
        (c.scope, c.plan.dimension, c.version, standing(c.before, unit.now), standing(c.plan.limit, unit.now),
         bool(c.plan.below_usage))
        for c in changes
    )  # fmt: skip
    if not wanted.dry_run:
        _refuse(wanted, changes, name)
        await _write(connection, unit, wanted, planned, moved)
    # Where nothing was written, nothing may be remembered either: what has expired is still open in the database.
    return Applied(changes, name, unit.committed if changes and not wanted.dry_run else lambda: None)


async def _lock_defaults(connection: Connection) -> Mapping[Dimension, Limit]:
    await connection.fetchval(QUERIES["lock_platform"])
    return await loading.load_defaults(connection)


def _plan_defaults(
    wanted: Application, present: Mapping[Dimension, Limit], versions: Versions, now: datetime
) -> tuple[tuple[Planned, ...], Mapping[Dimension, Limit]]:
    """Plan the changes of defaults, and return what they are from then on."""
    planned: list[Planned] = []
    becomes = dict(present)
    for dimension, declared in wishes(present, wanted.defaults, now).items():
        version = versions.get((PLATFORM, TENANT, dimension), 0) + 1
        limit = _limit(wanted, declared, version, now)
        before = present.get(dimension)
        planned.append(Planned(PLATFORM, default_plan(dimension, before, limit), _set(before, now), version))
        becomes.pop(dimension, None)
        if limit is not None:
            becomes[dimension] = limit
    return tuple(planned), becomes


async def _with_tenants_above(unit: Unit, wanted: Application, change: Planned) -> Planned:
    spared = [t for t, of in wanted.scopes.items() if change.plan.dimension in of.get(TENANT, {})]
    plan = await with_tenants_above(unit.connection, unit.policy, change.plan, unit.now, spared)
    return replace(change, plan=plan)


def _plan_tenant(
    unit: Unit,
    wanted: Application,
    tenant: str,
    versions: Versions,
    defaults: tuple[Mapping[Dimension, Limit] | None, Mapping[Dimension, Limit]],
) -> _Moved | None:
    """Plan the changes of one tenant, under the defaults of now and of then where they are named."""
    # What has expired speaks against no limit; nodes are freed one tenant after the other.
    unit.absorb(expire(unit.state(tenant), unit.now, unit.policy, nodes=unit.nodes))
    now_defaults, then_defaults = defaults
    state = unit.state(tenant) if now_defaults is None else replace(unit.state(tenant), defaults=now_defaults)
    limits = {
        place: {
            dimension: _limit(wanted, wish, versions.get((tenant, place, dimension), 0) + 1, unit.now)
            for dimension, wish in wishes(state.limits.get(place, {}), declared, unit.now).items()
        }
        for place, declared in sorted(wanted.scopes[tenant].items())
    }
    if not any(limits.values()):
        return None
    after, plans = relimit(
        state, limits, unit.now, unit.policy, force=True, defaults=None if now_defaults is None else then_defaults
    )
    planned = tuple(
        Planned(
            tenant,
            plan,
            _set(state.limits.get(plan.place, {}).get(plan.dimension), unit.now),
            versions.get((tenant, plan.place, plan.dimension), 0) + 1,
        )
        for plan in plans
    )
    return _Moved(after, planned)


def _set(limit: Limit | None, now: datetime) -> Limit | None:
    return limit if standing(limit, now) is not None else None


def _limit(wanted: Application, declared: Declared | None, version: int, now: datetime) -> Limit | None:
    if declared is None:
        return None
    why = declared.reason or wanted.reason
    return Limit(declared.value, declared.mode, version, declared.expires_at, wanted.by, now, why)


def _refuse(wanted: Application, changes: tuple[Planned, ...], name: str) -> None:
    """Raise where the application may not be done."""
    if wanted.plan is not None and wanted.plan != name:
        raise LimitRefused(codes.LIMIT_PLAN_CHANGED, "limits, or what lies below usage, have moved since the plan")
    below = [change.plan.below_usage for change in changes if change.plan.below_usage]
    if below and not wanted.force:
        more = [f"and {len(below) - SHOWN_MAX} more"] if len(below) > SHOWN_MAX else []
        raise LimitRefused(codes.LIMIT_BELOW_USAGE, "; ".join([*below[:SHOWN_MAX], *more]))


async def _write(
    connection: Connection, unit: Unit, wanted: Application, defaults: tuple[Planned, ...], moved: list[_Moved]
) -> None:
    steps = [_step(change, wanted, unit.now) for change in defaults]
    steps += [replace(_step(change, wanted, unit.now), seq=each.after.seq) for each in moved for change in each.planned]
    if not steps:
        return
    messages = await record(connection, steps)
    for each in moved:
        places = {change.plan.place for change in each.planned}
        unit.absorb(expire(each.after, unit.now, unit.policy, places, unit.nodes))
    await unit.write(messages.append)
    if defaults:
        await connection.execute(QUERIES["raise_defaults_version"])
    await outbox.insert(connection, messages)


def _step(change: Planned, wanted: Application, at: datetime) -> Step:
    limit = change.plan.limit
    if limit is None:
        return Step(change.tenant, change.plan, change.version, at, wanted.by, wanted.reason)
    return Step(change.tenant, change.plan, change.version, at, wanted.by, limit.reason, limit.mode, limit.expires_at)
