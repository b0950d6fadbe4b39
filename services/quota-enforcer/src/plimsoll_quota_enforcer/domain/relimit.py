"""What would a change of limits do: what holds afterwards, what speaks against it, and what to warn of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.dimensions import Dimension, applies_at, unit_of
from plimsoll_contracts.quantities import render
from plimsoll_contracts.scopes import DEFAULTS, Scope
from plimsoll_quota_enforcer.domain.limits import ceiling, resolve
from plimsoll_quota_enforcer.domain.model import GAUGES, Limit, Place, chain
from plimsoll_quota_enforcer.domain.state import Policy, Resolved, TenantState

Wanted = Mapping[Place, Mapping[Dimension, Limit | None]]
"""Overrides to set, by place; None unsets one."""


class LimitRefused(Exception):
    """A change of limits is not made; none of its dimensions is."""

    def __init__(self, code: Code, detail: str) -> None:
        """Say which rule speaks against it."""
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class LimitPlan:
    """What one dimension's limit at a place was, what it becomes, and what to know about it."""

    place: Place
    dimension: Dimension
    limit: Limit | None
    """The override from now on; None unsets it."""
    before: Resolved | None
    after: Resolved | None
    below_usage: str = ""
    """Which figures lie above it now; empty where none does."""
    warnings: tuple[str, ...] = ()
    """Everything to know, ``below_usage`` included."""


def may_have_limit(scope: Scope, dimension: Dimension) -> None:
    """Let through where a limit can be set.

    Raises:
        LimitRefused: the dimension means nothing at this scope, or its tenant could not be told from the defaults.
    """
    if scope.tenant == DEFAULTS:
        raise LimitRefused(codes.NAME_RESERVED, f"no tenant called {DEFAULTS} can have limits")
    if not applies_at(dimension, scope):
        raise LimitRefused(codes.LIMIT_NOT_HERE, f"{scope} cannot have a limit on {dimension}")


def relimit(
    state: TenantState,
    wanted: Wanted,
    now: datetime,
    policy: Policy,
    *,
    force: bool = False,
    defaults: Mapping[Dimension, Limit] | None = None,
) -> tuple[TenantState, tuple[LimitPlan, ...]]:
    """Plan a change of one tenant's overrides, all or none, and return the state under it.

    Args:
        state: the tenant as it is.
        wanted: what to set and unset.
        now: by the database's clock.
        policy: the platform's.
        force: also what lies below present usage.
        defaults: the global defaults from then on, where the same change moves them.

    Raises:
        LimitRefused: a dimension means nothing at its place, or its limit, or what it would fall back to, lies
            below present usage and ``force`` is not given.
    """
    limits = dict(state.limits)
    for place, values in wanted.items():
        for dimension in values:
            may_have_limit(Scope(state.tenant, *place), dimension)
        limits[place] = {k: v for k, v in {**limits.get(place, {}), **values}.items() if v is not None}
    changed = replace(
        state, seq=state.seq + 1, limits=limits, defaults=state.defaults if defaults is None else defaults
    )
    plans: list[LimitPlan] = []
    for place, values in wanted.items():
        before, after = resolve(state, place, now), resolve(changed, place, now)
        for dimension, limit in values.items():
            below = _below_usage(changed, place, dimension, now, policy)
            warnings = (*([below] if below else []), *_above_ancestors(changed, place, dimension, now))
            resolved = before.get(dimension), after.get(dimension)
            plans.append(LimitPlan(place, dimension, limit, *resolved, below, warnings))
    for plan in plans:
        if plan.below_usage and not force:
            raise LimitRefused(codes.LIMIT_BELOW_USAGE, plan.below_usage)
    return changed, tuple(plans)


def _above_ancestors(state: TenantState, place: Place, dimension: Dimension, now: datetime) -> list[str]:
    found: list[str] = []
    mine = resolve(state, place, now).get(dimension)
    for ancestor in chain(place)[1:]:
        theirs = resolve(state, ancestor, now).get(dimension)
        if theirs is None or theirs.value is None or mine is None:
            continue
        if mine.value is None or mine.value > theirs.value:
            unit = unit_of(dimension)
            found.append(
                f"{Scope(state.tenant, *ancestor)} allows {dimension} {render(unit, theirs.value)} in all,"
                " which binds before this one"
            )
    return found


def _below_usage(state: TenantState, place: Place, dimension: Dimension, now: datetime, policy: Policy) -> str:
    resolved = resolve(state, place, now).get(dimension)
    total, used = state.tally.usage(place).total, state.tally.usage(place).used
    for info in GAUGES:
        top = ceiling(resolved, info, policy.multipliers) if info.dimension is dimension else None
        if top is not None and total[info.gauge] > top and resolved is not None:
            unit = unit_of(dimension)
            have, held = used[info.gauge], total[info.gauge] - used[info.gauge]
            return (
                f"{Scope(state.tenant, *place)} {dimension} would be limited to {render(unit, top)}"
                f" ({resolved.source}), below used {render(unit, have)} + held {render(unit, held)}"
            )
    return ""
