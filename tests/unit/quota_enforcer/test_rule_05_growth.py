"""Rule 5: gates and limits judge only growth, and only in check and reserve; shrinking is always allowed."""

from dataclasses import replace

import pytest
from hypothesis import given
from tests.unit.quota_enforcer.histories import PLACES, Step, contents, deployments, histories, limit_tables, played

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_devkit.builders import (
    BLOG,
    POLICY,
    Tenant,
    adjust,
    check,
    commit,
    content,
    limits,
    release,
    reserve,
)
from plimsoll_quota_enforcer.domain.model import TENANT, Content, Entitlement, Footprint, Gauge, Place

NOTHING_LEFT = {place: limits(cpu=0, memory=0, disk=0, apps=0, vapps=0) for place in PLACES}
ENDED = Entitlement(9, "none", deployments=False, blocked=frozenset(Dimension), ended=True)


def over(used: int = 18, top: int = 10) -> Tenant:
    tenant = Tenant({TENANT: limits(cpu=top)})
    tenant.run("d1", content(cpu=used))
    return tenant


@pytest.mark.parametrize(("cpu", "allowed"), [(16, True), (18, True), (19, False), (0, True)])
def test_far_over_its_limit_a_deployment_may_shrink_or_stay(cpu: int, *, allowed: bool) -> None:
    assert over().ask(reserve("r1", "d1", content(cpu=cpu))).allowed is allowed


def test_exactly_the_limit_fits_and_one_more_does_not() -> None:
    tenant = over(used=7)
    assert not tenant.ask(reserve("r1", "d2", content(cpu=4))).allowed
    assert tenant.ask(reserve("r2", "d2", content(cpu=3))).allowed


def test_a_dimension_that_does_not_grow_is_not_judged() -> None:
    tenant = Tenant({TENANT: limits(cpu=10, memory=10)})
    tenant.run("d1", content(cpu=18, memory=1))
    assert tenant.ask(reserve("r1", "d1", content(cpu=18, memory=2))).allowed


def test_facts_go_over_a_limit_and_are_told() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    decision = tenant.ask(adjust("a1", "d1", content(cpu=11)))
    assert (decision.allowed, decision.over_limit, decision.violations) == (True, True, ())


def test_a_shrink_passes_gates_that_deny() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)}, policy=POLICY)
    tenant.run("d1", content(BLOG, "web", cpu=8))
    tenant.entitlement = ENDED
    decision = tenant.ask(reserve("r1", "d1", content(BLOG, "web", cpu=7)))
    assert (decision.allowed, decision.gates) == (True, ())
    assert tenant.ask(reserve("r2", "d2", content(cpu=1))).code is codes.ENTITLEMENT_ENDED


@given(histories, deployments, contents)
def test_rule_5_facts_and_closings_are_never_refused_by_limits(
    history: list[Step], deployment: str, what: Content
) -> None:
    tenant = played(history)
    tenant.limits, tenant.entitlement, tenant.policy = dict(NOTHING_LEFT), ENDED, POLICY
    asks = [adjust("a", deployment, what), adjust("b", deployment, None)]
    asks += [commit(f"c{hold}", hold) for hold in sorted(tenant.open_holds())[:1]]
    asks += [release(f"x{hold}", hold) for hold in sorted(tenant.open_holds())[1:]]
    for decision in tenant.batch(asks):
        assert (decision.allowed, decision.violations, decision.gates) == (True, (), ())


@given(histories, deployments)
def test_rule_5_what_grows_nowhere_is_always_allowed(history: list[Step], deployment: str) -> None:
    tenant = played(history)
    for _ in range(3):
        tenant.wait(31)
    tenant.sweep()
    charge = tenant.charges.get(deployment)
    if charge is None or charge.gone:
        return
    tenant.limits, tenant.entitlement, tenant.policy = dict(NOTHING_LEFT), ENDED, POLICY
    footprint = charge.content.footprint
    half = Footprint.plain(cpu=footprint.cpu_reserved // 2, memory=footprint.memory_reserved, disk=0, vapps=0)
    smaller = replace(charge.content, footprint=half)
    assert tenant.ask(check(deployment, smaller)).allowed
    assert tenant.ask(reserve("new", deployment, smaller)).allowed
    assert tenant.ask(commit("done", "new")).allowed


@given(histories, limit_tables, deployments, contents)
def test_rule_5_allowed_means_that_nothing_that_rose_is_above_its_limit(
    history: list[Step], table: dict[Place, dict[Dimension, object]], deployment: str, target: Content
) -> None:
    tenant = played(history, table)
    before = {place: tenant.state.tally.usage(place).total for place in PLACES}
    decision = tenant.ask(reserve("new", deployment, target))
    if not decision.allowed:
        return
    for place in PLACES:
        after = tenant.state.tally.usage(place).total
        for dimension, gauges in GAUGES_OF.items():
            top = tenant.limits.get(place, {}).get(dimension)
            if top is None or top.value is None:
                continue
            for gauge, numerator in gauges:
                assert after[gauge] <= max(before[place][gauge], top.value * numerator // 2)


GAUGES_OF = {
    Dimension.CPU: ((Gauge.CPU_RESERVED, 2), (Gauge.CPU_BURST, 3)),
    Dimension.MEMORY: ((Gauge.MEMORY_RESERVED, 2), (Gauge.MEMORY_BURST, 3)),
    Dimension.DISK: ((Gauge.DISK, 2),),
    Dimension.APPS: ((Gauge.APPS, 2),),
    Dimension.VAPPS: ((Gauge.VAPPS, 2),),
}
