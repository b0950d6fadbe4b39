"""What is counted: every dimension of the platform, its class, its unit and the service that owns it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from plimsoll_contracts.scopes import Scope


class EntitlementClass(StrEnum):
    """The class of an entitlement decides its architecture (DESIGN 2)."""

    LIMIT = "limit"
    """A stock ceiling: counted and enforced synchronously by the service that owns the rows."""
    QUOTA = "quota"
    """A metered consumable: billing reconciles, we read a projected verdict."""
    FEATURE = "feature"
    """A flag."""


class Unit(StrEnum):
    """The base unit of a dimension's int64 amounts."""

    MILLICORES = "millicores"
    BYTES = "bytes"
    COUNT = "count"
    SECONDS = "seconds"
    FLAG = "flag"


class Dimension(StrEnum):
    """The dimensions the quota-enforcer counts, in the order in which violations are reported."""

    CPU = "cpu"
    MEMORY = "memory"
    DISK = "disk"
    STACKS = "stacks"
    ENVIRONMENTS = "environments"
    APPS = "apps"
    VAPPS = "vapps"


class Basis(StrEnum):
    """Which of its two sums a cpu or memory limit is held against (DESIGN 5.4)."""

    RESERVED = "reserved"
    BURST = "burst"


TWO_BASES = frozenset({Dimension.CPU, Dimension.MEMORY})


@dataclass(frozen=True, slots=True)
class DimensionInfo:
    """What a catalogue of dimensions says about one of them."""

    name: str
    entitlement_class: EntitlementClass
    unit: Unit
    owner: str
    meaning: str


def _info(name: str, kind: EntitlementClass, unit: Unit, owner: str, meaning: str) -> DimensionInfo:
    return DimensionInfo(name, kind, unit, owner, meaning)


_LIMIT, _QUOTA, _FEATURE = EntitlementClass.LIMIT, EntitlementClass.QUOTA, EntitlementClass.FEATURE
_ENFORCER, _PLANNER = "quota-enforcer", "scheduler-planner"

REGISTRY: Mapping[str, DimensionInfo] = {
    info.name: info
    for info in (
        _info("cpu", _LIMIT, Unit.MILLICORES, _ENFORCER, "processor time reserved or allowed"),
        _info("memory", _LIMIT, Unit.BYTES, _ENFORCER, "memory reserved or allowed"),
        _info("disk", _LIMIT, Unit.BYTES, _ENFORCER, "disk declared or measured, whichever is larger"),
        _info("stacks", _LIMIT, Unit.COUNT, _ENFORCER, "distinct stacks (environment and name) in use"),
        _info("environments", _LIMIT, Unit.COUNT, _ENFORCER, "distinct environments in use"),
        _info("apps", _LIMIT, Unit.COUNT, _ENFORCER, "distinct apps in use"),
        _info("vapps", _LIMIT, Unit.COUNT, _ENFORCER, "running instances of packaged apps"),
        _info("deployments", _FEATURE, Unit.FLAG, _ENFORCER, "whether the tenant may deploy at all"),
        _info("max_schedules", _LIMIT, Unit.COUNT, _PLANNER, "schedules a tenant may have"),
        _info("min_schedule_interval_seconds", _LIMIT, Unit.SECONDS, _PLANNER, "shortest time between two ticks"),
        _info("max_payload_bytes", _LIMIT, Unit.BYTES, _PLANNER, "size of a schedule's payload"),
        _info("max_concurrent_runs_per_tenant", _LIMIT, Unit.COUNT, _PLANNER, "runs at the same time"),
        _info("scheduled_runs_per_cycle", _QUOTA, Unit.COUNT, _PLANNER, "runs per billing cycle"),
    )
}
"""Every dimension by name. Per-plan values are seeding, never code."""


def unit_of(dimension: Dimension) -> Unit:
    """Return the base unit of a counted dimension."""
    return REGISTRY[dimension].unit


def applies_at(dimension: Dimension, where: Scope) -> bool:
    """Tell whether a limit on this dimension can mean anything at a scope.

    An environment always holds one environment, and a stack one stack: a limit there would never bind.
    """
    if where.stack:
        return dimension not in (Dimension.STACKS, Dimension.ENVIRONMENTS)
    if where.environment:
        return dimension is not Dimension.ENVIRONMENTS
    return True
