"""Rule 3: each scope is checked against its own limit; the tenant's is override, else plan, else global default."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import PLACES

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_devkit.builders import (
    BLOG,
    NOW,
    POLICY,
    PROD,
    STAGING,
    Tenant,
    content,
    limit,
    limits,
    reserve,
)
from plimsoll_quota_enforcer.domain.limits import ceiling, resolve
from plimsoll_quota_enforcer.domain.model import GAUGES, TENANT, Entitlement, Limit, Multipliers, Place

CPU = Dimension.CPU


def source(tenant: Tenant, place: Place = TENANT) -> tuple[int | None, str] | None:
    found = resolve(tenant.state, place, tenant.now).get(CPU)
    return (found.value, found.source) if found is not None else None


def test_override_else_plan_else_default() -> None:
    tenant = Tenant({TENANT: limits(cpu=1)}, entitlement=Entitlement(1, "pro", {CPU: 2}), defaults=limits(cpu=3))
    assert source(tenant) == (1, "override")
    tenant.limits = {}
    assert source(tenant) == (2, "plan")
    tenant.entitlement = None
    assert source(tenant) == (3, "default")
    tenant.defaults = {}
    assert source(tenant) is None


def test_an_override_that_has_expired_is_none() -> None:
    ends = NOW + timedelta(seconds=60)
    tenant = Tenant({TENANT: {CPU: limit(9, expires_at=ends)}}, defaults=limits(cpu=3))
    assert source(tenant) == (9, "override")
    tenant.wait(60)
    assert source(tenant) == (3, "default")
    assert not tenant.ask(reserve("r1", "d1", content(cpu=4))).allowed


def test_zero_means_zero_and_unlimited_is_not_absent() -> None:
    tenant = Tenant({TENANT: limits(cpu=0, memory=None)}, defaults=limits(memory=1))
    assert tenant.ask(reserve("r1", "d1", content(cpu=1))).code is codes.CPU_EXCEEDED
    assert tenant.ask(reserve("r2", "d1", content(memory=10**12))).allowed
    assert tenant.ask(reserve("r3", "d2", content(disk=10**15))).allowed


def test_plan_and_defaults_are_for_the_tenant_only() -> None:
    tenant = Tenant(defaults=limits(cpu=3), entitlement=Entitlement(1, "pro", {CPU: 2}))
    assert source(tenant, PROD) is None
    assert source(tenant, BLOG) is None


@pytest.mark.parametrize("where", [BLOG, PROD, TENANT])
def test_an_ancestor_is_checked_at_the_ancestor(where: Place) -> None:
    table = {place: limits(cpu=10) for place in (BLOG, PROD, TENANT)} | {where: limits(cpu=5)}
    tenant = Tenant(table)
    decision = tenant.ask(reserve("r1", "d1", content(BLOG, cpu=6)))
    assert {violation.place for violation in decision.violations} == {where}
    assert tenant.ask(reserve("r2", "d1", content(BLOG, cpu=5))).allowed


def test_an_environments_limit_does_not_concern_another() -> None:
    tenant = Tenant({STAGING: limits(cpu=0)})
    assert tenant.ask(reserve("r1", "d1", content(BLOG, cpu=6))).allowed


def test_each_dimension_is_held_against_its_own_limit() -> None:
    tenant = Tenant({TENANT: limits(cpu=10, memory=1)})
    assert tenant.ask(reserve("r1", "d1", content(cpu=10, memory=1))).allowed
    assert tenant.ask(reserve("r2", "d2", content(memory=1))).code is codes.MEMORY_EXCEEDED


def test_burst_is_held_against_the_limit_times_the_multiplier_rounded_down() -> None:
    resolved = resolve(Tenant({TENANT: limits(cpu=3)}).state, TENANT, NOW)[CPU]
    reserved, burst = (ceiling(resolved, info, Multipliers()) for info in GAUGES[:2])
    assert (reserved, burst) == (3, 4)


values = st.one_of(st.none(), st.integers(0, 9))
layers = st.dictionaries(st.sampled_from(Dimension), values)


@given(layers, layers, layers, layers, st.sampled_from(PLACES))
def test_rule_3_every_limit_comes_from_the_first_layer_that_has_it(
    override: dict[Dimension, int | None],
    plan: dict[Dimension, int | None],
    default: dict[Dimension, int | None],
    elsewhere: dict[Dimension, int | None],
    place: Place,
) -> None:
    other = PROD if place != PROD else STAGING
    tenant = Tenant(
        {place: _set(override), other: _set(elsewhere)} if place != TENANT else {TENANT: _set(override)},
        defaults=_set(default),
        entitlement=Entitlement(1, "pro", plan),
        policy=POLICY,
    )
    if place == TENANT:
        expected = {d: (v, "default") for d, v in default.items()}
        expected |= {d: (v, "plan") for d, v in plan.items()}
    else:
        expected = {}
    expected |= {d: (v, "override") for d, v in override.items()}
    assert {d: (r.value, r.source) for d, r in resolve(tenant.state, place, NOW).items()} == expected


def _set(layer: dict[Dimension, int | None]) -> dict[Dimension, Limit]:
    return {dimension: limit(value) for dimension, value in layer.items()}
