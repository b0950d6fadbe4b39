"""Rule 6: all scopes are written together or not at all; a refusal changes nothing."""

import copy
from dataclasses import replace

from hypothesis import given
from tests.unit.quota_enforcer.histories import Step, contents, deployments, histories, limit_tables, played, rows

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_devkit.builders import (
    BLOG,
    NO_BILLING,
    PROD,
    Tenant,
    check,
    commit,
    content,
    limits,
    reserve,
)
from plimsoll_quota_enforcer.domain.decide import decide
from plimsoll_quota_enforcer.domain.model import TENANT, Content, Gauge, Place, chain
from plimsoll_quota_enforcer.domain.state import TenantState

CPU = Gauge.CPU_RESERVED


def test_a_full_stack_leaves_its_environment_and_tenant_alone() -> None:
    tenant = Tenant({BLOG: limits(cpu=1), TENANT: limits(cpu=100)})
    before = rows(tenant)
    decision = tenant.ask(reserve("r1", "d1", content(BLOG, cpu=2)))
    assert not decision.allowed
    assert tenant.changes == []
    assert [tenant.total(CPU, place) for place in (BLOG, PROD, TENANT)] == [0, 0, 0]
    assert (rows(tenant)[:2], tenant.seq) == (before[:2], before[4])


def test_an_allowed_reserve_counts_at_all_three_scopes() -> None:
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(BLOG, cpu=2)))
    assert [tenant.total(CPU, place) for place in chain(BLOG)] == [2, 2, 2]


def test_a_refused_request_does_not_stand_in_the_way_of_the_next() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    first, second = tenant.batch([reserve("r1", "d1", content(cpu=100)), reserve("r2", "d1", content(cpu=1))])
    assert (first.code, second.allowed) == (codes.CPU_EXCEEDED, True)


def test_a_check_writes_nothing_and_stores_nothing() -> None:
    tenant = Tenant()
    before = rows(tenant)
    assert tenant.ask(check("d1", content(BLOG, cpu=2))).allowed
    assert rows(tenant) == before


def test_one_request_of_a_batch_sees_those_before_it() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    r1, c1, r2, r3 = tenant.batch(
        [
            reserve("r1", "d1", content(cpu=6)),
            commit("c1", "r1"),
            reserve("r2", "d2", content(cpu=5)),
            reserve("r3", "d1", content(cpu=10)),
        ]
    )
    assert [decision.allowed for decision in (r1, c1, r2, r3)] == [True, True, False, True]


@given(histories, limit_tables, deployments, contents)
def test_rule_6_a_refusal_changes_nothing(
    history: list[Step], table: dict[Place, dict[Dimension, object]], deployment: str, target: Content
) -> None:
    tenant = played(history, table)
    tenant.sweep()
    before = rows(tenant)
    decision = tenant.ask(reserve("new", deployment, target))
    after = rows(tenant)
    if decision.allowed:
        assert decision.hold is not None
        assert tenant.open_holds() >= {"new"}
    else:
        assert decision.hold is None
        assert (after[0], after[1], after[3], after[4]) == (before[0], before[1], before[3], before[4])


@given(histories, limit_tables, deployments, contents)
def test_rule_6_check_and_reserve_say_the_same(
    history: list[Step], table: dict[Place, dict[Dimension, object]], deployment: str, target: Content
) -> None:
    tenant = played(history, table)
    checked = tenant.ask(check(deployment, target))
    reserved = tenant.ask(reserve("new", deployment, target))
    assert (checked.allowed, checked.code, checked.violations) == (
        reserved.allowed,
        reserved.code,
        reserved.violations,
    )


@given(histories, contents)
def test_rule_6_the_state_that_was_given_is_never_written(history: list[Step], target: Content) -> None:
    tenant = played(history)
    state = tenant.state
    kept = copy.deepcopy(state)
    open_hold = state.open_holds.get("d1")
    asks = [reserve("new", "d1", target, supersedes=open_hold), commit("done", "new"), reserve("more", "d9", target)]
    decide(state, asks, tenant.now, NO_BILLING, tenant.nodes)
    assert _figures(state) == _figures(kept)
    assert replace(state, tally=kept.tally) == kept


def _figures(state: TenantState) -> dict[Place, object]:
    return {place: state.tally.usage(place) for place in state.tally.places()}
