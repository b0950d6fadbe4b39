"""Which limit holds where, and from where it comes; and what a change of limits would do."""

from collections.abc import Mapping
from datetime import datetime

from plimsoll_contracts.dimensions import Basis, Dimension
from plimsoll_contracts.quantities import scale_down
from plimsoll_quota_enforcer.domain.model import TENANT, GaugeInfo, Multipliers, Place
from plimsoll_quota_enforcer.domain.state import Resolved, TenantState

NO_LIMITS: Mapping[Dimension, Resolved] = {}


def resolve(state: TenantState, place: Place, now: datetime) -> Mapping[Dimension, Resolved]:
    """Return the limits that hold at one place (DESIGN 5.3 rule 3).

    The tenant's: override, else plan, else global default. An environment's or stack's: its own override only;
    an ancestor's limit is checked at the ancestor. An expired override is no override.
    """
    overrides = state.limits.get(place)
    if place != TENANT:
        if not overrides:
            return NO_LIMITS
        resolved: dict[Dimension, Resolved] = {}
    else:
        resolved = {dimension: Resolved(limit.value, "default", limit) for dimension, limit in state.defaults.items()}
        if state.entitlement is not None:
            for dimension, value in state.entitlement.limits.items():
                resolved[dimension] = Resolved(value, "plan")
    if overrides:
        for dimension, limit in overrides.items():
            if limit.expires_at is None or limit.expires_at > now:
                resolved[dimension] = Resolved(limit.value, "override", limit)
    return resolved


def ceiling(resolved: Resolved | None, info: GaugeInfo, multipliers: Multipliers) -> int | None:
    """Return what a gauge's total may reach, or None where nothing is enforced (DESIGN 5.4)."""
    if resolved is None or resolved.value is None:
        return None
    if info.basis is Basis.BURST:
        return scale_down(resolved.value, multipliers.limit_milli)
    return resolved.value
