"""Rule 2: every violation is collected; the code is the first in one documented order, the same on every run."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import Step, contents, histories, limit_tables, played

from plimsoll_contracts import codes
from plimsoll_contracts.codes import EXCEEDED
from plimsoll_contracts.dimensions import Basis, Dimension
from plimsoll_devkit.builders import BLOG, NO_BILLING, NOW, POLICY, PROD, Tenant, check, content, limits, reserve
from plimsoll_quota_enforcer.domain.decide import decide
from plimsoll_quota_enforcer.domain.model import TENANT, Content, Entitlement, Place
from plimsoll_quota_enforcer.domain.state import Decision

NONE_LEFT = limits(cpu=0, memory=0, disk=0, vapps=0, apps=0)
ORDER = ["cpu", "cpu", "memory", "memory", "disk", "stacks", "environments", "apps", "vapps"]
EVERYTHING = content(BLOG, "web", cpu=1, memory=1, disk=1, vapps=1)


def told(decision: Decision) -> list[tuple[Place, str]]:
    return [(violation.place, violation.info.dimension.value) for violation in decision.violations]


def test_all_violations_are_told_stack_before_environment_before_tenant() -> None:
    tenant = Tenant({TENANT: NONE_LEFT | limits(stacks=0, environments=0), PROD: NONE_LEFT, BLOG: NONE_LEFT})
    decision = tenant.ask(reserve("r1", "d1", EVERYTHING))
    at = [name for name in ORDER if name not in ("stacks", "environments")]
    assert told(decision) == [(BLOG, n) for n in at] + [(PROD, n) for n in at] + [(TENANT, n) for n in ORDER]
    assert decision.code is codes.CPU_EXCEEDED
    assert [v.info.basis for v in decision.violations[:2]] == [Basis.RESERVED, Basis.BURST]


def test_the_code_is_that_of_the_most_specific_scope() -> None:
    tenant = Tenant({TENANT: limits(cpu=0), BLOG: limits(vapps=0)})
    assert tenant.ask(reserve("r1", "d1", EVERYTHING)).code is codes.VAPPS_EXCEEDED


def test_a_missing_feature_is_told_before_a_block_and_a_block_before_a_limit() -> None:
    plan = Entitlement(1, "free", deployments=False, blocked=frozenset({Dimension.CPU}))
    tenant = Tenant({TENANT: limits(cpu=0)}, entitlement=plan, policy=POLICY)
    decision = tenant.ask(reserve("r1", "d1", content(cpu=1)))
    assert (decision.code, decision.code and decision.code.status) == (codes.NOT_ENTITLED, 403)
    assert told(decision) == [(TENANT, "cpu"), (TENANT, "cpu")]
    tenant.entitlement = replace(plan, deployments=True)
    blocked = tenant.ask(reserve("r2", "d1", content(cpu=1)))
    assert (blocked.code, blocked.code and blocked.code.status) == (codes.QUOTA_BLOCKED, 402)


@given(histories, limit_tables, contents)
def test_rule_2_the_code_is_the_first_enforced_violation(
    history: list[Step], table: dict[Place, dict[Dimension, object]], target: Content
) -> None:
    tenant = played(history, table)
    decision = tenant.ask(check("new", target))
    ranks = [((TENANT, PROD, BLOG), v) for v in decision.violations]
    order = [(_depth(v.place), _rank(v.info.gauge)) for _, v in ranks]
    assert order == sorted(order)
    assert decision.code is (EXCEEDED[decision.violations[0].info.dimension] if decision.violations else None)
    assert decision.allowed is (decision.code is None)


@given(histories, limit_tables, contents, st.randoms(use_true_random=False))
def test_rule_2_the_same_question_has_the_same_answer(
    history: list[Step], table: dict[Place, dict[Dimension, object]], target: Content, chance: object
) -> None:
    tenant = played(history, table)
    state = tenant.state
    shuffled = dict(sorted(state.charges.items(), key=lambda _: chance.random()))  # type: ignore[attr-defined]
    asks = [reserve("new", "new", target), check("d1", target)]
    first = decide(state, asks, NOW, NO_BILLING)
    second = decide(replace(state, charges=shuffled), asks, NOW, NO_BILLING)
    assert first.decisions == second.decisions
    assert decide(state, asks, NOW, NO_BILLING).decisions == first.decisions


def _depth(place: Place) -> int:
    return -bool(place[0]) - bool(place[1])


def _rank(gauge: int) -> int:
    return (0, 1, 2, 3, 4, 8, 5, 6, 7)[gauge]
