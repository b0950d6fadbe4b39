"""What would a change of limits do: what holds afterwards, what speaks against it, and what to warn of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.dimensions import Dimension, applies_at, unit_of
from plimsoll_contracts.quantities import render
from plimsoll_contracts.scopes import Scope
from plimsoll_quota_enforcer.domain.limits import ceiling, resolve
from plimsoll_quota_enforcer.domain.model import GAUGES, Limit, Place, chain
from plimsoll_quota_enforcer.domain.state import Policy, Resolved, TenantState


class LimitRefused(Exception):
    """A change of limits is not made; none of its dimensions is."""

    def __init__(self, code: Code, detail: str) -> None:
        """Say which rule speaks against it."""
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class LimitPlan:
    """What one dimension's limit at the place was, what it becomes, and what to know about it."""

    dimension: Dimension
    limit: Limit | None
    """The override from now on; None unsets it."""
    before: Resolved | None
    after: Resolved | None
    warnings: tuple[str, ...] = ()


def relimit(
    state: TenantState,
    place: Place,
    wanted: Mapping[Dimension, Limit | None],
    now: datetime,
    policy: Policy,
    *,
    force: bool = False,
) -> tuple[TenantState, tuple[LimitPlan, ...]]:
    """Plan a change of overrides at one place, all or none, and return the state under it.

    Raises:
        LimitRefused: a dimension means nothing at this place, or its limit, or what it would fall back to, lies
            below present usage and ``force`` is not given.
    """
    for dimension in wanted:
        if not applies_at(dimension, Scope(state.tenant, *place)):
            where = Scope(state.tenant, *place).render()
            raise LimitRefused(codes.LIMIT_NOT_HERE, f"{where} cannot have a limit on {dimension}")
    overrides = {k: v for k, v in {**state.limits.get(place, {}), **wanted}.items() if v is not None}
    changed = replace(state, seq=state.seq + 1, limits={**state.limits, place: overrides})
    before, after = resolve(state, place, now), resolve(changed, place, now)
    plans = tuple(
        LimitPlan(
            dimension,
            limit,
            before.get(dimension),
            after.get(dimension),
            _warnings(changed, place, dimension, now, policy, force=force),
        )
        for dimension, limit in wanted.items()
    )
    return changed, plans


def _warnings(
    state: TenantState, place: Place, dimension: Dimension, now: datetime, policy: Policy, *, force: bool
) -> tuple[str, ...]:
    found: list[str] = []
    below = _below_usage(state, place, dimension, now, policy)
    if below is not None:
        if not force:
            raise LimitRefused(codes.LIMIT_BELOW_USAGE, below)
        found.append(below)
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
    return tuple(found)


def _below_usage(state: TenantState, place: Place, dimension: Dimension, now: datetime, policy: Policy) -> str | None:
    resolved = resolve(state, place, now).get(dimension)
    total, used = state.tally.usage(place).total, state.tally.usage(place).used
    for info in GAUGES:
        top = ceiling(resolved, info, policy.multipliers) if info.dimension is dimension else None
        if top is not None and total[info.gauge] > top and resolved is not None:
            unit = unit_of(dimension)
            have, held = used[info.gauge], total[info.gauge] - used[info.gauge]
            return (
                f"{dimension} would be limited to {render(unit, top)} ({resolved.source}),"
                f" below used {render(unit, have)} + held {render(unit, held)}"
            )
    return None
