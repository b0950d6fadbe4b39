"""Rule 9: measured disk beside declared disk: the larger counts, and what is unknown or incomplete lowers nothing."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import PLACES, Step, disk_of, histories, played

from plimsoll_contracts import codes
from plimsoll_contracts.disk import DiskMeasured
from plimsoll_contracts.versions import Standing
from plimsoll_devkit.builders import (
    BLOG,
    NOW,
    PROD,
    STAGING,
    Tenant,
    adjust,
    check,
    commit,
    content,
    fact,
    limits,
    reserve,
)
from plimsoll_quota_enforcer.domain.model import TENANT, Gauge, Measured, Place
from plimsoll_quota_enforcer.domain.state import Edge
from plimsoll_quota_enforcer.domain.tally import INT64_MAX
from plimsoll_quota_enforcer.requests import measurement_of

DISK = Gauge.DISK
SHOP: Place = ("prod", "shop")


def scan(bytes_: int, number: int = 1, term: int = 1, *, complete: bool = True) -> Measured:
    return Measured(bytes_, (term, number), NOW, "walk", complete)


def disks(tenant: Tenant, *places: Place) -> list[int]:
    return [tenant.used(DISK, place) for place in places or (BLOG, PROD, TENANT)]


def test_a_leaf_has_the_larger_of_declared_and_measured() -> None:
    tenant = Tenant()
    tenant.run("d1", content(BLOG, disk=10))
    tenant.measure(BLOG, scan(4))
    assert disks(tenant) == [10, 10, 10]
    tenant.measure(BLOG, scan(25, 2))
    assert disks(tenant) == [25, 25, 25]
    tenant.run("d2", content(BLOG, disk=30))
    assert disks(tenant) == [40, 40, 40]


def test_a_parent_has_the_larger_of_measured_and_of_the_sum_of_what_lies_in_it() -> None:
    tenant = Tenant()
    tenant.settle(
        fact("d1", 1, content(BLOG, disk=10)),
        fact("d2", 1, content(SHOP, disk=5)),
        fact("d3", 1, content(PROD, disk=1)),
    )
    tenant.measure(BLOG, scan(12))
    assert disks(tenant, BLOG, SHOP, PROD, TENANT) == [12, 5, 18, 18]
    tenant.measure(PROD, scan(17))
    assert disks(tenant) == [12, 18, 18]
    tenant.measure(PROD, scan(20, 2))
    tenant.measure(STAGING, scan(3))
    assert disks(tenant) == [12, 20, 23]


def test_held_is_added_on_top_of_what_was_measured_and_is_absorbed_by_its_commit() -> None:
    tenant = Tenant({TENANT: limits(disk=110)})
    tenant.run("d1", content(BLOG, disk=50))
    tenant.measure(BLOG, scan(100))
    assert not tenant.ask(check("d2", content(BLOG, disk=11))).allowed
    assert tenant.ask(reserve("r1", "d2", content(BLOG, disk=10))).allowed
    assert (tenant.used(DISK), tenant.total(DISK)) == (100, 110)
    tenant.ask(commit("c1", "r1"))
    assert (tenant.used(DISK), tenant.total(DISK)) == (100, 100)


def test_what_nobody_declared_counts_where_it_was_found() -> None:
    tenant = Tenant({PROD: limits(disk=9)})
    tenant.measure(SHOP, scan(10))
    assert disks(tenant, SHOP, PROD, TENANT) == [10, 10, 10]
    assert [(crossing.place, crossing.edge) for crossing in tenant.crossings] == [(PROD, Edge.STARTED)]
    assert tenant.ask(check("d1", content(SHOP, disk=1))).code is codes.DISK_EXCEEDED
    tenant.measure(SHOP, scan(0, 2))
    assert disks(tenant, SHOP, PROD, TENANT) == [0, 0, 0]


def test_an_incomplete_scan_raises_and_never_lowers() -> None:
    tenant = Tenant()
    assert tenant.measure(BLOG, scan(10)) is Standing.APPLIED
    assert tenant.measure(BLOG, scan(9, 2, complete=False)) is Standing.STALE
    assert disks(tenant) == [10, 10, 10]
    assert tenant.measure(BLOG, scan(11, 3, complete=False)) is Standing.APPLIED
    assert tenant.measure(BLOG, scan(5, 4)) is Standing.APPLIED
    assert disks(tenant) == [5, 5, 5]


def test_measurements_are_ordered_by_term_and_scan_in_whatever_order_they_come() -> None:
    scans = [scan(1, 9, 1), scan(2, 1, 2), scan(3, 2, 2)]
    for order in permutations(scans):
        tenant = Tenant()
        for each in order:
            tenant.measure(BLOG, each)
        assert disks(tenant) == [3, 3, 3]
    assert tenant.measure(BLOG, scans[2]) is Standing.REPEATED
    assert tenant.measure(BLOG, scan(9, 2, 2)) is Standing.STALE
    assert len([change for change in tenant.changes if change.kind == "measured"]) == 1


def test_unknown_is_never_zero() -> None:
    told = DiskMeasured(
        tenant="acme", bytes=None, method="walk", complete=False, term=1, scan=1, measured_at=NOW, environment="prod"
    )
    assert measurement_of(told) is None
    assert measurement_of(told.model_copy(update={"bytes": 0})) == (PROD, scan(0, complete=False))


def test_a_settle_that_takes_disk_from_a_leaf_asks_for_a_scan_and_the_old_figure_stands() -> None:
    tenant = Tenant()
    tenant.run("d1", content(BLOG, cpu=1, disk=10))
    tenant.measure(BLOG, scan(12))
    tenant.settle(fact("d1", 2, content(BLOG, cpu=1, disk=11)))
    tenant.settle(fact("d1", 3, content(BLOG, cpu=0, disk=11)))
    assert tenant.scans == set()
    tenant.settle(fact("d1", 4, content(BLOG, disk=3)))
    assert tenant.scans == {BLOG}
    tenant.scans.clear()
    tenant.ask(adjust("gone", "d1", None))
    assert (tenant.scans, disks(tenant)) == ({BLOG}, [12, 12, 12])
    tenant.measure(BLOG, scan(0, 2))
    assert disks(tenant) == [0, 0, 0]


def test_a_move_asks_for_a_scan_of_where_it_was() -> None:
    tenant = Tenant()
    tenant.run("d1", content(BLOG, disk=10))
    tenant.settle(fact("d1", 2, content(("staging", "blog"), disk=10)))
    assert tenant.scans == {BLOG}
    tenant.ask(reserve("r1", "d2", content(SHOP, disk=10), replaces=("d1",)))
    tenant.ask(commit("c1", "r1"))
    assert tenant.scans == {BLOG, ("staging", "blog")}


def test_what_was_measured_can_come_to_no_more_than_a_figure_can_be() -> None:
    tenant = Tenant()
    tenant.run("d1", content(BLOG, cpu=1, disk=5))
    tenant.measure(BLOG, scan(INT64_MAX))
    tenant.measure(SHOP, scan(INT64_MAX))
    assert disks(tenant, BLOG, SHOP, PROD, TENANT) == [INT64_MAX] * 4
    assert tenant.ask(check("d2", content(BLOG, disk=1))).code is codes.AMOUNT_OVERFLOW
    assert tenant.ask(check("d2", content(BLOG, cpu=1))).allowed


@given(histories)
def test_rule_9_used_disk_is_what_looking_at_every_scope_gives(history: list[Step]) -> None:
    def watch(tenant: Tenant) -> None:
        for place in PLACES:
            assert tenant.used(DISK, place) == disk_of(tenant, place)
            assert tenant.state.tally.totals(place)[DISK] == tenant.total(DISK, place)

    played(history, watch=watch)


@given(st.lists(st.tuples(st.sampled_from(PLACES), st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=8))
def test_rule_9_any_order_and_any_repeats_of_complete_scans_end_equal(scans: list[tuple[Place, int, int]]) -> None:
    first_of = {(place, number): bytes_ for place, bytes_, number in reversed(scans)}
    whole = [(place, bytes_, number) for (place, number), bytes_ in first_of.items()]
    tenants = [Tenant(), Tenant()]
    for tenant, order in zip(tenants, (whole, [*reversed(whole), *whole]), strict=True):
        for place, bytes_, number in order:
            tenant.measure(place, scan(bytes_, number))
    assert [tenants[0].used(DISK, place) for place in PLACES] == [tenants[1].used(DISK, place) for place in PLACES]
