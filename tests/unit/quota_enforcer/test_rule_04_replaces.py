"""Rule 4 of several deployments: a replacement counts as one with what it replaces until its commit ends that."""

import pytest
from hypothesis import given
from tests.unit.quota_enforcer.histories import PLACES, Step, added_up, contents, histories, played

from plimsoll_contracts import codes
from plimsoll_contracts.enforcement import HoldState, SettleOutcome
from plimsoll_devkit.builders import (
    PROD,
    STAGING,
    Tenant,
    adjust,
    check,
    commit,
    content,
    fact,
    limits,
    release,
    reserve,
)
from plimsoll_quota_enforcer.domain.model import TENANT, Content, Gauge

CPU, MEMORY, STACKS = Gauge.CPU_RESERVED, Gauge.MEMORY_RESERVED, Gauge.STACKS


def running(limit: int, *cpus: int) -> Tenant:
    """A tenant with old deployments ``o0``, ``o1``, ... of so much cpu."""
    tenant = Tenant({TENANT: limits(cpu=limit)})
    for number, cpu in enumerate(cpus):
        tenant.run(f"o{number}", content(cpu=cpu), revision=3)
    return tenant


def test_an_upgrade_at_the_limit_is_judged_on_its_difference() -> None:
    tenant = running(10, 4, 6)
    assert tenant.ask(reserve("r1", "new", content(cpu=10), replaces=("o0", "o1"))).allowed
    assert (tenant.used(CPU), tenant.total(CPU)) == (10, 10)
    assert tenant.ask(check("other", content(cpu=1))).code is codes.CPU_EXCEEDED


def test_what_the_group_grows_by_is_what_is_asked() -> None:
    decision = running(10, 4, 5).ask(reserve("r1", "new", content(cpu=12), replaces=("o0", "o1")))
    (violation,) = decision.violations
    assert (violation.used, violation.held, violation.asked, violation.would_fit) == (9, 0, 3, 1)


def test_the_maximum_is_taken_in_each_dimension_by_itself() -> None:
    tenant = Tenant()
    tenant.run("old", content(cpu=8, memory=1))
    tenant.ask(reserve("r1", "new", content(cpu=2, memory=5), replaces=("old",)))
    assert (tenant.total(CPU), tenant.total(MEMORY)) == (8, 5)


def test_the_new_deployments_own_charge_counts_with_what_it_replaces() -> None:
    tenant = running(10, 4)
    tenant.run("new", content(cpu=3))
    assert tenant.ask(reserve("r1", "new", content(cpu=9), replaces=("o0",))).allowed
    assert tenant.total(CPU) == 9
    tenant.ask(release("x1", "r1"))
    tenant.ask(reserve("r0", "new", content(cpu=5), replaces=("o0",)))
    assert tenant.total(CPU) == 4 + 3
    tenant.ask(release("x0", "r0"))
    tenant.ask(reserve("r2", "new", content(cpu=5), replaces=("o0",), surge=True))
    assert tenant.total(CPU) == 4 + 5


def test_a_surge_counts_on_top_until_its_commit() -> None:
    tenant = running(10, 6)
    assert tenant.ask(check("new", content(cpu=5), replaces=("o0",), surge=True)).code is codes.CPU_EXCEEDED
    assert tenant.ask(reserve("r1", "new", content(cpu=4), replaces=("o0",), surge=True)).allowed
    assert (tenant.used(CPU), tenant.total(CPU)) == (6, 10)
    tenant.ask(commit("c1", "r1"))
    assert (tenant.used(CPU), tenant.total(CPU), tenant.charges["o0"].gone) == (4, 4, True)


def test_a_replacement_in_another_environment_is_new_there_and_nothing_more_at_the_tenant() -> None:
    tenant = Tenant({TENANT: limits(cpu=4)})
    tenant.run("old", content(STAGING, cpu=4))
    assert tenant.ask(reserve("r1", "new", content(PROD, cpu=4), replaces=("old",))).allowed
    assert [tenant.total(CPU, place) for place in (TENANT, STAGING, PROD)] == [4, 4, 4]
    tenant.ask(commit("c1", "r1"))
    assert [tenant.total(CPU, place) for place in (TENANT, STAGING, PROD)] == [4, 0, 4]


def test_a_replacement_in_a_full_environment_changes_nothing() -> None:
    tenant = Tenant({PROD: limits(cpu=3)})
    tenant.run("old", content(STAGING, cpu=4))
    assert not tenant.ask(reserve("r1", "new", content(PROD, cpu=4), replaces=("old",))).allowed
    assert [tenant.total(CPU, place) for place in (TENANT, STAGING, PROD)] == [4, 4, 0]
    assert not tenant.open_holds()


def test_members_are_a_union_not_a_maximum() -> None:
    tenant = Tenant({TENANT: limits(stacks=1)})
    tenant.run("old", content(("prod", "blog")))
    assert tenant.ask(check("new", content(("prod", "blog")), replaces=("old",))).allowed
    assert tenant.ask(check("new", content(("prod", "shop")), replaces=("old",))).code is codes.STACKS_EXCEEDED


def test_a_commit_ends_each_replaced_where_it_says_or_at_the_next_revision() -> None:
    tenant = running(10, 1, 2, 3)
    tenant.ask(reserve("r1", "new", content(cpu=6), replaces=("o0", "o1", "o2")))
    decision = tenant.ask(commit("c1", "r1", 7, replaced={"o0": 9, "o1": 2}))
    assert decision.settlement is not None
    assert (decision.settlement.revision, tenant.charges["new"].revision) == (7, 7)
    told = [(each.deployment, each.revision, each.outcome) for each in decision.replaced]
    assert told == [
        ("o0", 9, SettleOutcome.SETTLED),
        ("o1", 3, SettleOutcome.STALE),
        ("o2", 4, SettleOutcome.SETTLED),
    ]
    assert [tenant.charges[name].gone for name in ("o0", "o1", "o2")] == [True, False, True]
    assert tenant.used(CPU) == 6 + 2


def test_a_stale_commit_still_ends_what_it_replaces_and_a_conflict_ends_nothing() -> None:
    tenant = running(10, 1)
    tenant.ask(reserve("r1", "new", content(cpu=1), replaces=("o0",)))
    tenant.settle(fact("new", 5, content(cpu=2)))
    assert tenant.ask(commit("c1", "r1", 5)).code is codes.REVISION_CONFLICT
    assert (tenant.charges["o0"].gone, tenant.open_holds()) == (False, {"r1"})
    decision = tenant.ask(commit("c2", "r1", 4))
    assert decision.settlement is not None
    assert decision.settlement.outcome is SettleOutcome.STALE
    assert (tenant.charges["o0"].gone, tenant.used(CPU)) == (True, 2)


@pytest.mark.parametrize("ending", ["expiry", "release"])
def test_what_ends_without_a_commit_leaves_everything_as_it_was(ending: str) -> None:
    tenant = running(10, 4, 5)
    tenant.ask(reserve("r1", "new", content(PROD, cpu=10), replaces=("o0", "o1"), ttl_seconds=60))
    if ending == "release":
        tenant.ask(release("x1", "r1"))
    tenant.wait(61)
    tenant.sweep()
    assert (tenant.used(CPU), tenant.total(CPU), tenant.total(CPU, PROD)) == (9, 9, 0)
    assert not any(charge.gone for charge in tenant.charges.values())
    assert not tenant.state.open_holds


def test_a_late_commit_ends_what_it_replaces_also_where_another_hold_replaces_it_by_now() -> None:
    tenant = running(20, 4)
    tenant.ask(reserve("r1", "new", content(cpu=4), replaces=("o0",), ttl_seconds=60))
    tenant.wait(61)
    assert tenant.ask(reserve("r2", "newer", content(cpu=5), replaces=("o0",), ttl_seconds=60)).allowed
    tenant.ask(commit("c1", "r1"))
    assert tenant.charges["o0"].gone
    assert (tenant.used(CPU), tenant.total(CPU)) == (4, 4 + 5)
    tenant.ask(commit("c2", "r2"))
    assert (tenant.used(CPU), tenant.total(CPU)) == (9, 9)


def test_what_is_replaced_may_be_unknown_gone_or_told_of_later() -> None:
    tenant = running(10, 4)
    tenant.settle(fact("o0", 4, None))
    assert tenant.ask(reserve("r1", "new", content(cpu=6), replaces=("o0", "late"))).allowed
    assert tenant.total(CPU) == 6
    tenant.settle(fact("late", 1, content(cpu=5)))
    assert (tenant.used(CPU), tenant.total(CPU)) == (5, 6)
    decision = tenant.ask(commit("c1", "r1"))
    assert [(each.deployment, each.revision) for each in decision.replaced] == [("o0", 5), ("late", 2)]
    assert (tenant.used(CPU), tenant.total(CPU)) == (6, 6)
    tenant.settle(fact("late", 1, content(cpu=5)))
    assert tenant.used(CPU) == 6


def test_a_deployment_is_in_at_most_one_open_hold_as_target_or_as_replaced() -> None:
    tenant = running(100, 1, 1)
    assert tenant.ask(reserve("r1", "new", content(cpu=2), replaces=("o0",))).allowed
    for deployment, replaces in (("o0", ()), ("x", ("o0",)), ("x", ("new",)), ("new", ()), ("x", ("o1", "o0"))):
        decision = tenant.ask(check(deployment, content(cpu=1), replaces=replaces))
        assert (decision.code, "r1" in decision.message) == (codes.HOLD_OPEN, True)
    assert tenant.ask(check("x", content(cpu=1), replaces=("o1",))).allowed


def test_what_a_hold_binds_is_bound_and_freed_within_one_batch_too() -> None:
    tenant = running(100, 1)
    asks = [
        reserve("r1", "new", content(cpu=2), replaces=("o0",)),
        reserve("r2", "o0", content(cpu=1)),
        release("x1", "r1"),
        reserve("r3", "o0", content(cpu=2)),
    ]
    assert [decision.code for decision in tenant.batch(asks)] == [None, codes.HOLD_OPEN, None, None]


def test_superseding_closes_the_old_group_and_frees_whom_the_new_one_does_not_name() -> None:
    tenant = running(10, 3, 4)
    tenant.ask(reserve("r1", "new", content(cpu=10), replaces=("o0", "o1")))
    refused = tenant.ask(reserve("r2", "new", content(cpu=7), replaces=("o0",), supersedes="r1"))
    assert (refused.code, tenant.open_holds()) == (codes.CPU_EXCEEDED, {"r1"})  # o1 no longer makes room for it
    assert tenant.ask(reserve("r3", "new", content(cpu=6), replaces=("o0",), supersedes="r1")).allowed
    assert (tenant.total(CPU), tenant.open_holds()) == (10, {"r3"})
    assert tenant.holds["r1"].state is HoldState.RELEASED
    assert set(tenant.state.open_holds) == {"new", "o0"}


def test_superseding_one_of_two_holds_is_no_way_around_the_other() -> None:
    tenant = running(100, 1, 1)
    tenant.ask(reserve("r1", "a", content(cpu=1), replaces=("o0",)))
    tenant.ask(reserve("r2", "b", content(cpu=1), replaces=("o1",)))
    decision = tenant.ask(reserve("r3", "c", content(cpu=1), replaces=("o0", "o1"), supersedes="r1"))
    assert (decision.code, tenant.open_holds()) == (codes.HOLD_OPEN, {"r1", "r2"})


def test_scaling_up_and_down_and_the_same_id_twice_is_charged_once() -> None:
    tenant = Tenant({TENANT: limits(cpu=6)})
    for number, cpu in enumerate((2, 6, 3, 6)):
        assert tenant.ask(reserve(f"r{number}", "web", content(cpu=cpu))).allowed
        assert tenant.ask(commit(f"c{number}", f"r{number}")).allowed
        assert (tenant.used(CPU), tenant.total(CPU)) == (cpu, cpu)


def test_parked_gives_back_and_resumed_takes_again() -> None:
    tenant = Tenant({TENANT: limits(cpu=6)})
    tenant.run("web", content(cpu=6))
    tenant.ask(adjust("park", "web", content()))
    assert tenant.total(CPU) == 0
    assert tenant.ask(reserve("r1", "web", content(cpu=6))).allowed
    assert not tenant.ask(check("other", content(cpu=1))).allowed


def test_a_fact_about_a_replaced_deployment_moves_the_group() -> None:
    tenant = running(100, 4)
    tenant.ask(reserve("r1", "new", content(cpu=6), replaces=("o0",)))
    tenant.settle(fact("o0", 4, content(cpu=9)))
    assert (tenant.used(CPU), tenant.total(CPU)) == (9, 9)
    tenant.settle(fact("o0", 5, None))
    assert (tenant.used(CPU), tenant.total(CPU)) == (0, 6)


@given(histories, contents)
def test_rule_4_a_replacement_taken_back_leaves_what_was_before(history: list[Step], target: Content) -> None:
    tenant = played([*history, *[Step("wait", "", content(), 0)] * 2])
    tenant.sweep()
    before, charges = {place: added_up(tenant, place) for place in PLACES}, dict(tenant.charges)
    surge = bool(target.footprint.vapps % 2)
    assert tenant.ask(reserve("new", "d9", target, replaces=("d1", "d2"), surge=surge)).allowed
    tenant.ask(release("back", "new"))
    assert {place: added_up(tenant, place) for place in PLACES} == before
    assert tenant.charges == charges


@given(histories, contents)
def test_rule_4_after_the_commit_only_the_new_one_is_left_of_a_group(history: list[Step], target: Content) -> None:
    tenant = played([*history, *[Step("wait", "", content(), 0)] * 2])
    tenant.sweep()
    tenant.ask(reserve("new", "d9", target, replaces=("d1", "d2", "d3")))
    tenant.ask(commit("done", "new"))
    live = {name for name, charge in tenant.charges.items() if not charge.gone}
    assert live <= {"d9", "unknown"}
    assert tenant.charges["d9"].content.footprint == target.footprint
