"""Rule 8: stacks, environments and apps are distinct members among live charges and targets; vapps is a sum."""

from hypothesis import given
from tests.unit.quota_enforcer.histories import PLACES, Step, added_up, histories, played

from plimsoll_contracts import codes
from plimsoll_devkit.builders import BLOG, PROD, STAGING, Tenant, commit, content, fact, limits, reserve
from plimsoll_quota_enforcer.domain.model import TENANT, Gauge

SHOP = ("prod", "shop")


def test_deployments_of_one_stack_are_one_stack() -> None:
    tenant = Tenant({TENANT: limits(stacks=1, environments=1, apps=1)})
    assert tenant.ask(reserve("r1", "d1", content(BLOG, "web"))).allowed
    assert tenant.ask(reserve("r2", "d2", content(BLOG, "web"))).allowed
    assert tenant.ask(reserve("r3", "d3", content(SHOP, "web"))).code is codes.STACKS_EXCEEDED
    assert tenant.ask(reserve("r4", "d4", content(STAGING))).code is codes.ENVIRONMENTS_EXCEEDED
    assert tenant.ask(reserve("r5", "d5", content(BLOG, "db"))).code is codes.APPS_EXCEEDED


def test_the_same_name_in_another_environment_is_another_stack() -> None:
    tenant = Tenant({TENANT: limits(stacks=1)})
    tenant.run("d1", content(BLOG))
    assert tenant.ask(reserve("r1", "d2", content(("staging", "blog")))).code is codes.STACKS_EXCEEDED


def test_a_stack_ends_with_its_last_deployment() -> None:
    tenant = Tenant()
    tenant.settle(fact("d1", 1, content(BLOG)), fact("d2", 1, content(BLOG)), fact("d1", 2, None))
    assert tenant.used(Gauge.STACKS) == 1
    tenant.settle(fact("d2", 2, None))
    assert (tenant.used(Gauge.STACKS), tenant.used(Gauge.ENVIRONMENTS)) == (0, 0)


def test_a_move_into_a_new_stack_holds_one_more_until_it_is_committed() -> None:
    tenant = Tenant({TENANT: limits(stacks=2)})
    tenant.run("d1", content(BLOG))
    assert tenant.ask(reserve("r1", "d1", content(SHOP))).allowed
    assert (tenant.used(Gauge.STACKS), tenant.total(Gauge.STACKS)) == (1, 2)
    tenant.ask(commit("c1", "r1"))
    assert tenant.total(Gauge.STACKS) == 1


def test_a_move_needs_room_for_one_more_stack() -> None:
    tenant = Tenant({TENANT: limits(stacks=1)})
    tenant.run("d1", content(BLOG))
    assert tenant.ask(reserve("r1", "d1", content(SHOP))).code is codes.STACKS_EXCEEDED


def test_apps_are_counted_at_every_scope_by_what_lies_inside() -> None:
    tenant = Tenant({PROD: limits(apps=1)})
    tenant.settle(fact("d1", 1, content(BLOG, "web")), fact("d2", 1, content(STAGING, "db")))
    assert [tenant.used(Gauge.APPS, place) for place in (BLOG, PROD, STAGING, TENANT)] == [1, 1, 1, 2]
    assert tenant.ask(reserve("r1", "d3", content(SHOP, "web"))).allowed
    assert not tenant.ask(reserve("r2", "d4", content(SHOP, "db"))).allowed


def test_vapps_is_a_sum_of_instances() -> None:
    tenant = Tenant({TENANT: limits(vapps=5)})
    tenant.run("d1", content(BLOG, "web", vapps=3))
    assert tenant.ask(reserve("r1", "d2", content(BLOG, "web", vapps=3))).code is codes.VAPPS_EXCEEDED
    assert tenant.ask(reserve("r2", "d2", content(BLOG, "web", vapps=2))).allowed


@given(histories)
def test_rule_8_members_are_unions_of_what_is_live_and_wanted(history: list[Step]) -> None:
    tenant = played(history)
    for place in PLACES:
        usage, (used, total) = tenant.state.tally.usage(place), added_up(tenant, place)
        for gauge in (Gauge.STACKS, Gauge.ENVIRONMENTS, Gauge.APPS):
            assert (usage.used[gauge], usage.total[gauge]) == (used[gauge], total[gauge])
