"""The tally: figures kept step by step are those folded from the truth, and a branch is a copy."""

from hypothesis import given
from tests.unit.quota_enforcer.histories import (
    PLACES,
    Step,
    contents,
    covers,
    deployments,
    histories,
    played,
)

from plimsoll_devkit.builders import BLOG, NO_BILLING, Tenant, content, reserve
from plimsoll_quota_enforcer.domain.book import Book
from plimsoll_quota_enforcer.domain.decide import decide, expire, settle_facts
from plimsoll_quota_enforcer.domain.model import TENANT, Content, Hold
from plimsoll_quota_enforcer.domain.shares import Share
from plimsoll_quota_enforcer.domain.tally import NO_USAGE


@given(histories)
def test_kept_step_by_step_and_folded_are_equal_after_every_step(history: list[Step]) -> None:
    tenant = Tenant(policy=NO_BILLING, carried=True)
    for number, step in enumerate(history):
        step.play(tenant, f"r{number}")
        carried, folded = tenant.state.tally, tenant.folded.tally
        for place in PLACES:
            assert carried.usage(place) == folded.usage(place)
        assert {place for place in carried.places() if carried.usage(place) != NO_USAGE} == {
            place for place in folded.places() if folded.usage(place) != NO_USAGE
        }


@given(histories, deployments, contents)
def test_a_rise_is_what_replacing_does(history: list[Step], deployment: str, target: Content) -> None:
    tenant = played(history)
    state = tenant.state
    share = Book(state, tenant.now, NO_BILLING).share(deployment)
    apart = [Share(charge, None) for charge in (share.charge, *share.replaced) if charge is not None]
    mine = state.charges.get(deployment)
    others = [each for each in apart if each.charge is not mine]
    before, after = [share], [Share(mine, Hold("new", deployment, target, tenant.now)), *others]
    rise = state.tally.rise(before, after)
    branch = state.tally.branch()
    branch.replace(before, after)
    for place in PLACES:
        old, new = state.tally.usage(place).total, branch.usage(place).total
        expected = tuple(b - a for a, b in zip(old, new, strict=True))
        assert rise.get(place, (0,) * 9) == expected
        assert (place in rise) or not covers(place, target)


@given(histories, contents)
def test_every_place_whose_figures_moved_is_written(history: list[Step], target: Content) -> None:
    tenant = played(history)
    state = tenant.state
    asks = [reserve("new", "d9", target), reserve("more", "d1", target)]
    for outcome in (
        decide(state, asks, tenant.now, NO_BILLING, tenant.nodes),
        settle_facts(state, [], tenant.now, NO_BILLING, tenant.nodes),
        expire(state, tenant.now, NO_BILLING, nodes=tenant.nodes),
    ):
        moved = {p for p in PLACES if outcome.state.tally.usage(p) != state.tally.usage(p)}
        assert moved <= outcome.places


def test_a_branch_does_not_show_in_what_it_came_from() -> None:
    tenant = Tenant()
    tenant.run("d1", content(BLOG, "web", cpu=1))
    tally = tenant.state.tally
    branch = tally.branch()
    branch.replace([Share(tenant.charges["d1"], None)], [])
    assert branch.usage(TENANT) == NO_USAGE
    assert tally.usage(TENANT).used[0] == 1
    assert branch.changed == {TENANT, ("prod", ""), BLOG}
    assert tally.changed == frozenset()
