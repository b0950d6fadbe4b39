"""Marks of a limit, below it and at it: each is told once when usage reaches it, and once when it is left."""

from dataclasses import replace

from hypothesis import given
from tests.unit.quota_enforcer.histories import PLACES, Step, added_up, histories

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_devkit.builders import NO_BILLING, NOW, PROD, Tenant, content, fact, limit, limits, release, reserve
from plimsoll_quota_enforcer.domain.model import GAUGE_INFO, TENANT, Gauge
from plimsoll_quota_enforcer.domain.state import OVER, Threshold

EIGHTY, FULL = Threshold("80%", percent=80), Threshold("100%", percent=100)
NINE = Threshold("vapps=9", dimension=Dimension.VAPPS, amount=9)
POLICY = replace(NO_BILLING, thresholds=(EIGHTY, NINE, FULL))


def told(tenant: Tenant) -> list[tuple[str, str]]:
    return [(crossing.threshold, crossing.edge.value) for crossing in tenant.crossings]


def test_each_mark_is_told_once_exactly_where_it_is() -> None:
    tenant = Tenant({TENANT: limits(vapps=10)}, policy=POLICY)
    expected = {7: 0, 8: 1, 9: 2, 10: 3, 11: 4}
    for revision, vapps in enumerate((7, 7, 8, 8, 9, 9, 10, 10, 11, 11), 1):
        tenant.settle(fact("d1", revision, content(vapps=vapps)), fact("d1", revision, content(vapps=vapps)))
        assert len(tenant.crossings) == expected[vapps]
    assert told(tenant) == [(name, "started") for name in ("80%", "vapps=9", "100%", OVER)]
    tenant.settle(fact("d1", 99, content(vapps=8)))
    assert told(tenant)[4:] == [(name, "ended") for name in ("vapps=9", "100%", OVER)]


def test_a_mark_is_reached_by_what_is_held_and_left_with_it() -> None:
    tenant = Tenant({PROD: limits(disk=10)}, policy=POLICY)
    tenant.ask(reserve("r1", "d1", content(PROD, disk=9)))
    tenant.wait(30)
    tenant.ask(release("x1", "r1"))
    assert told(tenant) == [("80%", "started"), ("80%", "ended")]
    assert tenant.crossings[1].since == NOW
    assert [(each.place, each.ceiling, each.usage) for each in tenant.crossings] == [(PROD, 10, 9), (PROD, 10, 0)]


def test_a_mark_is_reached_when_the_limit_is_lowered_and_left_when_it_is_raised() -> None:
    tenant = Tenant({TENANT: limits(vapps=20)}, policy=POLICY)
    tenant.run("d1", content(vapps=8))
    tenant.relimit(TENANT, limits(vapps=10))
    tenant.relimit(TENANT, limits(vapps=11))
    assert told(tenant) == [("80%", "started"), ("80%", "ended")]


def test_where_nothing_is_limited_nothing_is_reached() -> None:
    for values in ({}, limits(vapps=None)):
        tenant = Tenant({TENANT: values}, policy=POLICY)
        tenant.run("d1", content(vapps=1000))
        assert tenant.crossings == []


def test_a_limit_that_is_lifted_ends_all_its_marks() -> None:
    tenant = Tenant({TENANT: limits(vapps=10)}, policy=POLICY)
    tenant.run("d1", content(vapps=10))
    tenant.relimit(TENANT, limits(vapps=None))
    assert told(tenant)[3:] == [("80%", "ended"), ("vapps=9", "ended"), ("100%", "ended")]
    assert tenant.crossings[-1].ceiling is None


def test_of_nothing_none_is_reached_by_nothing_and_all_by_anything() -> None:
    tenant = Tenant({TENANT: limits(vapps=0)}, policy=POLICY)
    tenant.run("d1", content(disk=1))
    assert tenant.crossings == []
    tenant.run("d2", content(vapps=1))
    assert told(tenant) == [(OVER, "started"), ("80%", "started"), ("100%", "started")]


def test_a_limit_in_shadow_mode_has_its_marks() -> None:
    tenant = Tenant({TENANT: {Dimension.VAPPS: limit(10, mode=Mode.SHADOW)}}, policy=POLICY)
    assert tenant.ask(reserve("r1", "d1", content(vapps=11))).allowed
    assert [name for name, _ in told(tenant)] == [OVER, "80%", "vapps=9", "100%"]


def test_a_share_of_burst_is_a_share_of_what_burst_may_reach() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)}, policy=POLICY)
    tenant.run("d1", content(cpu=8))
    tenant.run("d2", content(cpu=4))
    reached = [(each.threshold, each.info.gauge, each.ceiling) for each in tenant.crossings]
    assert reached == [
        ("80%", Gauge.CPU_RESERVED, 10),
        (OVER, Gauge.CPU_RESERVED, 10),
        ("100%", Gauge.CPU_RESERVED, 10),
        ("80%", Gauge.CPU_BURST, 15),
    ]


def test_a_mark_that_is_no_longer_configured_is_ended() -> None:
    tenant = Tenant({TENANT: limits(vapps=10)}, policy=POLICY)
    tenant.run("d1", content(vapps=8))
    tenant.policy = NO_BILLING
    tenant.run("d2", content(cpu=1))
    assert (told(tenant)[1:], tenant.over) == ([("80%", "ended")], {})


@given(histories)
def test_what_was_told_is_what_is_reached_after_every_step(history: list[Step]) -> None:
    ceilings = {place: limits(cpu=4, memory=8, disk=6, vapps=3) for place in (TENANT, PROD)}
    tenant = Tenant(ceilings, policy=POLICY)
    reached: set[object] = set()
    seen = 0
    for number, step in enumerate(history):
        step.play(tenant, f"r{number}")
        for crossing in tenant.crossings[seen:]:
            key = (crossing.place, crossing.info.gauge, crossing.threshold)
            assert (key in reached) is (crossing.edge == "ended"), "told twice, or ended before it began"
            reached ^= {key}
        seen = len(tenant.crossings)
        assert reached == set(tenant.over) == set(_reached(tenant))


def _reached(tenant: Tenant) -> list[object]:
    found: list[object] = []
    for place in (each for each in PLACES if each in tenant.limits):
        for gauge, have in zip(Gauge, added_up(tenant, place)[1], strict=True):
            set_to = tenant.limits[place].get(GAUGE_INFO[gauge].dimension)
            if set_to is None or set_to.value is None or not have:
                continue
            top = set_to.value * (3 if GAUGE_INFO[gauge].basis == "burst" else 2) // 2
            marks = {OVER: have > top, "80%": have * 5 >= top * 4, "100%": have >= top}
            marks["vapps=9"] = gauge is Gauge.VAPPS and have >= 9
            found += [(place, gauge, name) for name, is_reached in marks.items() if is_reached]
    return found
