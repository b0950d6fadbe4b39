"""Repeats: the same id and body gets the stored answer, another body is a mismatch, what is too old is not decided."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from tests.unit.quota_enforcer.histories import Step, contents, deployments, histories, played, rows

from plimsoll_contracts import codes
from plimsoll_contracts.enforcement import HoldState
from plimsoll_devkit.builders import (
    NOW,
    Tenant,
    adjust,
    check,
    commit,
    content,
    limits,
    release,
    reserve,
)
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.model import TENANT, Ask, Content
from plimsoll_quota_enforcer.domain.state import Decision


def hold_state(decision: Decision) -> HoldState | None:
    return decision.hold.state if decision.hold is not None else None


def test_a_repeat_gets_the_first_answer_and_the_holds_present_state() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    ask = reserve("r1", "d1", content(cpu=10))
    assert tenant.ask(ask).repeats is None
    tenant.ask(commit("c1", "r1"))
    again = tenant.ask(ask)
    assert again.repeats == tenant.decisions["r1"]
    assert (hold_state(again), tenant.seq) == (HoldState.COMMITTED, 3)


def test_a_repeat_after_expiry_tells_that_the_hold_is_gone() -> None:
    tenant = Tenant()
    ask = reserve("r1", "d1", content(cpu=10), ttl_seconds=60)
    tenant.ask(ask)
    tenant.wait(61)
    again = tenant.ask(ask)
    assert (again.repeats is not None, hold_state(again)) == (True, HoldState.EXPIRED)
    assert tenant.open_holds() == set()


def test_a_refusal_is_repeated_even_when_there_is_room_by_now() -> None:
    tenant = Tenant({TENANT: limits(cpu=1)})
    ask = reserve("r1", "d1", content(cpu=2))
    tenant.ask(ask)
    tenant.limits = {}
    assert tenant.ask(ask).repeats is not None
    assert tenant.open_holds() == set()


def test_a_repeat_in_the_same_batch_is_one_request() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    ask = reserve("r1", "d1", content(cpu=6))
    first, second = tenant.batch([ask, ask])
    assert second.repeats is first
    told = answers.reply(second, NOW)
    assert (told.allowed, told.repeated, told.request_id) == (True, True, "r1")
    assert told.model_copy(update={"repeated": False}) == answers.reply(first, NOW)
    assert len(tenant.changes) == 1


def test_the_same_id_with_another_body_is_a_mismatch_and_changes_nothing() -> None:
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(cpu=6)))
    before = rows(tenant)
    for other in (reserve("r1", "d1", content(cpu=7)), adjust("r1", "d1", content(cpu=6)), release("r1", "r1")):
        decision = tenant.ask(other)
        assert (decision.code, decision.stored, decision.allowed) == (codes.IDEMPOTENCY_MISMATCH, False, False)
    assert rows(tenant) == before
    first, second = tenant.batch([reserve("r2", "d2", content(cpu=1)), reserve("r2", "d2", content(cpu=2))])
    assert (first.allowed, second.code) == (True, codes.IDEMPOTENCY_MISMATCH)


@pytest.mark.parametrize(
    ("age", "code"),
    [
        (timedelta(hours=24), None),
        (timedelta(hours=24, microseconds=1), codes.REQUEST_TOO_OLD),
        (timedelta(minutes=-5), None),
        (timedelta(minutes=-5, microseconds=-1), codes.ISSUED_IN_FUTURE),
    ],
)
def test_what_was_issued_outside_the_window_is_not_decided(age: timedelta, code: object) -> None:
    tenant = Tenant()
    asks = [reserve("r1", "d1", content(cpu=1)), adjust("a1", "d2", content(cpu=1)), check("d3", content(cpu=1))]
    decisions = tenant.batch([replace(ask, issued_at=NOW - age) for ask in asks])
    assert [decision.code for decision in decisions] == [code] * 3
    assert bool(tenant.changes) is (code is None)
    assert bool(tenant.decisions) is (code is None)


def test_a_repeat_beyond_the_window_is_never_decided_again() -> None:
    tenant = Tenant()
    ask = reserve("r1", "d1", content(cpu=1), ttl_seconds=60)
    tenant.ask(ask)
    tenant.wait(24 * 3600 + 1)
    assert tenant.ask(ask).code is codes.REQUEST_TOO_OLD
    assert tenant.open_holds() == set()


def test_a_deadline_is_for_check_and_reserve_and_can_be_tried_again() -> None:
    tenant = Tenant()
    late = NOW - timedelta(milliseconds=1)
    ask = reserve("r1", "d1", content(cpu=1), deadline=late)
    assert tenant.ask(ask).code is codes.DEADLINE_PASSED
    assert tenant.ask(check("d1", content(cpu=1), deadline=late)).code is codes.DEADLINE_PASSED
    assert tenant.decisions == {}
    assert tenant.ask(replace(ask, deadline=NOW)).allowed
    assert tenant.ask(commit("c1", "r1", deadline=late)).allowed
    assert tenant.ask(adjust("a1", "d1", None, deadline=late)).allowed
    assert tenant.ask(ask).repeats is not None


def test_a_check_is_never_a_repeat() -> None:
    tenant = Tenant({TENANT: limits(cpu=1)})
    assert tenant.ask(check("d1", content(cpu=1), "q")).allowed
    assert tenant.ask(check("d1", content(cpu=2), "q")).code is codes.CPU_EXCEEDED


@given(histories, deployments, contents)
def test_any_request_told_again_changes_nothing(history: list[Step], deployment: str, what: Content) -> None:
    tenant = played(history)
    tenant.sweep()
    holds = sorted(tenant.holds)[:2]
    asks: list[Ask] = [
        reserve("n1", deployment, what),
        commit("n2", "n1"),
        adjust("n3", deployment, None),
        *(commit(f"c{hold}", hold) for hold in holds),
        *(release(f"x{hold}", hold) for hold in holds),
    ]
    tenant.batch(asks)
    before = rows(tenant)
    for decision in tenant.batch([*asks, *reversed(asks)]):
        assert decision.repeats == tenant.decisions[decision.ask.request_id]
        assert not decision.stored
    assert rows(tenant) == before
