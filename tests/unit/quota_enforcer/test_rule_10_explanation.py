"""Rule 10: a denial explains itself with figures that add up; in shadow mode the same is told and let through."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import Step, added_up, contents, deployments, histories, limit_tables, played

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Basis, Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_devkit.builders import (
    BLOG,
    NOW,
    POLICY,
    PROD,
    Tenant,
    check,
    commit,
    content,
    limit,
    limits,
    reserve,
)
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.model import BUILT_IN, TENANT, Content, Entitlement, Footprint, Gauge, Place

CPU = Dimension.CPU


def test_a_denial_reads_as_it_should() -> None:
    tenant = Tenant({PROD: limits(cpu=4000)})
    tenant.run("d1", content(BLOG, cpu=3200))
    tenant.ask(reserve("r1", "d2", content(BLOG, cpu=500)))
    decision = tenant.ask(reserve("r2", "d3", content(BLOG, cpu=500)))
    told = answers.reply(decision, NOW)
    assert (told.code, told.status) == ("X403001CPUEXC", 403)
    assert told.message == (
        "acme/env:prod cpu (reserved): limit 4000m  used 3200m  held 500m  asked 500m  would fit 300m"
    )
    (violation,) = told.violations
    assert (violation.scope, violation.dimension, violation.basis) == ("acme/env:prod", CPU, Basis.RESERVED)
    assert (violation.limit, violation.limit_source, violation.limit_set_by) == (4000, "override", "alice")
    assert (violation.used, violation.held, violation.asked, violation.headroom) == (3200, 500, 500, 300)


def test_headroom_of_a_scope_that_is_over_is_negative_and_nothing_would_fit() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.run("d1", content(cpu=18))
    (reserved, burst) = tenant.ask(reserve("r1", "d2", content(cpu=1))).violations
    assert (reserved.headroom, reserved.would_fit) == (-8, 0)
    assert (burst.ceiling, burst.headroom) == (15, -3)


def test_what_would_fit_is_said_for_the_whole_request_not_for_its_last_part() -> None:
    tenant = Tenant({TENANT: limits(disk=20)})
    decision = tenant.ask(reserve("r1", "d1", content(disk=30)))
    assert [(v.asked, v.would_fit) for v in decision.violations] == [(30, 20)]


def test_a_request_in_shadow_mode_is_let_through_and_told() -> None:
    tenant = Tenant({TENANT: limits(cpu=1)})
    enforced = tenant.ask(check("d1", content(cpu=2)))
    shadow = tenant.ask(reserve("r1", "d1", content(cpu=2), mode=Mode.SHADOW))
    assert (shadow.allowed, shadow.would_deny, shadow.code) == (True, True, None)
    assert shadow.violations == enforced.violations
    assert tenant.open_holds() == {"r1"}


def test_a_gate_is_let_through_in_shadow_mode_too() -> None:
    ended = Entitlement(1, "none", ended=True)
    tenant = Tenant(entitlement=ended, policy=POLICY)
    decision = tenant.ask(reserve("r1", "d1", content(cpu=2), mode=Mode.SHADOW))
    assert (decision.allowed, decision.would_deny) == (True, True)


def test_a_limit_in_shadow_mode_is_told_and_does_not_hide_one_that_is_enforced() -> None:
    tenant = Tenant({PROD: {CPU: limit(1, mode=Mode.SHADOW)}, TENANT: limits(memory=1)})
    through = tenant.ask(reserve("r1", "d1", content(PROD, cpu=2)))
    assert (through.allowed, through.would_deny) == (True, True)
    assert {v.shadow for v in through.violations} == {True}
    refused = tenant.ask(reserve("r2", "d2", content(PROD, cpu=2, memory=2)))
    assert (refused.allowed, refused.would_deny, refused.code) == (False, False, codes.MEMORY_EXCEEDED)
    assert [v.shadow for v in refused.violations] == [True, True, False, False]


def test_nothing_is_said_to_have_been_denied_when_all_fits() -> None:
    decision = Tenant({TENANT: limits(cpu=2)}).ask(reserve("r1", "d1", content(cpu=2), mode=Mode.SHADOW))
    assert (decision.would_deny, decision.violations) == (False, ())


@given(histories, limit_tables, deployments, contents)
def test_rule_10_the_figures_of_every_violation_add_up(
    history: list[Step], table: dict[Place, dict[Dimension, object]], deployment: str, target: Content
) -> None:
    tenant = played(history, table)
    for violation in tenant.ask(check(deployment, target)).violations:
        used, total = added_up(tenant, violation.place)
        gauge = violation.info.gauge
        assert (violation.used, violation.held) == (used[gauge], total[gauge] - used[gauge])
        assert violation.headroom == violation.ceiling - violation.used - violation.held
        assert violation.asked > violation.headroom
        assert violation.would_fit == max(0, violation.headroom)


_FIELDS = ("cpu", "cpu", "memory", "memory", "disk", "vapps")


@given(histories, limit_tables, contents, st.integers(0, 3))
def test_rule_10_what_would_fit_is_the_most_that_fits(
    history: list[Step], table: dict[Place, dict[Dimension, object]], target: Content, extra: int
) -> None:
    """Ask again for a new deployment with exactly what was said to fit, and with one more."""
    tenant = played(history, table)
    target = replace(target, multipliers=BUILT_IN)
    big = replace(target, footprint=Footprint.plain(cpu=9 + extra, memory=9, disk=9, vapps=9))
    for violation in tenant.ask(check("another", big)).violations:
        gauge = violation.info.gauge
        if gauge > Gauge.VAPPS:
            continue
        for amount, fits in ((violation.would_fit, True), (violation.would_fit + 1, False)):
            less = replace(target, footprint=Footprint.plain(**{_FIELDS[gauge]: amount}))
            again = tenant.ask(check("another", less)).violations
            assert ((violation.place, gauge) not in {(v.place, v.info.gauge) for v in again}) is fits


@given(histories, limit_tables, deployments, contents)
def test_rule_10_shadow_says_what_enforcing_would_have_said(
    history: list[Step], table: dict[Place, dict[Dimension, object]], deployment: str, target: Content
) -> None:
    tenant = played(history, table)
    enforced = tenant.ask(check(deployment, target))
    shadow = tenant.ask(check(deployment, target, mode=Mode.SHADOW))
    if enforced.code is codes.HOLD_OPEN:
        assert shadow.code is codes.HOLD_OPEN
        return
    assert (shadow.allowed, shadow.would_deny) == (True, not enforced.allowed)
    assert shadow.violations == enforced.violations


def test_a_late_commit_has_no_violations_to_explain() -> None:
    tenant = Tenant({TENANT: limits(cpu=1)})
    tenant.ask(reserve("r1", "d1", content(cpu=2), mode=Mode.SHADOW))
    assert tenant.ask(commit("c1", "r1")).violations == ()
