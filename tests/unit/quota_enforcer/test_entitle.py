"""Snapshots: the highest version wins in whatever order they come; an equal one with another body is kept out."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.versions import Standing
from plimsoll_devkit.builders import POLICY, Tenant, check, content
from plimsoll_quota_enforcer.domain.model import Entitlement
from plimsoll_quota_enforcer.requests import entitlement_of

CPU = Dimension.CPU


def snapshot(version: int, cpu: int | None = None, *, ended: bool = False) -> Entitlement:
    limits = {} if cpu is None else {CPU: cpu}
    return Entitlement(version, f"v{version}", limits, ended=ended, fingerprint=f"{version} {cpu} {ended}".encode())


def test_a_late_older_snapshot_is_dropped() -> None:
    tenant = Tenant(policy=POLICY)
    assert tenant.entitle(snapshot(7, 10)).projected == (Standing.APPLIED,)
    assert tenant.entitle(snapshot(6, 1)).projected == (Standing.STALE,)
    assert tenant.entitlement is not None
    assert (tenant.entitlement.version, tenant.entitlement.at) == (7, tenant.now)


def test_a_tombstone_is_kept_against_a_late_snapshot_and_denies() -> None:
    tenant = Tenant(policy=POLICY)
    tenant.entitle(snapshot(8, ended=True))
    assert tenant.entitle(snapshot(7, 10)).winner is None
    assert not tenant.ask(check("d1", content(cpu=1))).allowed


def test_an_equal_version_repeats_or_conflicts_and_the_first_is_kept() -> None:
    tenant = Tenant(policy=POLICY)
    tenant.entitle(snapshot(3, 10))
    seq = tenant.seq
    assert tenant.entitle(snapshot(3, 10), snapshot(3, 11)).projected == (Standing.REPEATED, Standing.CONFLICT)
    assert tenant.entitlement is not None
    assert (tenant.entitlement.limits, tenant.seq) == ({CPU: 10}, seq)


def test_several_in_one_batch_leave_the_highest() -> None:
    tenant = Tenant(policy=POLICY)
    entitled = tenant.entitle(snapshot(2, 2), snapshot(5, 5), snapshot(4, 4), snapshot(5, 6))
    assert entitled.projected == (Standing.APPLIED, Standing.APPLIED, Standing.STALE, Standing.CONFLICT)
    assert entitled.winner == 1


def test_the_plan_counts_for_the_next_request_and_its_version_is_told() -> None:
    tenant = Tenant(policy=POLICY)
    tenant.entitle(snapshot(3, 10))
    decision = tenant.ask(check("d1", content(cpu=11)))
    assert (decision.violations[0].resolved.source, decision.entitlement_version) == ("plan", 3)


def test_the_fingerprint_is_of_what_is_meant_not_of_how_it_is_written() -> None:
    first = EntitlementSnapshot.model_validate_json(
        '{"tenant":"acme","entitlement_version":1,"plan":"pro","limits":{"cpu":"2","memory":1},"quota_blocked":["cpu","disk"]}'
    )
    second = EntitlementSnapshot.model_validate_json(
        '{"plan":"pro","tenant":"acme","entitlement_version":1,"quota_blocked":["disk","cpu"],"limits":{"memory":1,"cpu":2000}}'
    )
    other = first.model_copy(update={"plan": "pro2"})
    fingerprints = [entitlement_of(one, one.model_dump_json()).fingerprint for one in (first, second, other)]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


versions = st.lists(st.integers(1, 5), max_size=12)


@given(versions, st.randoms(use_true_random=False), st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_any_order_and_any_batches_of_snapshots_end_equal(history: list[int], chance: object, bites: list[int]) -> None:
    in_order, shuffled = Tenant(policy=POLICY), Tenant(policy=POLICY)
    for version in history:
        in_order.entitle(snapshot(version, version))
    left = sorted(history * 2, key=lambda _: chance.random())  # type: ignore[attr-defined]
    for bite in bites * 2:
        if left:
            shuffled.entitle(*(snapshot(version, version) for version in left[:bite]))
        left = left[bite:]
    assert (in_order.entitlement and in_order.entitlement.version) == max(history, default=None)
    assert in_order.entitlement == shuffled.entitlement


@given(versions)
def test_a_projected_snapshot_moves_seq_and_one_that_is_not_does_not(history: list[int]) -> None:
    tenant = Tenant(policy=POLICY)
    for version in history:
        before, kept = tenant.seq, tenant.entitlement
        entitled = tenant.entitle(snapshot(version, version))
        applied = entitled.projected == (Standing.APPLIED,)
        assert (tenant.seq > before) is applied
        if not applied:
            assert tenant.entitlement == kept
        elif kept is not None:
            assert tenant.entitlement == replace(snapshot(version, version), at=tenant.now)


def test_only_false_withholds_deployments() -> None:
    for features, given_ in (({}, True), ({"deployments": True}, True), ({"deployments": False}, False)):
        told = EntitlementSnapshot(tenant="acme", entitlement_version=1, plan="team", features=features)
        assert entitlement_of(told, told.model_dump_json()).deployments is given_
