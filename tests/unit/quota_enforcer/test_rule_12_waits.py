"""Rule 12: who waits for room is tried whenever something moves, in order, and nobody is passed for ever."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, Mode
from plimsoll_devkit.builders import (
    NO_BILLING,
    POLICY,
    PROD,
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
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.model import (
    TENANT,
    Ask,
    Content,
    Entitlement,
    Gauge,
    Patience,
    Placing,
    Replica,
    ReplyTo,
)

CPU = Gauge.CPU_RESERVED
AT = ReplyTo("quota.replies.test", 3, b"1")


def waiting(name: str, deployment: str, target: Content, seconds: int = 100, **more: object) -> Ask:
    """A reserve that would rather wait."""
    return reserve(name, deployment, target, patience=Patience(seconds, AT, "{}"), **more)


def full(limit: int = 10, **more: int) -> Tenant:
    """A tenant at its limit: deployment ``d0`` has all of it."""
    tenant = Tenant({TENANT: limits(cpu=limit, **more)})
    tenant.run("d0", content(cpu=limit))
    return tenant


def shrink(tenant: Tenant, cpu: int, deployment: str = "d0") -> None:
    """Let there be room."""
    revision = tenant.charges[deployment].revision + 1
    tenant.settle(fact(deployment, revision, content(cpu=cpu)))


def ids(tenant: Tenant) -> list[str]:
    return [waiter.ask.request_id for waiter in tenant.waiters]


def told(tenant: Tenant) -> list[tuple[str, bool]]:
    return [(decision.ask.request_id, decision.allowed) for decision in tenant.woken]


def on(node: str, cpu: int) -> dict[str, Any]:
    return {"placing": Placing(node, replicas=(Replica("", 1, cpu, 0),))}


def test_who_waits_has_no_answer_and_holds_nothing() -> None:
    tenant = full()
    decision = tenant.ask(waiting("w1", "d1", content(cpu=4)))
    assert (decision.waits, decision.stored, decision.hold) == (True, False, None)
    assert (tenant.total(CPU), tenant.open_holds(), tenant.decisions) == (10, set(), {})
    assert tenant.waiters[0].lacks == {("", "", str(int(CPU)))}


def test_room_wakes_who_waits_in_the_same_step() -> None:
    tenant = full()
    tenant.ask(waiting("w1", "d1", content(cpu=4)))
    tenant.wait(7)
    shrink(tenant, 6)
    (decision,) = tenant.woken
    assert (decision.allowed, decision.waited, decision.stored) == (True, timedelta(seconds=7), True)
    assert (ids(tenant), tenant.open_holds(), tenant.total(CPU)) == ([], {"w1"}, 10)
    assert answers.reply(decision, tenant.now).waited_ms == 7000
    assert tenant.changes[-1].request_id == "w1"


def test_what_is_let_in_is_let_in_at_every_scope_or_none() -> None:
    tenant = Tenant({TENANT: limits(cpu=10), PROD: limits(cpu=2)})
    tenant.settle(fact("d0", 1, content(cpu=8)), fact("p0", 1, content(PROD, cpu=2)))
    tenant.ask(waiting("w1", "d1", content(PROD, cpu=2)))
    shrink(tenant, 4)
    assert (ids(tenant), tenant.total(CPU, PROD), tenant.total(CPU)) == (["w1"], 2, 6)
    tenant.settle(fact("p0", 2, None))
    assert (told(tenant), tenant.total(CPU, PROD), tenant.total(CPU)) == ([("w1", True)], 2, 6)


def test_waiters_are_tried_in_the_order_in_which_they_came() -> None:
    tenant = full()
    tenant.batch([waiting(f"w{n}", f"x{n}", content(cpu=4)) for n in (3, 1, 2)])
    assert ids(tenant) == ["w3", "w1", "w2"]
    assert [waiter.seq for waiter in tenant.waiters] == [2, 3, 4]
    shrink(tenant, 2)
    assert told(tenant) == [("w3", True), ("w1", True)]


def test_in_its_first_half_a_large_one_is_passed_by_what_fits() -> None:
    tenant = full()
    tenant.ask(waiting("large", "x1", content(cpu=8)))
    tenant.ask(waiting("small", "x2", content(cpu=2)))
    tenant.wait(49)
    shrink(tenant, 7)
    assert told(tenant) == [("small", True)]
    assert tenant.ask(reserve("r1", "x3", content(cpu=1))).allowed


def test_in_its_second_half_what_it_lacks_is_kept_for_it() -> None:
    tenant = full(memory=50)
    tenant.ask(waiting("large", "x1", content(cpu=8)))
    tenant.wait(50)
    shrink(tenant, 7)
    refused = tenant.ask(reserve("r1", "x2", content(cpu=1)))
    assert (refused.code, "large" in refused.message) == (codes.WAITER_AHEAD, True)
    assert tenant.ask(check("x2", content(cpu=1))).code is codes.WAITER_AHEAD
    assert tenant.ask(reserve("r2", "x3", content(memory=50))).allowed, "it lacks no memory"
    assert tenant.ask(reserve("r3", "d0", content(cpu=6))).allowed, "a shrink takes nothing"
    shrink(tenant, 2)
    tenant.ask(release("x3", "r3"))
    assert told(tenant) == [("large", True)]


def test_nothing_is_kept_in_another_environment() -> None:
    tenant = Tenant({PROD: limits(cpu=1)})
    tenant.run("d0", content(PROD, cpu=1))
    tenant.ask(waiting("w1", "d1", content(PROD, cpu=1)))
    tenant.wait(99)
    assert tenant.ask(check("d2", content(cpu=1))).allowed
    assert tenant.ask(check("d2", content(PROD, cpu=1))).code is codes.CPU_EXCEEDED


def test_who_is_held_back_by_an_earlier_one_may_wait_too_and_follows_it() -> None:
    tenant = full()
    tenant.ask(waiting("large", "x1", content(cpu=8)))
    tenant.wait(60)
    shrink(tenant, 5)
    tenant.ask(waiting("small", "x2", content(cpu=1)))
    assert ids(tenant) == ["large", "small"]
    tenant.wait(40)
    tenant.sweep()
    assert told(tenant) == [("large", False), ("small", True)]


def test_two_limits_cannot_be_taken_from_it_in_turn() -> None:
    """Now one is lacking and now the other: once it has waited for half its time, both are kept."""
    tenant = Tenant({TENANT: limits(cpu=10, memory=10)})
    tenant.settle(fact("c", 1, content(cpu=10)), fact("m", 1, content()))
    tenant.ask(waiting("w1", "x1", content(cpu=5, memory=5)))
    tenant.wait(60)
    assert tenant.ask(reserve("r1", "m", content(memory=10))).allowed, "memory was never lacking"
    tenant.settle(fact("c", 2, content(cpu=1)))
    assert ids(tenant) == ["w1"]
    assert tenant.ask(check("x2", content(cpu=9))).code is codes.WAITER_AHEAD, "cpu was lacking once"
    assert tenant.ask(check("x2", content(memory=1))).code is codes.MEMORY_EXCEEDED
    tenant.ask(release("x1", "r1"))
    assert told(tenant) == [("w1", True)]


def test_whose_time_is_over_is_told_what_is_lacking() -> None:
    tenant = full()
    tenant.ask(waiting("w1", "d1", content(cpu=4), seconds=30))
    tenant.wait(29)
    tenant.sweep()
    assert ids(tenant) == ["w1"]
    tenant.wait(1)
    tenant.sweep()
    (decision,) = tenant.woken
    assert (decision.code, decision.violations[0].asked, ids(tenant)) == (codes.CPU_EXCEEDED, 4, [])
    assert decision.waited == timedelta(seconds=30)
    again = tenant.ask(waiting("w1", "d1", content(cpu=4), seconds=30))
    assert again.repeats is not None


def test_nobody_waits_longer_than_the_platform_allows() -> None:
    tenant = full()
    tenant.policy = replace(NO_BILLING, wait_seconds_max=20)
    tenant.ask(waiting("w1", "d1", content(cpu=4), seconds=3000))
    assert tenant.waiters[0].until - tenant.waiters[0].since == timedelta(seconds=20)


def test_a_repeat_changes_where_the_answer_goes_and_nothing_else() -> None:
    tenant = full()
    first = waiting("w1", "d1", content(cpu=4))
    tenant.ask(first)
    tenant.ask(waiting("w2", "d2", content(cpu=4)))
    tenant.wait(10)
    patience = Patience(100, ReplyTo("quota.replies.other", None, b"2"), "{}")
    assert tenant.ask(replace(first, patience=patience)).waits
    assert (ids(tenant), tenant.waiters[0].until - tenant.now) == (["w1", "w2"], timedelta(seconds=90))
    shrink(tenant, 6)
    assert tenant.woken[0].ask.patience == patience
    assert told(tenant) == [("w1", True)]


def test_another_body_under_the_id_of_who_waits_is_a_mismatch() -> None:
    tenant = full()
    tenant.ask(waiting("w1", "d1", content(cpu=4)))
    seq = tenant.seq
    assert tenant.ask(waiting("w1", "d1", content(cpu=5))).code is codes.IDEMPOTENCY_MISMATCH
    assert (ids(tenant), tenant.seq) == (["w1"], seq)


def test_who_waits_can_be_released_and_then_makes_way() -> None:
    tenant = full()
    tenant.ask(waiting("large", "x1", content(cpu=9)))
    tenant.ask(waiting("small", "x2", content(cpu=2)))
    tenant.wait(60)
    shrink(tenant, 7)
    assert ids(tenant) == ["large", "small"], "kept for the large one"
    seq = tenant.seq
    assert tenant.ask(release("q1", "large")).allowed
    assert tenant.seq > seq, "a state that still has it is not this state"
    assert told(tenant) == [("large", False), ("small", True)]
    assert tenant.woken[0].code is codes.WAIT_RELEASED
    assert tenant.ask(commit("c1", "large")).code is codes.HOLD_CLOSED


def test_shadow_mode_never_waits_and_is_only_told_who_is_ahead() -> None:
    tenant = full()
    shadow = tenant.ask(waiting("s1", "d1", content(cpu=4), mode=Mode.SHADOW))
    assert (shadow.allowed, shadow.would_deny, ids(tenant)) == (True, True, [])
    tenant.ask(release("x1", "s1"))
    tenant.ask(waiting("w1", "d2", content(cpu=4)))
    tenant.wait(60)
    shrink(tenant, 8)
    told_of = tenant.ask(reserve("s2", "d3", content(cpu=1), mode=Mode.SHADOW))
    assert (told_of.allowed, told_of.would_deny) == (True, True)


def test_no_gate_is_waited_for() -> None:
    tenant = Tenant({TENANT: limits(cpu=0)}, policy=POLICY, entitlement=Entitlement(1, "free", deployments=False))
    assert tenant.ask(waiting("w1", "d1", content(cpu=4))).code is codes.NOT_ENTITLED
    assert ids(tenant) == []


def test_a_gate_that_closes_ends_the_wait_and_a_plan_that_gives_more_does_too() -> None:
    for snapshot, code in (
        (Entitlement(2, "ended", ended=True), codes.ENTITLEMENT_ENDED),
        (Entitlement(2, "blocked", {Dimension.CPU: 0}, blocked=frozenset({Dimension.CPU})), codes.QUOTA_BLOCKED),
        (Entitlement(2, "large", {Dimension.CPU: 9}), None),
    ):
        tenant = Tenant(policy=POLICY, entitlement=Entitlement(1, "small", {Dimension.CPU: 1}))
        tenant.ask(waiting("w1", "d1", content(cpu=4)))
        tenant.entitle(snapshot)
        assert [decision.code for decision in tenant.woken] == [code]


def test_a_raised_limit_is_seen_at_the_next_look() -> None:
    tenant = full()
    tenant.ask(waiting("w1", "d1", content(cpu=4)))
    tenant.relimit(TENANT, limits(cpu=14))
    tenant.sweep()
    assert told(tenant) == [("w1", True)]


def test_a_hold_that_expires_makes_room() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.ask(reserve("r1", "d0", content(cpu=10), ttl_seconds=20))
    tenant.ask(waiting("w1", "d1", content(cpu=4)))
    tenant.wait(20)
    tenant.sweep()
    assert (told(tenant), tenant.holds["r1"].state) == ([("w1", True)], HoldState.EXPIRED)


def test_a_deployment_that_is_gone_meanwhile_begins_anew_and_one_that_is_held_meanwhile_is_refused() -> None:
    tenant = full()
    tenant.run("d1", content(cpu=1))
    tenant.ask(waiting("w1", "d1", content(cpu=8)))
    tenant.ask(adjust("gone", "d1", None))
    assert ids(tenant) == ["w1"]
    assert tenant.ask(reserve("r1", "d1", content())).allowed
    assert [decision.code for decision in tenant.woken] == [codes.HOLD_OPEN]


def test_who_lacks_a_node_and_who_lacks_quota_are_told_apart() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.node("n1", 4, 0)
    tenant.run("d0", content(cpu=8))
    tenant.ask(waiting("quota", "x1", content(cpu=3), **on("n1", 3)))
    tenant.ask(waiting("node", "x2", content(cpu=1), **on("n1", 5)))
    assert [waiter.lacks for waiter in tenant.waiters] == [{("", "", "0")}, {("", "node", "n1")}]
    shrink(tenant, 7)
    assert told(tenant) == [("quota", True)]
    tenant.node("n1", 9, 0)
    tenant.sweep()
    assert told(tenant)[1:] == []
    shrink(tenant, 6)
    assert told(tenant)[1:] == [("node", True)]


def test_room_on_a_node_is_kept_from_whoever_would_take_of_it_by_its_name_or_by_its_pool() -> None:
    tenant = Tenant()
    tenant.node("n1", 4, 0, pool="p")
    tenant.node("n2", 4, 0, pool="q")
    small = on("n1", 1)
    anywhere: dict[str, Any] = {"placing": Placing("", "p", {}, (Replica("", 1, 1, 0),))}
    tenant.ask(reserve("r0", "d0", content(cpu=2), **on("n1", 2)))
    tenant.ask(waiting("w1", "x1", content(cpu=4), **on("n1", 4)))
    tenant.wait(60)
    assert tenant.ask(check("x2", content(cpu=1), **anywhere)).code is codes.WAITER_AHEAD
    assert tenant.ask(check("x2", content(cpu=1), **small)).code is codes.WAITER_AHEAD
    assert tenant.ask(check("x2", content(cpu=1), **on("n2", 1))).allowed
    assert tenant.ask(check("x2", content(cpu=1))).allowed
    assert tenant.ask(reserve("r1", "d0", content(cpu=1), supersedes="r0", **small)).allowed, "less than was held there"
    tenant.ask(commit("c1", "r1"))
    assert tenant.ask(check("d0", content(cpu=1), **small)).allowed, "no more than it has there"
    tenant.ask(release("x1", "w1"))
    tenant.ask(waiting("w2", "x1", content(cpu=4), placing=Placing("", "p", {}, (Replica("", 1, 4, 0),))))
    tenant.wait(60)
    assert tenant.ask(check("x2", content(cpu=1), **small)).code is codes.WAITER_AHEAD


@given(
    st.lists(st.tuples(st.integers(1, 8), st.sampled_from((20, 40, 100))), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6), st.integers(0, 10)), min_size=3, max_size=25),
)
def test_nobody_starves(waits: list[tuple[int, int]], later: list[tuple[int, int, int]]) -> None:
    """The bound: from half of its wait on, nothing of what it lacks goes to anyone but those who came before it.

    So it is let in as soon as what it asks is free beside them, and everybody is answered by the end of their time.
    """
    tenant = full()
    for number, (cpu, seconds) in enumerate(waits):
        tenant.ask(waiting(f"w{number}", f"x{number}", content(cpu=cpu), seconds))
    came = {waiter.ask.request_id: waiter.seq for waiter in tenant.waiters}
    for number, (seconds, cpu, running) in enumerate(later):
        tenant.wait(seconds)
        patient = [w for w in tenant.waiters if (tenant.now - w.since) * 2 >= w.until - w.since]
        late = {w.seq for w in tenant.waiters if w.until <= tenant.now}
        decision = tenant.ask(reserve(f"r{number}", f"y{number}", content(cpu=cpu), ttl_seconds=30))
        seen = len(tenant.woken)
        assert not (decision.allowed and patient), "a new one took what is kept"
        shrink(tenant, running)
        tenant.sweep()
        assert not late & {w.seq for w in tenant.waiters}, "somebody waits longer than their time"
        for one in tenant.woken[seen:]:
            if one.allowed:
                ahead = [w for w in patient if w.ask.request_id in ids(tenant) and w.seq < came[one.ask.request_id]]
                assert not ahead, "a later one passed a patient one"
        for waiter in tenant.waiters[:1]:
            assert tenant.total(CPU) + _cpu(waiter.ask) > 10, "there is room for the first, and it still waits"
    tenant.wait(100)
    tenant.sweep()
    assert tenant.waiters == ()
    answered = [decision.ask.request_id for decision in tenant.woken]
    assert sorted(answered) == sorted(f"w{number}" for number in range(len(waits)))


def _cpu(ask: Ask) -> int:
    return ask.target.footprint.cpu_reserved if ask.target is not None else 0


def test_only_so_many_of_one_tenant_wait_and_the_next_is_told_why_it_does_not() -> None:
    tenant = Tenant({TENANT: limits(cpu=1)}, policy=replace(NO_BILLING, waiters_max=2))
    tenant.ask(reserve("r0", "d0", content(cpu=1)))
    asked = [tenant.ask(waiting(f"w{n}", f"d{n}", content(cpu=1))) for n in (1, 2, 3)]
    assert [decision.waits for decision in asked] == [True, True, False]
    assert asked[2].code is codes.CPU_EXCEEDED
    assert asked[2].notes == ("2 requests of this tenant wait already, as many as may",)
