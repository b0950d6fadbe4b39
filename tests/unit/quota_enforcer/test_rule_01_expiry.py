"""Rule 1: the tenant's expired holds are closed first, on the clock that is given."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import Step, histories, played

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState
from plimsoll_devkit.builders import NO_BILLING, POLICY, Tenant, commit, content, fact, limits, release, reserve
from plimsoll_quota_enforcer.domain.decide import expire
from plimsoll_quota_enforcer.domain.model import TENANT, Entitlement, Gauge


def full() -> Tenant:
    tenant = Tenant({TENANT: limits(cpu=10)})
    assert tenant.ask(reserve("r1", "d1", content(cpu=10), ttl_seconds=60)).allowed
    return tenant


def test_a_hold_counts_until_its_time_has_passed() -> None:
    tenant = full()
    tenant.wait(59.999)
    assert tenant.ask(reserve("r2", "d2", content(cpu=1))).code is codes.CPU_EXCEEDED
    tenant.wait(0.001)
    assert tenant.ask(reserve("r3", "d2", content(cpu=10))).allowed
    assert tenant.holds["r1"].state is HoldState.EXPIRED


def test_facts_close_expired_holds_too() -> None:
    tenant = full()
    tenant.wait(61)
    tenant.settle(fact("d9", 1, content(cpu=1)))
    assert (tenant.open_holds(), tenant.total(Gauge.CPU_RESERVED)) == (set(), 1)


def test_a_snapshot_is_judged_without_holds_whose_time_has_passed() -> None:
    tenant = full()
    tenant.wait(61)
    tenant.limits = {}
    tenant.entitle(Entitlement(1, "small", {Dimension.CPU: 5}))
    assert (tenant.open_holds(), tenant.crossings) == (set(), [])


def test_the_sweep_closes_holds_of_an_idle_tenant_once() -> None:
    tenant = full()
    tenant.wait(61)
    tenant.sweep()
    assert tenant.holds["r1"].state is HoldState.EXPIRED
    seq = tenant.seq
    tenant.sweep()
    assert tenant.seq == seq


def test_a_deployment_whose_hold_expired_may_be_reserved_again() -> None:
    tenant = full()
    tenant.wait(61)
    assert tenant.ask(reserve("r2", "d1", content(cpu=10))).allowed


def test_release_of_an_expired_hold_tells_its_state() -> None:
    tenant = full()
    tenant.wait(61)
    decision = tenant.ask(release("x", "r1"))
    assert decision.allowed
    assert decision.hold is not None
    assert decision.hold.state is HoldState.EXPIRED


def test_an_expired_hold_can_still_be_committed() -> None:
    tenant = full()
    tenant.wait(61)
    assert tenant.ask(commit("c", "r1", 4)).allowed
    assert (tenant.holds["r1"].state, tenant.used(Gauge.CPU_RESERVED)) == (HoldState.COMMITTED, 10)


def test_the_next_expiry_is_known_whatever_opened_last() -> None:
    """A state that is carried from batch to batch looks through its holds only when one may have expired."""
    tenant = Tenant(carried=True)
    for name, seconds in (("a", 600), ("b", 60), ("c", 300)):
        tenant.ask(reserve(name, f"d{name}", content(cpu=1), ttl_seconds=seconds))
    left = []
    for _ in range(3):
        tenant.wait(250)
        tenant.sweep()
        left.append(tenant.open_holds())
    assert left == [{"a", "c"}, {"a"}, set()]


@given(histories)
def test_rule_1_a_carried_state_never_oversleeps(history: list[Step]) -> None:
    tenant = Tenant(policy=NO_BILLING, carried=True)
    for number, step in enumerate(history):
        step.play(tenant, f"r{number}")
        state = tenant.state
        expiries = [state.holds[hold].expires_at for hold in state.open_holds.values()]
        assert not expiries or (state.next_expiry is not None and state.next_expiry <= min(expiries))


@given(histories, st.integers(0, 120))
def test_rule_1_nothing_open_is_past_its_time(history: list[Step], seconds: int) -> None:
    tenant = played(history)
    tenant.wait(seconds)
    outcome = expire(tenant.state, tenant.now, POLICY, nodes=tenant.nodes)
    left = [outcome.state.holds[hold] for hold in outcome.state.open_holds.values()]
    assert all(hold.expires_at > tenant.now for hold in left)
    closed = {name for name in outcome.holds if outcome.state.holds[name].state is HoldState.EXPIRED}
    assert closed == {h.id for h in tenant.holds.values() if h.state is HoldState.OPEN and h.expires_at <= tenant.now}
