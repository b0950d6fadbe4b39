"""Gates: each asks the entitlement; a missing row fails open and is said, a tombstone denies, off counts nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Gate
from plimsoll_devkit.builders import NO_BILLING, NOW, POLICY, Tenant, check, commit, content, limits, reserve
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.gates import judge
from plimsoll_quota_enforcer.domain.model import TENANT, Entitlement
from plimsoll_quota_enforcer.domain.state import Passage, Policy

FULL = Entitlement(1, "pro")


def tenant_with(entitlement: Entitlement | None, policy: Policy = POLICY) -> Tenant:
    return Tenant({TENANT: limits(memory=1)}, entitlement=entitlement, policy=policy)


def test_a_missing_row_fails_each_gate_open_and_each_is_told() -> None:
    decision = tenant_with(None).ask(reserve("r1", "d1", content(cpu=1)))
    assert decision.allowed
    assert answers.failed_open(decision) == (Gate.DEPLOYMENTS, Gate.QUOTA_BLOCKED, Gate.PLAN_LIMITS)
    told = answers.reply(decision, NOW)
    assert (told.fail_open, told.entitlement_version) == (tuple(Gate), None)


def test_a_limit_still_holds_where_the_gates_have_failed_open() -> None:
    decision = tenant_with(None).ask(reserve("r1", "d1", content(memory=2)))
    assert (decision.allowed, decision.code) == (False, codes.MEMORY_EXCEEDED)
    assert answers.failed_open(decision) == tuple(Gate)


def test_without_billing_nothing_is_asked_and_nothing_counted() -> None:
    for entitlement in (None, Entitlement(1, "none", deployments=False, ended=True)):
        decision = tenant_with(entitlement, NO_BILLING).ask(reserve("r1", "d1", content(cpu=1)))
        assert (decision.allowed, decision.gates) == (True, ())


def test_a_known_entitlement_passes_every_gate() -> None:
    decision = tenant_with(FULL).ask(reserve("r1", "d1", content(cpu=1)))
    assert {verdict.passage for verdict in decision.gates} == {Passage.PASS}
    assert (len(decision.gates), decision.entitlement_version) == (3, 1)


@pytest.mark.parametrize(
    ("entitlement", "code", "status"),
    [
        (Entitlement(1, "pro", ended=True), codes.ENTITLEMENT_ENDED, 403),
        (Entitlement(1, "free", deployments=False), codes.NOT_ENTITLED, 403),
        (Entitlement(1, "pro", blocked=frozenset({Dimension.CPU})), codes.QUOTA_BLOCKED, 402),
        (Entitlement(1, "pro", blocked=frozenset({Dimension.CPU}), ended=True), codes.ENTITLEMENT_ENDED, 403),
        (Entitlement(1, "pro", blocked=frozenset({Dimension.CPU}), deployments=False), codes.NOT_ENTITLED, 403),
    ],
)
def test_a_tombstone_and_a_missing_feature_are_403_and_a_block_is_402(
    entitlement: Entitlement, code: Code, status: int
) -> None:
    decision = tenant_with(entitlement).ask(reserve("r1", "d1", content(cpu=1)))
    told = answers.reply(decision, NOW)
    assert (decision.allowed, decision.code, told.status) == (False, code, status)
    assert told.message


def test_a_block_concerns_only_what_grows() -> None:
    tenant = tenant_with(Entitlement(1, "pro", blocked=frozenset({Dimension.CPU})))
    assert tenant.ask(reserve("r1", "d1", content(disk=1))).allowed
    blocked = tenant.ask(check("d2", content(cpu=1, disk=1)))
    assert blocked.code is codes.QUOTA_BLOCKED
    assert "cpu" in blocked.message
    assert tenant.ask(check("d2", content(app="web", disk=1))).allowed


def test_facts_ask_no_gate() -> None:
    tenant = tenant_with(None)
    tenant.ask(reserve("r1", "d1", content(cpu=1)))
    tenant.entitlement = Entitlement(1, "pro", ended=True)
    decision = tenant.ask(commit("c1", "r1"))
    assert (decision.allowed, decision.gates) == (True, ())


entitlements = st.builds(
    Entitlement,
    st.just(1),
    st.just("pro"),
    deployments=st.booleans(),
    blocked=st.frozensets(st.sampled_from(Dimension)),
    ended=st.booleans(),
)


@given(st.none() | entitlements, st.frozensets(st.sampled_from(Dimension), min_size=1), st.booleans())
def test_every_gate_gives_one_verdict_and_denials_have_their_codes(
    entitlement: Entitlement | None, growing: frozenset[Dimension], expected: bool
) -> None:
    verdicts = judge(entitlement, growing, Policy(entitlements_expected=expected))
    if not expected:
        assert verdicts == ()
        return
    assert [verdict.gate for verdict in verdicts] == list(Gate)
    if entitlement is None:
        assert {verdict.passage for verdict in verdicts} == {Passage.FAIL_OPEN}
        return
    feature, block, plan = verdicts
    ended = codes.ENTITLEMENT_ENDED if entitlement.ended else None
    assert feature.code is (ended or (None if entitlement.deployments else codes.NOT_ENTITLED))
    assert block.code is (codes.QUOTA_BLOCKED if entitlement.blocked & growing else None)
    assert plan.code is None
    for verdict in verdicts:
        assert verdict.passage is (Passage.PASS if verdict.code is None else Passage.DENY)
