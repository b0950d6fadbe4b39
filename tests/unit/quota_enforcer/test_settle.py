"""Settling: a charge is set to what is told at a newer revision; order and repeats of facts do not matter."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import DEPLOYMENTS, PLACES, Step, contents, deployments, histories, played

from plimsoll_contracts import codes
from plimsoll_contracts.enforcement import HoldState, SettleOutcome
from plimsoll_devkit.builders import BLOG, PROD, Tenant, adjust, commit, content, fact, release, reserve
from plimsoll_quota_enforcer.domain.model import Content, Fact, Footprint, Gauge, Multipliers
from plimsoll_quota_enforcer.domain.state import Settlement

CPU = Gauge.CPU_RESERVED
LARGEST = 2**53 - 1
MAX = 2**63 - 1


def outcome(settlement: Settlement | None) -> object:
    assert settlement is not None
    return settlement.outcome or settlement.code


def test_newer_settles_older_is_stale_equal_repeats_or_conflicts() -> None:
    tenant = Tenant()
    told = tenant.settle(
        fact("d1", 5, content(cpu=5)),
        fact("d1", 4, content(cpu=4)),
        fact("d1", 5, content(cpu=5)),
        fact("d1", 5, content(cpu=6)),
        fact("d1", 5, None),
    )
    assert [outcome(one) for one in told] == [
        SettleOutcome.SETTLED,
        SettleOutcome.STALE,
        SettleOutcome.UNCHANGED,
        codes.REVISION_CONFLICT,
        codes.REVISION_CONFLICT,
    ]
    assert (tenant.used(CPU), tenant.charges["d1"].revision) == (5, 5)
    assert told[1].revision == 5


def test_another_place_or_app_at_the_same_revision_is_other_content() -> None:
    tenant = Tenant()
    told = tenant.settle(
        fact("d1", 1, content(PROD, "web")), fact("d1", 1, content(BLOG, "web")), fact("d1", 1, content(PROD, "db"))
    )
    assert [outcome(one) for one in told][1:] == [codes.REVISION_CONFLICT] * 2


def test_gone_is_a_tombstone_and_a_reused_id_continues_its_revisions() -> None:
    tenant = Tenant()
    tenant.settle(fact("d1", 7, content(cpu=5)), fact("d1", 8, None))
    assert outcome(tenant.settle(fact("d1", 3, content(cpu=5)))[0]) is SettleOutcome.STALE
    decision = tenant.ask(adjust("a1", "d1", content(cpu=2)))
    assert decision.settlement is not None
    assert (decision.settlement.revision, tenant.used(CPU)) == (9, 2)


def test_gone_before_it_came_stays_gone() -> None:
    tenant = Tenant()
    tenant.settle(fact("d1", 2, None), fact("d1", 1, content(cpu=5)))
    assert tenant.used(CPU) == 0
    assert outcome(tenant.settle(fact("d1", 2, None))[0]) is SettleOutcome.UNCHANGED


def test_no_revision_means_the_present_one_and_one_more() -> None:
    tenant = Tenant()
    for number in (1, 2, 3):
        decision = tenant.ask(adjust(f"a{number}", "d1", content(cpu=number)))
        assert decision.settlement == Settlement("d1", number, SettleOutcome.SETTLED)


def test_a_delta_and_a_commit_of_the_same_revision_count_once() -> None:
    for delta_first in (True, False):
        tenant = Tenant()
        tenant.ask(reserve("r1", "d1", content(cpu=5)))
        if delta_first:
            tenant.settle(fact("d1", 1, content(cpu=5)))
        decision = tenant.ask(commit("c1", "r1", 1))
        assert outcome(decision.settlement) is (SettleOutcome.UNCHANGED if delta_first else SettleOutcome.SETTLED)
        tenant.settle(fact("d1", 1, content(cpu=5)))
        assert (tenant.used(CPU), tenant.total(CPU)) == (5, 5)


def test_a_commit_closes_its_hold_also_when_it_is_stale() -> None:
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(cpu=5)))
    tenant.settle(fact("d1", 9, content(cpu=1)))
    decision = tenant.ask(commit("c1", "r1", 3))
    assert (outcome(decision.settlement), tenant.total(CPU)) == (SettleOutcome.STALE, 1)
    assert tenant.holds["r1"].state is HoldState.COMMITTED


def test_a_commit_that_conflicts_is_kept_out_and_its_hold_stays_open() -> None:
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(cpu=5)))
    tenant.settle(fact("d1", 3, content(cpu=1)))
    decision = tenant.ask(commit("c1", "r1", 3))
    assert (decision.allowed, decision.code) == (False, codes.REVISION_CONFLICT)
    assert (tenant.used(CPU), tenant.open_holds()) == (1, {"r1"})
    assert tenant.ask(commit("c2", "r1", 4)).allowed


def test_a_second_commit_repeats_the_first_outcome() -> None:
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(cpu=5)))
    first = tenant.ask(commit("c1", "r1", 3))
    tenant.settle(fact("d1", 9, content(cpu=1)))
    again = tenant.ask(commit("c2", "r1", 12))
    assert again.settlement == first.settlement
    assert tenant.used(CPU) == 1


def test_a_released_superseded_or_unknown_hold_settles_nothing() -> None:
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(cpu=5)))
    tenant.ask(release("x1", "r1"))
    tenant.ask(reserve("r2", "d1", content(cpu=5)))
    tenant.ask(reserve("r3", "d1", content(cpu=6), supersedes="r2"))
    for number, hold in enumerate(("r1", "r2", "nobody's")):
        assert tenant.ask(commit(f"c{number}", hold)).code is codes.HOLD_CLOSED
    assert tenant.charges == {}
    assert tenant.ask(release("x2", "nobody's")).code is codes.HOLD_CLOSED


def test_release_of_a_closed_hold_changes_nothing_and_tells_its_state() -> None:
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(cpu=5)))
    tenant.ask(commit("c1", "r1"))
    seq = tenant.seq
    decision = tenant.ask(release("x1", "r1"))
    assert decision.hold is not None
    assert (decision.allowed, decision.hold.state, tenant.seq) == (True, HoldState.COMMITTED, seq)


def test_a_multiplier_scales_reservations_rounded_up_and_limits_not() -> None:
    what = Content(PROD, "", Footprint(cpu_reserved=3, cpu_limit=3), Multipliers(reservation_milli=1500))
    tenant = Tenant()
    tenant.run("d1", what)
    assert (tenant.used(CPU), tenant.used(Gauge.CPU_BURST)) == (5, 3)


def test_other_multipliers_at_the_same_revision_are_no_conflict() -> None:
    tenant = Tenant()
    tenant.run("d1", content(cpu=3))
    again = Content(("", ""), "", Footprint.plain(cpu=3), Multipliers(reservation_milli=2000))
    assert outcome(tenant.settle(fact("d1", 1, again))[0]) is SettleOutcome.UNCHANGED


def almost_full() -> Tenant:
    """A tenant one largest amount below what 64 bits hold."""
    tenant = Tenant()
    tenant.settle(*(fact(f"d{n}", 1, content(disk=LARGEST)) for n in range(1023)))
    assert MAX - LARGEST >= tenant.used(Gauge.DISK) > MAX - 2 * LARGEST - 1024
    return tenant


def test_what_would_overflow_64_bits_is_refused_and_kept_out() -> None:
    tenant = almost_full()
    tenant.run("last", content(disk=LARGEST))
    before = tenant.used(Gauge.DISK)
    assert tenant.ask(reserve("r1", "more", content(disk=2000))).code is codes.AMOUNT_OVERFLOW
    assert outcome(tenant.settle(fact("more", 1, content(disk=2000)))[0]) is codes.AMOUNT_OVERFLOW
    assert tenant.ask(adjust("a1", "more", content(disk=2000))).code is codes.AMOUNT_OVERFLOW
    assert tenant.used(Gauge.DISK) == before <= MAX


def test_next_to_the_edge_a_commit_of_what_was_allowed_and_a_shrink_still_fit() -> None:
    tenant = almost_full()
    assert tenant.ask(reserve("r1", "last", content(disk=LARGEST))).allowed
    assert tenant.ask(commit("c1", "r1")).allowed
    assert tenant.ask(adjust("a1", "last", content(disk=LARGEST - 1))).allowed
    assert tenant.ask(reserve("r2", "last", content(disk=LARGEST - 2))).allowed


revised = st.builds(
    lambda name, revision, seed: (name, revision, seed), deployments, st.integers(0, 6), st.integers(0, 3)
)


def told(deployment: str, revision: int, seed: int) -> Fact:
    """One content per deployment and revision, as its owner tells it."""
    del seed
    number = DEPLOYMENTS.index(deployment) + revision
    what = content(PLACES[number % len(PLACES)], ("", "web", "db")[number % 3], cpu=number, vapps=revision)
    return fact(deployment, revision, what if number % 3 else None)


@given(st.lists(revised, max_size=14), st.randoms(use_true_random=False))
def test_any_order_and_any_repeats_of_facts_end_equal(history: list[tuple[str, int, int]], chance: object) -> None:
    once, shuffled = Tenant(), Tenant()
    for each in history:
        once.settle(told(*each))
    mixed = sorted(history * 2, key=lambda _: chance.random())  # type: ignore[attr-defined]
    shuffled.settle(*(told(*each) for each in mixed))
    for place in PLACES:
        assert once.state.tally.usage(place) == shuffled.state.tally.usage(place)
    kept = [{name: (c.revision, c.gone) for name, c in tenant.charges.items()} for tenant in (once, shuffled)]
    assert (
        kept[0]
        == kept[1]
        == {
            name: (top := max(r for n, r, _ in history if n == name), told(name, top, 0).gone)
            for name in {n for n, _, _ in history}
        }
    )


@given(histories, st.lists(st.tuples(deployments, st.integers(0, 9), contents), max_size=6))
def test_a_fact_told_again_changes_nothing(history: list[Step], facts: list[tuple[str, int, Content]]) -> None:
    tenant = played(history)
    all_of_them = [fact(name, revision, what if revision % 4 else None) for name, revision, what in facts]
    tenant.settle(*all_of_them)
    charges, seq = dict(tenant.charges), tenant.seq
    tenant.settle(*all_of_them, *reversed(all_of_them))
    assert (tenant.charges, tenant.seq) == (charges, seq)


@given(histories)
def test_revisions_never_go_back_and_every_step_has_its_number(history: list[Step]) -> None:
    known: dict[str, int] = {}

    def watch(tenant: Tenant) -> None:
        for name, charge in tenant.charges.items():
            assert charge.revision >= known.get(name, 0)
            known[name] = charge.revision
            assert charge.changed_seq in {change.seq for change in tenant.changes}
        numbers = [change.seq for change in tenant.changes]
        assert numbers == list(range(1, len(numbers) + 1))
        assert tenant.seq >= len(numbers)

    played(history, watch=watch)


def test_revisions_end_where_no_message_could_say_the_next_one() -> None:
    tenant = Tenant()
    tenant.run("d1", content(cpu=1), 2**53 - 1)
    spent = tenant.ask(adjust("a1", "d1", content(cpu=2)))
    assert (spent.allowed, spent.code) == (False, codes.REVISIONS_SPENT)
    assert (tenant.charges["d1"].revision, tenant.used(Gauge.CPU_RESERVED)) == (2**53 - 1, 1)


def test_no_more_is_on_nodes_than_is_reserved_and_so_paid_for_by_quota() -> None:
    tenant = Tenant()
    refused = tenant.ask(adjust("a1", "d1", content(cpu=2, memory=5), nodes=(("n1", 1, 5), ("n2", 2, 0))))
    taken = tenant.ask(adjust("a2", "d1", content(cpu=2, memory=5), nodes=(("n1", 1, 5), ("n2", 1, 0))))
    assert (refused.allowed, refused.code, taken.allowed) == (False, codes.MORE_ON_NODES, True)
    assert {name: node.allocated for name, node in tenant.nodes.items()} == {"n1": (1, 5), "n2": (1, 0)}
