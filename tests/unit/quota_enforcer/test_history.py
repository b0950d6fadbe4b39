"""The past is folded as the present is: any prefix of a history gives the figures that were true then."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import PLACES, Step, added_up, histories, played

from plimsoll_devkit.builders import ACME, BLOG, PROD, Tenant, commit, content, fact, reserve
from plimsoll_quota_enforcer.domain.history import state_after
from plimsoll_quota_enforcer.domain.model import TENANT, Gauge, Place
from plimsoll_quota_enforcer.domain.state import Change, ChangeKind
from plimsoll_quota_enforcer.domain.tally import NO_USAGE, Usage

Figures = dict[Place, tuple[tuple[int, ...], tuple[int, ...]]]


def figures_after(changes: list[Change]) -> Figures:
    tally = state_after(ACME, changes).tally
    return {place: (tally.usage(place).used, tally.usage(place).total) for place in PLACES}


def subject(change: Change) -> tuple[str, str]:
    """What of all steps about it the last one says."""
    if change.kind is ChangeKind.MEASURED:
        return ("measured", f"{change.content.place}")
    return ("charge", change.deployment) if change.kind is ChangeKind.SETTLED else ("hold", change.hold)


@given(histories)
def test_after_every_step_history_comes_to_what_adding_up_by_hand_does(history: list[Step]) -> None:
    def watch(tenant: Tenant) -> None:
        assert figures_after(tenant.changes) == {place: added_up(tenant, place) for place in PLACES}

    played(history, watch=watch)


@given(histories, st.integers(0, 40))
def test_what_is_kept_of_a_dropped_past_and_the_rest_come_to_the_same(history: list[Step], cut: int) -> None:
    changes = played(history).changes
    last = {subject(change): change for change in changes[:cut]}
    lasting = [c for c in last.values() if not c.gone and c.kind is not ChangeKind.HOLD_CLOSED]
    kept = sorted(lasting, key=lambda change: change.seq)
    assert figures_after([*kept, *changes[cut:]]) == figures_after(changes)


def test_a_commit_is_held_before_and_used_after() -> None:
    tenant = Tenant()
    tenant.ask(reserve("h", "d", content(BLOG, cpu=4)))
    tenant.ask(commit("c", "h"))
    tenant.settle(fact("d", 9, None))
    opened, settled, closed, gone = tenant.changes
    usage = [state_after(ACME, tenant.changes[:n]).tally.usage(PROD) for n in range(5)]
    cpu = [(each.used[Gauge.CPU_RESERVED], each.total[Gauge.CPU_RESERVED]) for each in usage]
    assert cpu == [(0, 0), (0, 4), (4, 4), (4, 4), (0, 0)]
    assert (opened.seq, settled.seq, closed.seq, gone.seq) == (1, 2, 3, 4)


def test_nothing_is_used_by_whom_nothing_is_known() -> None:
    state = state_after(ACME, [])
    assert state.tally.usage(TENANT) == NO_USAGE == Usage((0,) * 9, (0,) * 9)
    assert state.seq == 0
