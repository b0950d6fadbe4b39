"""Limits: all or none, below usage only with force, unset says what holds now, a child above its parent warns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import PLACES, Step, added_up, histories, limit_tables, played

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_devkit.builders import BLOG, PROD, Tenant, check, content, limit, limits, reserve
from plimsoll_quota_enforcer.domain.model import TENANT, Entitlement, Gauge, Limit, Place
from plimsoll_quota_enforcer.domain.relimit import LimitRefused

CPU, MEMORY, STACKS, ENVIRONMENTS = Dimension.CPU, Dimension.MEMORY, Dimension.STACKS, Dimension.ENVIRONMENTS


def using(cpu: int = 15) -> Tenant:
    tenant = Tenant(defaults=limits(cpu=10))
    tenant.run("d1", content(PROD, cpu=cpu))
    tenant.ask(reserve("r1", "d2", content(PROD, memory=3)))
    return tenant


def test_below_usage_is_refused_with_the_figures_and_made_with_force() -> None:
    tenant = using()
    with pytest.raises(LimitRefused) as refused:
        tenant.relimit(TENANT, limits(cpu=14))
    assert refused.value.code is codes.LIMIT_BELOW_USAGE
    assert "14m" in refused.value.detail
    assert "used 15m" in refused.value.detail
    (plan,) = tenant.relimit(TENANT, limits(cpu=14), force=True)
    assert plan.warnings
    assert tenant.total(Gauge.CPU_RESERVED) == 15


def test_what_is_held_counts_as_usage() -> None:
    with pytest.raises(LimitRefused) as refused:
        using().relimit(PROD, limits(memory=2))
    assert "held 3B" in refused.value.detail


def test_exactly_usage_is_not_below_it() -> None:
    (plan,) = using().relimit(TENANT, limits(cpu=15))
    assert plan.warnings == ()


def test_unset_falls_back_says_to_what_and_is_refused_below_usage() -> None:
    tenant = using()
    tenant.relimit(TENANT, limits(cpu=20))
    with pytest.raises(LimitRefused) as refused:
        tenant.relimit(TENANT, {CPU: None})
    assert "(default)" in refused.value.detail
    (plan,) = tenant.relimit(TENANT, {CPU: None}, force=True)
    assert plan.after is not None
    assert (plan.after.value, plan.after.source) == (10, "default")
    tenant.entitlement = Entitlement(1, "pro", {MEMORY: 7})
    (to_plan,) = tenant.relimit(TENANT, {MEMORY: None})
    assert to_plan.after is not None
    assert (to_plan.after.value, to_plan.after.source) == (7, "plan")


def test_several_are_set_all_or_none() -> None:
    tenant = using()
    with pytest.raises(LimitRefused):
        tenant.relimit(TENANT, limits(memory=50, cpu=1))
    assert tenant.limits == {}
    assert len(tenant.relimit(TENANT, limits(memory=50, cpu=50))) == 2


@pytest.mark.parametrize(("place", "dimension"), [(PROD, ENVIRONMENTS), (BLOG, ENVIRONMENTS), (BLOG, STACKS)])
def test_a_limit_that_would_never_bind_is_refused_also_with_force(place: Place, dimension: Dimension) -> None:
    with pytest.raises(LimitRefused) as refused:
        Tenant().relimit(place, {dimension: limit(1)}, force=True)
    assert refused.value.code is codes.LIMIT_NOT_HERE


def test_a_child_above_its_parent_is_set_with_a_warning_and_the_parent_binds() -> None:
    tenant = Tenant({TENANT: limits(cpu=1)})
    (plan,) = tenant.relimit(PROD, limits(cpu=2))
    assert len(plan.warnings) == 1
    assert "acme" in plan.warnings[0]
    assert "1m" in plan.warnings[0]
    (free,) = tenant.relimit(BLOG, limits(cpu=None))
    assert len(free.warnings) == 2
    decision = tenant.ask(check("d1", content(BLOG, cpu=2)))
    assert {violation.place for violation in decision.violations} == {TENANT}


def test_a_child_below_its_parent_is_no_news() -> None:
    (plan,) = Tenant({TENANT: limits(cpu=3)}).relimit(PROD, limits(cpu=2))
    assert plan.warnings == ()


@given(
    histories,
    limit_tables,
    st.sampled_from(PLACES),
    st.dictionaries(st.sampled_from((CPU, MEMORY, Dimension.DISK, Dimension.APPS)), st.none() | st.integers(0, 20)),
)
def test_without_force_no_limit_ends_below_usage_and_usage_never_moves(
    history: list[Step],
    table: dict[Place, dict[Dimension, object]],
    place: Place,
    wanted: dict[Dimension, int | None],
) -> None:
    tenant = played(history, table)
    tenant.sweep()
    before, kept = {where: added_up(tenant, where) for where in PLACES}, dict(tenant.limits)
    patch: dict[Dimension, Limit | None] = {dimension: limit(value) for dimension, value in wanted.items()}
    total = before[place][1]
    below = any(value is not None and _most(total, dimension) > value for dimension, value in wanted.items())
    if below:
        with pytest.raises(LimitRefused):
            tenant.relimit(place, patch)
        assert tenant.limits == kept
        tenant.relimit(place, patch, force=True)
    else:
        tenant.relimit(place, patch)
    assert {where: added_up(tenant, where) for where in PLACES} == before
    for dimension, value in wanted.items():
        assert tenant.limits[place][dimension].value == value


def _most(total: tuple[int, ...], dimension: Dimension) -> int:
    """Plain amounts count on both bases, so the reserved one binds first."""
    gauges = {CPU: Gauge.CPU_RESERVED, MEMORY: Gauge.MEMORY_RESERVED, Dimension.DISK: Gauge.DISK}
    return total[gauges.get(dimension, Gauge.APPS)]
