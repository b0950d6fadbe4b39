"""Rule 11: a commit after expiry still records the fact; every crossing is told once, in both directions."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import PLACES, Step, added_up, histories, limit_tables

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, Mode
from plimsoll_devkit.builders import (
    NOW,
    PROD,
    STAGING,
    Tenant,
    adjust,
    commit,
    content,
    fact,
    limit,
    limits,
    reserve,
)
from plimsoll_quota_enforcer.domain.model import TENANT, Entitlement, Gauge, Place
from plimsoll_quota_enforcer.domain.state import OVER, Edge

MEMORY = Dimension.MEMORY
DISK = Dimension.DISK


def edges(tenant: Tenant) -> list[tuple[Place, int, Edge]]:
    return [(crossing.place, crossing.info.gauge, crossing.edge) for crossing in tenant.crossings]


def test_a_commit_after_expiry_goes_over_and_is_told() -> None:
    tenant = Tenant({TENANT: limits(disk=10)})
    tenant.ask(reserve("r1", "d1", content(disk=10), ttl_seconds=60))
    tenant.wait(61)
    tenant.ask(reserve("r2", "d2", content(disk=10)))
    decision = tenant.ask(commit("c1", "r1"))
    assert (decision.allowed, decision.over_limit) == (True, True)
    assert tenant.holds["r1"].state is HoldState.COMMITTED
    (crossing,) = tenant.crossings
    assert (crossing.edge, crossing.ceiling, crossing.usage) == (Edge.STARTED, 10, 20)
    assert crossing.since == tenant.now


def test_each_crossing_is_told_once_with_since_when() -> None:
    tenant = Tenant({TENANT: limits(disk=10)})
    tenant.run("d1", content(disk=11))
    tenant.wait(60)
    tenant.run("d2", content(disk=5))
    assert edges(tenant) == [(TENANT, Gauge.DISK, Edge.STARTED)]
    tenant.wait(60)
    tenant.settle(fact("d1", 2, None))
    assert edges(tenant)[1:] == [(TENANT, Gauge.DISK, Edge.ENDED)]
    assert tenant.crossings[1].since == NOW
    tenant.sweep()
    assert len(tenant.crossings) == 2


def test_a_lowered_limit_is_crossed_by_what_runs() -> None:
    tenant = Tenant()
    tenant.run("d1", content(PROD, disk=11))
    tenant.relimit(PROD, limits(disk=10), force=True)
    assert edges(tenant) == [(PROD, Gauge.DISK, Edge.STARTED)]
    tenant.relimit(PROD, limits(disk=11))
    assert edges(tenant)[1:] == [(PROD, Gauge.DISK, Edge.ENDED)]


def test_a_snapshot_that_gives_less_is_crossed() -> None:
    tenant = Tenant()
    tenant.run("d1", content(disk=11))
    tenant.entitle(Entitlement(1, "small", {DISK: 10}))
    tenant.entitle(Entitlement(2, "large", {DISK: None}))
    assert [edge for _, _, edge in edges(tenant)] == [Edge.STARTED, Edge.ENDED]
    assert tenant.crossings[1].ceiling is None


def test_an_expired_override_is_crossed_at_the_sweep() -> None:
    tenant = Tenant({TENANT: {DISK: limit(20, expires_at=NOW + timedelta(hours=1))}}, defaults=limits(disk=10))
    tenant.run("d1", content(disk=11))
    tenant.sweep()
    assert tenant.crossings == []
    tenant.wait(3600)
    tenant.sweep()
    assert edges(tenant) == [(TENANT, Gauge.DISK, Edge.STARTED)]


HAPPENINGS: dict[str, Callable[[Tenant], object]] = {
    "a limit elsewhere": lambda tenant: tenant.relimit(STAGING, limits(cpu=5)),
    "a tombstone of what never ran": lambda tenant: tenant.ask(adjust("a", "unknown", None)),
    "a late commit of what is settled": lambda tenant: tenant.ask(commit("c", "old", 0)),
    "a snapshot": lambda tenant: tenant.entitle(Entitlement(1, "pro")),
}


@pytest.mark.parametrize("happens", HAPPENINGS.values(), ids=HAPPENINGS)
def test_a_lowered_default_is_told_with_whatever_happens_next(happens: Callable[[Tenant], object]) -> None:
    """Even with what touches no usage: the storage notes whoever moved as judged by the present defaults."""
    tenant = Tenant()
    tenant.ask(reserve("old", "d1", content(disk=11), ttl_seconds=60))
    tenant.settle(fact("d1", 3, content(disk=11)))
    tenant.wait(61)
    tenant.sweep()
    tenant.defaults = limits(disk=10)
    happens(tenant)
    assert edges(tenant) == [(TENANT, Gauge.DISK, Edge.STARTED)]


def test_what_is_told_takes_a_sequence_number_of_its_own() -> None:
    tenant = Tenant()
    tenant.run("d1", content(disk=11))
    tenant.defaults = limits(disk=10)
    seq = tenant.seq
    tenant.sweep()
    assert (tenant.seq, tenant.crossings[-1].seq) == (seq + 1, seq + 1)


def test_reserved_and_burst_are_crossed_by_themselves() -> None:
    tenant = Tenant({TENANT: limits(memory=10)})
    tenant.run("d1", content(memory=11))
    tenant.run("d2", content(memory=5))
    assert edges(tenant) == [(TENANT, g, Edge.STARTED) for g in (Gauge.MEMORY_RESERVED, Gauge.MEMORY_BURST)]


def test_a_hold_let_through_in_shadow_mode_is_told_as_a_crossing() -> None:
    tenant = Tenant({TENANT: limits(disk=10)})
    tenant.ask(reserve("r1", "d1", content(disk=11), mode=Mode.SHADOW))
    assert edges(tenant) == [(TENANT, Gauge.DISK, Edge.STARTED)]


_NUMERATOR = {Gauge.CPU_BURST: 3, Gauge.MEMORY_BURST: 3}


def is_over(tenant: Tenant, place: Place, gauge: Gauge, dimension: Dimension) -> bool:
    found = tenant.limits.get(place, {}).get(dimension)
    if found is None or found.value is None:
        return False
    return added_up(tenant, place)[1][gauge] > found.value * _NUMERATOR.get(gauge, 2) // 2


GAUGES_OF = {
    Gauge.CPU_RESERVED: Dimension.CPU,
    Gauge.CPU_BURST: Dimension.CPU,
    Gauge.MEMORY_RESERVED: Dimension.MEMORY,
    Gauge.MEMORY_BURST: Dimension.MEMORY,
    Gauge.DISK: Dimension.DISK,
    Gauge.APPS: Dimension.APPS,
    Gauge.VAPPS: Dimension.VAPPS,
}


@given(histories, limit_tables, limit_tables, st.integers(0, 12))
def test_rule_11_what_was_told_is_what_is_over_after_every_step(
    history: list[Step],
    table: dict[Place, dict[Dimension, object]],
    later: dict[Place, dict[Dimension, object]],
    when: int,
) -> None:
    tenant = Tenant(table)  # type: ignore[arg-type]  # hypothesis widens the values
    told: set[tuple[Place, int]] = set()
    seen = 0
    for number, step in enumerate(history):
        if number == when:
            for place, wanted in later.items():
                tenant.relimit(place, wanted, force=True)  # type: ignore[arg-type]  # as above
        step.play(tenant, f"r{number}")
        for crossing in tenant.crossings[seen:]:
            key = (crossing.place, crossing.info.gauge)
            assert (key in told) is (crossing.edge is Edge.ENDED), "told twice, or ended before it began"
            told ^= {key}
        seen = len(tenant.crossings)
        expected = {(p, g) for p in PLACES for g, d in GAUGES_OF.items() if is_over(tenant, p, g, d)}
        assert told == expected
        assert set(tenant.over) == {(place, gauge, OVER) for place, gauge in expected}
