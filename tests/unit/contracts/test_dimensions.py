"""What is counted, in which unit, and where a limit on it can bind."""

import pytest

from plimsoll_contracts.dimensions import (
    REGISTRY,
    TWO_BASES,
    Dimension,
    EntitlementClass,
    Unit,
    applies_at,
    unit_of,
)
from plimsoll_contracts.scopes import Scope


def test_violations_are_reported_in_this_order() -> None:
    assert list(Dimension) == ["cpu", "memory", "disk", "stacks", "environments", "apps", "vapps"]


def test_every_dimension_of_the_enforcer_is_registered_as_its_limit() -> None:
    owned = [d for d in REGISTRY.values() if d.owner == "quota-enforcer"]
    limits = [d.name for d in owned if d.entitlement_class is EntitlementClass.LIMIT]
    assert limits == list(Dimension)
    assert [d.name for d in owned if d.entitlement_class is EntitlementClass.FEATURE] == ["deployments"]
    assert all(d.meaning and name == d.name for name, d in REGISTRY.items())


def test_the_planners_dimensions_are_there_with_their_classes() -> None:
    planner = {d.name: d.entitlement_class for d in REGISTRY.values() if d.owner == "scheduler-planner"}
    assert planner == {
        "max_schedules": "limit",
        "min_schedule_interval_seconds": "limit",
        "max_payload_bytes": "limit",
        "max_concurrent_runs_per_tenant": "limit",
        "scheduled_runs_per_cycle": "quota",
    }


@pytest.mark.parametrize(
    ("dimension", "unit"),
    [("cpu", Unit.MILLICORES), ("memory", Unit.BYTES), ("disk", Unit.BYTES)]
    + [(name, Unit.COUNT) for name in ("stacks", "environments", "apps", "vapps")],
)
def test_units(dimension: str, unit: Unit) -> None:
    assert unit_of(Dimension(dimension)) is unit


def test_two_bases() -> None:
    assert {"cpu", "memory"} == TWO_BASES


def test_a_limit_is_refused_where_it_could_never_bind() -> None:
    tenant, environment, stack = Scope("a"), Scope("a", "e"), Scope("a", "e", "s")
    never = {(d, place) for d in Dimension for place in (tenant, environment, stack) if not applies_at(d, place)}
    assert never == {
        (Dimension.ENVIRONMENTS, environment),
        (Dimension.ENVIRONMENTS, stack),
        (Dimension.STACKS, stack),
    }
