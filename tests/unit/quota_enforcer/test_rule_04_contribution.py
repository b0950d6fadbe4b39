"""Rule 4: a deployment contributes max(settled, target) per dimension and scope; held is what that adds to settled."""

from hypothesis import given
from tests.unit.quota_enforcer.histories import PLACES, Step, added_up, contents, deployments, histories, played, rows

from plimsoll_contracts import codes
from plimsoll_contracts.enforcement import HoldState
from plimsoll_devkit.builders import PROD, STAGING, Tenant, check, commit, content, limits, release, reserve
from plimsoll_quota_enforcer.domain.model import TENANT, Content, Gauge

CPU = Gauge.CPU_RESERVED


def test_a_growing_deployment_is_charged_its_difference() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.run("d1", content(cpu=8))
    assert tenant.ask(reserve("r1", "d1", content(cpu=10))).allowed
    assert (tenant.used(CPU), tenant.total(CPU)) == (8, 10)


def test_a_pending_shrink_frees_nothing_until_it_is_settled() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.run("d1", content(cpu=10))
    assert tenant.ask(reserve("r1", "d1", content(cpu=4))).allowed
    assert tenant.ask(check("d2", content(cpu=1))).code is codes.CPU_EXCEEDED
    tenant.ask(commit("c1", "r1"))
    assert tenant.ask(check("d2", content(cpu=6))).allowed


def test_a_larger_fact_swallows_what_the_hold_adds() -> None:
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(cpu=5, memory=1)))
    tenant.run("d1", content(cpu=3, memory=9))
    assert (tenant.used(CPU), tenant.total(CPU)) == (3, 5)
    assert (tenant.used(Gauge.MEMORY_RESERVED), tenant.total(Gauge.MEMORY_RESERVED)) == (9, 9)


def test_a_move_counts_once_at_the_tenant_and_at_both_environments() -> None:
    tenant = Tenant({TENANT: limits(cpu=4), PROD: limits(cpu=4)})
    tenant.run("d1", content(STAGING, cpu=4))
    assert tenant.ask(reserve("r1", "d1", content(PROD, cpu=4))).allowed
    assert [tenant.total(CPU, place) for place in (TENANT, STAGING, PROD)] == [4, 4, 4]
    tenant.ask(commit("c1", "r1"))
    assert [tenant.total(CPU, place) for place in (TENANT, STAGING, PROD)] == [4, 0, 4]


def test_a_move_into_a_full_environment_changes_neither() -> None:
    tenant = Tenant({PROD: limits(cpu=3)})
    tenant.run("d1", content(STAGING, cpu=4))
    assert tenant.ask(reserve("r1", "d1", content(PROD, cpu=4))).code is codes.CPU_EXCEEDED
    assert [tenant.total(CPU, place) for place in (TENANT, STAGING, PROD)] == [4, 4, 0]


def test_at_most_one_open_hold_per_deployment() -> None:
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(cpu=1)))
    assert tenant.ask(reserve("r2", "d1", content(cpu=1))).code is codes.HOLD_OPEN
    assert tenant.ask(check("d1", content(cpu=1))).code is codes.HOLD_OPEN
    assert tenant.ask(reserve("r3", "d1", content(cpu=1), supersedes="r2")).code is codes.HOLD_OPEN
    assert tenant.open_holds() == {"r1"}


def test_a_superseding_reserve_is_judged_without_the_hold_it_closes() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.ask(reserve("r1", "d1", content(cpu=10)))
    assert tenant.ask(reserve("r2", "d1", content(PROD, cpu=10), supersedes="r1")).allowed
    assert (tenant.open_holds(), tenant.holds["r1"].state) == ({"r2"}, HoldState.RELEASED)


def test_a_refused_superseding_reserve_leaves_the_hold_open() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.ask(reserve("r1", "d1", content(cpu=10)))
    assert not tenant.ask(reserve("r2", "d1", content(cpu=11), supersedes="r1")).allowed
    assert tenant.open_holds() == {"r1"}


@given(histories)
def test_rule_4_usage_is_what_adding_up_gives_after_every_step(history: list[Step]) -> None:
    def watch(tenant: Tenant) -> None:
        for place in PLACES:
            usage = tenant.state.tally.usage(place)
            assert (usage.used, usage.total) == added_up(tenant, place)

    played(history, watch=watch)


@given(histories, deployments, contents)
def test_rule_4_release_takes_back_exactly_what_reserve_added(
    history: list[Step], deployment: str, target: Content
) -> None:
    tenant = played([*history, Step("wait", "", content(), 0), Step("wait", "", content(), 0)])
    tenant.sweep()
    before = {place: added_up(tenant, place) for place in PLACES}
    kept = rows(tenant)[0]
    tenant.ask(reserve("new", deployment, target))
    tenant.ask(release("back", "new"))
    assert {place: added_up(tenant, place) for place in PLACES} == before
    assert tenant.charges == kept


@given(histories, contents)
def test_rule_4_at_most_one_open_hold_per_deployment(history: list[Step], target: Content) -> None:
    tenant = played([*history, Step("reserve", "d1", target, 0)])
    held = [member for hold in tenant.open_holds() for member in tenant.holds[hold].members]
    assert len(held) == len(set(held))
    assert sorted(held) == sorted(tenant.state.open_holds)
