"""Reported failures of counting, holding and refusing, each asked of ours. ``test_t`` and a number name the case."""

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_devkit.builders import (
    POLICY,
    Tenant,
    adjust,
    check,
    commit,
    content,
    fact,
    limit,
    limits,
    release,
    reserve,
)
from plimsoll_quota_enforcer.domain.decide import decide
from plimsoll_quota_enforcer.domain.model import TENANT, Gauge

CPU, DISK, STACKS = Gauge.CPU_RESERVED, Gauge.DISK, Gauge.STACKS
GIB = 2**30
PROD, STAGING = ("prod", ""), ("staging", "")


def test_t2_one_tenant_limit_binds_both_environments_together() -> None:
    tenant = Tenant({TENANT: limits(stacks=10)})
    stacks = [("staging" if n % 2 else "prod", f"s{n}") for n in range(20)]
    decisions = tenant.batch([reserve(f"r{n}", f"d{n}", content(place)) for n, place in enumerate(stacks)])
    assert sum(decision.allowed for decision in decisions) == tenant.total(STACKS) == 10


def test_t5_deciding_a_batch_again_turns_no_denial_into_a_yes() -> None:
    tenant = Tenant({TENANT: limits(memory=5), PROD: limits(cpu=5)})
    asks = [reserve("a", "d1", content(memory=6)), reserve("b", "d2", content(PROD, cpu=1))]
    first, again = (decide(tenant.state, asks, tenant.now, POLICY).decisions for _ in range(2))
    assert first == again
    assert [decision.allowed for decision in again] == [False, True]


def test_t6_where_there_is_room_nobody_is_told_of_a_conflict() -> None:
    tenant = Tenant({TENANT: limits(vapps=50)})
    decisions = tenant.batch([reserve(f"r{n}", f"d{n}", content(vapps=1)) for n in range(12)])
    assert [(decision.allowed, decision.code) for decision in decisions] == [(True, None)] * 12


def test_t8_a_denial_at_the_stack_raises_nothing_above_it() -> None:
    tenant = Tenant({("prod", "blog"): limits(vapps=0), TENANT: limits(vapps=9)})
    assert not tenant.ask(reserve("r1", "d1", content(("prod", "blog"), vapps=1))).allowed
    assert [tenant.total(Gauge.VAPPS, place) for place in (("prod", "blog"), PROD, TENANT)] == [0, 0, 0]


def test_t11_what_counts_is_use_and_request_together_not_whether_it_is_full_already() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.run("d1", content(cpu=9))
    assert tenant.ask(reserve("r1", "d2", content(cpu=10))).code is codes.CPU_EXCEEDED


def test_t12_room_in_the_environment_is_no_room_in_the_tenant() -> None:
    tenant = Tenant({PROD: limits(memory=8 * GIB), TENANT: limits(memory=6 * GIB)})
    tenant.settle(fact("d1", 1, content(PROD, memory=4 * GIB)), fact("d2", 1, content(STAGING, memory=GIB)))
    decision = tenant.ask(reserve("r1", "d3", content(PROD, memory=2 * GIB)))
    assert decision.code is codes.MEMORY_EXCEEDED
    assert [violation.place for violation in decision.violations] == [TENANT]


def test_t13_requests_that_exclude_each_other_do_not_all_lose() -> None:
    tenant = Tenant({TENANT: limits(cpu=100)})
    sizes = (70, 90, 20)
    decisions = tenant.batch([reserve(f"r{size}", f"d{size}", content(cpu=size)) for size in sizes])
    assert [decision.allowed for decision in decisions] == [True, False, True]
    assert tenant.total(CPU) == 90


def test_t15_one_request_too_large_blocks_nobody_behind_it() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    large, small = tenant.batch([reserve("r1", "d1", content(cpu=100)), reserve("r2", "d2", content(cpu=1))])
    assert (large.allowed, small.allowed) == (False, True)


def test_t17_creating_what_exists_a_hundred_times_is_charged_once() -> None:
    tenant = Tenant({TENANT: limits(cpu=3)})
    for number in range(100):
        assert tenant.ask(reserve(f"r{number}", "blog", content(("prod", "blog"), cpu=2))).allowed
        assert tenant.ask(commit(f"c{number}", f"r{number}")).allowed
    assert (tenant.used(CPU), tenant.total(CPU), tenant.used(STACKS)) == (2, 2, 1)


def test_t21_a_delete_that_fails_gives_nothing_back() -> None:
    tenant = Tenant({TENANT: limits(cpu=2)})
    tenant.run("d1", content(cpu=2))
    assert tenant.ask(reserve("delete", "d1", content())).allowed
    assert not tenant.ask(check("d2", content(cpu=1))).allowed
    tenant.ask(release("failed", "delete"))
    assert (tenant.used(CPU), tenant.total(CPU)) == (2, 2)


def test_t22_deleted_and_then_purged_is_given_back_once() -> None:
    tenant = Tenant()
    tenant.settle(fact("d1", 1, content(vapps=1)), fact("d2", 1, content(vapps=1)))
    tenant.settle(fact("d1", 2, None), fact("d1", 3, None))
    tenant.ask(adjust("purge", "d1", None))
    assert tenant.used(Gauge.VAPPS) == 1


def test_t23_stopped_and_evicted_is_credited_once() -> None:
    tenant = Tenant({TENANT: limits(vapps=4)})
    tenant.settle(*(fact(f"d{n}", 1, content(vapps=1)) for n in range(4)))
    tenant.settle(fact("d1", 2, None))
    tenant.settle(fact("d1", 2, None), fact("d1", 3, None))
    assert tenant.used(Gauge.VAPPS) == 3
    assert not tenant.ask(reserve("r1", "d9", content(vapps=2))).allowed


def test_t33_far_over_its_limit_a_tenant_may_shrink_and_stay_but_not_grow() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.run("d1", content(cpu=18))
    assert [tenant.ask(check("d1", content(cpu=cpu))).allowed for cpu in (16, 18, 19)] == [True, True, False]


def test_t45_what_lies_in_an_environment_counts_once_at_its_tenant() -> None:
    tenant = Tenant({TENANT: limits(cpu=4), PROD: limits(cpu=2), STAGING: limits(cpu=2)})
    places = (("prod", "a"), ("prod", "b"), ("staging", "a"), ("staging", "b"), ("staging", "c"))
    decisions = tenant.batch([reserve(f"r{n}", f"d{n}", content(place, cpu=1)) for n, place in enumerate(places)])
    assert [decision.allowed for decision in decisions] == [True] * 4 + [False]
    assert tenant.total(CPU) == 4


def test_t46_a_denial_has_the_figures_of_the_scope_that_denied() -> None:
    tenant = Tenant({TENANT: limits(cpu=4000), ("a", ""): limits(cpu=4000)})
    tenant.settle(fact("d1", 1, content(("a", ""), cpu=512)), fact("d2", 1, content(("b", ""), cpu=2048)))
    (violation,) = tenant.ask(check("d3", content(("a", ""), cpu=2048))).violations
    assert violation.place == TENANT
    assert (violation.used, violation.ceiling, violation.headroom) == (2560, 4000, 1440)


def test_t49_all_that_is_exceeded_is_told_and_the_code_is_always_the_first() -> None:
    tenant = Tenant({TENANT: limits(stacks=0, memory=1, cpu=1)})
    for number in range(3):
        decision = tenant.ask(reserve(f"r{number}", "d1", content(("prod", "blog"), memory=9, cpu=9)))
        told = [violation.info.dimension for violation in decision.violations]
        assert list(dict.fromkeys(told)) == [Dimension.CPU, Dimension.MEMORY, Dimension.STACKS]
        assert decision.code is codes.CPU_EXCEEDED


def test_t50_what_is_told_as_asked_is_the_whole() -> None:
    decision = Tenant({TENANT: limits(disk=20 * GIB)}).ask(check("d1", content(disk=3 * 10 * GIB)))
    assert decision.violations[0].asked == 30 * GIB


def test_t51_a_move_takes_its_usage_along_or_does_not_happen() -> None:
    tenant = Tenant({PROD: limits(cpu=3)})
    tenant.run("blog", content(("staging", "blog"), cpu=3))
    tenant.ask(reserve("r1", "blog", content(("prod", "blog"), cpu=3)))
    tenant.ask(commit("c1", "r1"))
    assert [tenant.used(CPU, place) for place in (STAGING, PROD, TENANT)] == [0, 3, 3]
    tenant.run("shop", content(("staging", "shop"), cpu=1))
    assert not tenant.ask(reserve("r2", "shop", content(("prod", "shop"), cpu=1))).allowed
    assert [tenant.total(CPU, place) for place in (STAGING, PROD, TENANT)] == [1, 3, 4]


def test_t53_a_name_used_again_starts_from_nothing_and_old_facts_do_not_come_back() -> None:
    tenant = Tenant()
    tenant.settle(fact("d1", 1, content(PROD, cpu=5)), fact("d1", 2, None))
    assert tenant.used(CPU) == 0
    assert tenant.ask(reserve("r1", "d1", content(PROD, cpu=1))).allowed
    assert tenant.ask(commit("c1", "r1")).allowed
    tenant.settle(fact("d1", 1, content(PROD, cpu=5)), fact("d1", 2, None))
    assert (tenant.used(CPU), tenant.charges["d1"].revision) == (1, 3)


@pytest.mark.parametrize("dimension", Dimension)
def test_t55_a_dry_check_says_what_the_reserve_will_say(dimension: Dimension) -> None:
    whole = content(("prod", "blog"), "web", cpu=2, memory=2, disk=2, vapps=2)
    tenant = Tenant({TENANT: {dimension: limit(0)}})
    checked, reserved = tenant.ask(check("d1", whole)), tenant.ask(reserve("r1", "d1", whole))
    assert (checked.allowed, checked.code) == (False, codes.EXCEEDED[dimension])
    assert checked.violations == reserved.violations


def test_t63_what_ran_before_a_restart_counts_again_once_it_runs_again() -> None:
    tenant = Tenant({TENANT: limits(cpu=48)})
    tenant.settle(*(fact(f"d{n}", 1, content(cpu=16)) for n in range(3)))
    tenant.settle(fact("d0", 2, None), fact("d1", 2, None))
    assert tenant.used(CPU) == 16
    tenant.settle(*(fact(f"d{n}", 3, content(cpu=16)) for n in range(3)))
    assert tenant.used(CPU) == 48


def test_t68_replacing_what_a_lost_node_ran_is_not_charged_twice() -> None:
    tenant = Tenant({TENANT: limits(cpu=16)})
    tenant.run("d1", content(cpu=16))
    assert tenant.ask(reserve("r1", "d1", content(cpu=16))).allowed
    assert tenant.ask(commit("c1", "r1")).allowed
    assert tenant.used(CPU) == 16


def test_t69_one_admitted_and_another_deleted_at_once_leaves_nothing_held() -> None:
    tenant = Tenant()
    tenant.run("old", content(cpu=2))
    tenant.ask(reserve("r1", "new", content(cpu=2)))
    tenant.settle(fact("old", 2, None))
    tenant.ask(commit("c1", "r1"))
    assert (tenant.used(CPU), tenant.total(CPU), tenant.open_holds()) == (2, 2, set())


@pytest.mark.parametrize("dimension", Dimension)
def test_t77_no_way_in_forgets_a_dimension(dimension: Dimension) -> None:
    """Create, scale, move in, and resume after having been gone."""
    whole = content(("prod", "blog"), "web", cpu=2, memory=2, disk=2, vapps=2)
    moved = content(("staging", "shop"), "db", cpu=3, memory=3, disk=3, vapps=3)
    create, resume = Tenant({TENANT: {dimension: limit(0)}}), Tenant({TENANT: {dimension: limit(0)}})
    resume.settle(fact("d1", 1, whole), fact("d1", 2, None))
    scale = Tenant({TENANT: {dimension: limit(1)}})
    scale.run("d1", content(("prod", "blog"), "web", cpu=1, memory=1, disk=1, vapps=1))
    for tenant in (create, resume, scale):
        for target in (whole, moved) if tenant is not scale else (moved,):
            assert tenant.ask(check("d1", target)).code is codes.EXCEEDED[dimension]


def test_t79_what_was_parked_is_judged_when_it_resumes() -> None:
    tenant = Tenant({TENANT: limits(cpu=4)})
    tenant.run("parked", content(cpu=4))
    tenant.ask(adjust("park", "parked", content()))
    assert tenant.ask(reserve("r1", "other", content(cpu=4))).allowed
    assert tenant.ask(reserve("r2", "parked", content(cpu=4))).code is codes.CPU_EXCEEDED


def test_t99_usage_does_not_depend_on_what_was_kept_of_it() -> None:
    tenant = Tenant(carried=True)
    for number in range(20):
        tenant.ask(reserve(f"r{number}", f"d{number % 7}", content(PROD, f"a{number % 3}", cpu=number)))
        if number % 3:
            tenant.ask(commit(f"c{number}", f"r{number}"))
    for place in (TENANT, PROD):
        assert tenant.state.tally.usage(place) == tenant.folded.tally.usage(place)
