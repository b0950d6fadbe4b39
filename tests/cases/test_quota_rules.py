"""Reported failures of limits, amounts and entitlements, each asked of ours. ``test_t`` and a number name the case."""

import json
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from plimsoll_client.cli.failures import CommandFailed
from plimsoll_client.cli.quotas_file import read as read_quotas
from plimsoll_contracts import codes
from plimsoll_contracts.api import LimitsPatch
from plimsoll_contracts.dimensions import Dimension, Unit
from plimsoll_contracts.enforcement import HoldState, OverLimit
from plimsoll_contracts.fields import parse_limit
from plimsoll_contracts.quantities import MAX_AMOUNT, QuantityError, parse
from plimsoll_contracts.requests import RequestInvalid, parse_request
from plimsoll_contracts.versions import Standing
from plimsoll_devkit.builders import (
    POLICY,
    Tenant,
    check,
    content,
    fact,
    limits,
    release,
    reserve,
)
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.model import TENANT, Entitlement, Gauge
from plimsoll_quota_enforcer.domain.relimit import LimitRefused, relimit
from plimsoll_quota_enforcer.domain.state import Edge, Policy
from plimsoll_quota_enforcer.requests import Asked, Decoder, Refused
from plimsoll_streams.records import Record

CPU, DISK, STACKS = Gauge.CPU_RESERVED, Gauge.DISK, Gauge.STACKS
PROD, STAGING = ("prod", ""), ("staging", "")


def test_t38_being_over_a_limit_is_said_with_since_when_and_by_how_much() -> None:
    tenant = Tenant()
    tenant.run("d1", content(disk=18))
    tenant.relimit(TENANT, limits(disk=10), force=True)
    (crossing,) = tenant.crossings
    value = answers.crossing_message("acme", crossing, tenant.now).value
    assert value is not None
    told = OverLimit.model_validate_json(value)
    assert (crossing.edge, told.since, told.over_by, told.usage) == (Edge.STARTED, tenant.now, 8, 18)


def test_t39_a_limit_below_what_is_used_and_held_takes_force() -> None:
    tenant = Tenant()
    tenant.run("d1", content(cpu=5))
    tenant.ask(reserve("r1", "d2", content(cpu=5)))
    with pytest.raises(LimitRefused, match="used 5m \\+ held 5m"):
        tenant.relimit(TENANT, limits(cpu=9))
    assert tenant.relimit(TENANT, limits(cpu=9), force=True)[0].warnings


def test_t40_the_first_edit_of_a_limit_and_every_later_one_are_judged_alike() -> None:
    tenant = Tenant({TENANT: limits(cpu=1000)})
    first = [tenant.relimit(place, limits(cpu=600))[0].warnings for place in (PROD, STAGING)]
    again = [tenant.relimit(place, limits(cpu=600))[0].warnings for place in (PROD, STAGING)]
    above = [tenant.relimit(PROD, limits(cpu=1001))[0].warnings for _ in range(2)]
    _, both = relimit(tenant.state, {PROD: limits(cpu=1001), TENANT: limits(cpu=2000)}, tenant.now, POLICY)
    assert [plan.warnings for plan in both] == [(), ()], "parent and child in one change are judged as they will be"
    assert first == again == [(), ()]
    assert above[0] == above[1] != ()


def test_t41_a_child_above_its_parent_is_taken_with_a_warning_and_the_parent_binds() -> None:
    tenant = Tenant({TENANT: limits(cpu=1)})
    (plan,) = tenant.relimit(PROD, limits(cpu=2))
    assert "acme allows cpu 1m in all" in plan.warnings[0]
    assert not tenant.ask(check("d1", content(PROD, cpu=2))).allowed
    assert tenant.ask(check("d1", content(PROD, cpu=1))).allowed


def test_t42_unsetting_an_override_is_guarded_like_setting_a_lower_one() -> None:
    tenant = Tenant({TENANT: limits(cpu=20)}, defaults=limits(cpu=10))
    tenant.run("d1", content(cpu=15))
    with pytest.raises(LimitRefused):
        tenant.relimit(TENANT, {Dimension.CPU: None})
    assert tenant.limits[TENANT][Dimension.CPU].value == 20
    tenant.relimit(TENANT, {Dimension.CPU: None}, force=True)
    assert not tenant.ask(check("d2", content(cpu=1))).allowed


def test_t44_of_several_limits_none_is_set_when_one_is_bad() -> None:
    tenant = Tenant()
    tenant.run("d1", content(memory=5))
    with pytest.raises(LimitRefused):
        tenant.relimit(TENANT, limits(cpu=10, memory=4))
    with pytest.raises(LimitRefused):
        tenant.relimit(PROD, limits(cpu=10, environments=1), force=True)
    with pytest.raises(QuantityError):
        parse_limit(Dimension.MEMORY, "bad")
    with pytest.raises(CommandFailed, match="f:2: memory: 'bad' is not an amount"):
        read_quotas(b"scopes:\n  acme: {cpu: 10, memory: bad}", "f")
    assert not any(tenant.limits.values())


def test_t48_whoever_asks_it_is_the_tenant_of_the_body_that_is_charged() -> None:
    body = {"verb": "adjust", "request_id": "root", "issued_at": "2026-03-01T12:00:00Z", "tenant": "acme"}
    body |= {"environment": "prod", "stack": "blog", "deployment": "d1", "footprint": {"cpu": 5}}  # type: ignore[dict-item]
    value, headers = json.dumps(body).encode(), (("reply_to", b"quota.replies.root"),)
    asked = Decoder(Policy()).request(Record("quota.requests", 0, 0, b"acme", value, headers))
    other = Decoder(Policy()).request(Record("quota.requests", 0, 0, b"root", value, headers))
    assert isinstance(asked, Asked)
    assert isinstance(other, Refused)
    assert (asked.ask.tenant, other.code) == ("acme", codes.KEY_MISMATCH)


def test_t70_unlimited_is_no_number() -> None:
    tenant = Tenant({TENANT: limits(cpu=None)}, defaults=limits(cpu=1))
    tenant.run("d1", content(cpu=10**9))
    assert tenant.ask(reserve("r1", "d2", content(cpu=1))).allowed
    with pytest.raises(QuantityError):
        parse_limit(Dimension.CPU, -1)


def test_t73_each_unit_has_one_strict_way_of_writing() -> None:
    assert [parse(Unit.MILLICORES, text) for text in ("0.5", "500m")] == [500, 500]
    for unit, text in ((Unit.BYTES, "400m"), (Unit.BYTES, "8g")):
        assert parse(unit, text) % 2**20 == 0, "m is mebi for bytes, never milli"
    for text in ("1e3", "", "NaN", "1 Gi", "-1"):
        for unit in (Unit.MILLICORES, Unit.BYTES, Unit.COUNT):
            with pytest.raises(QuantityError):
                parse(unit, text)


def test_t74_large_sums_are_exact_and_too_large_ones_are_refused() -> None:
    tenant = Tenant({TENANT: limits(disk=None)})
    tenant.run("d1", content(disk=2**31))
    assert tenant.ask(reserve("r1", "d2", content(disk=1))).allowed
    assert tenant.total(DISK) == 2**31 + 1
    for amount in (2**63, MAX_AMOUNT + 1):
        with pytest.raises(QuantityError):
            parse(Unit.BYTES, amount)
    tenant.settle(*(fact(f"x{number}", 1, content(disk=MAX_AMOUNT)) for number in range(1024)))
    decision = tenant.ask(reserve("r2", "d3", content(disk=MAX_AMOUNT)))
    assert (decision.code, codes.AMOUNT_OVERFLOW.status) == (codes.AMOUNT_OVERFLOW, 422)


def body_with(footprint: object) -> bytes:
    body = {"verb": "reserve", "request_id": "r1", "issued_at": "2026-03-01T12:00:00Z", "tenant": "acme"}
    return json.dumps(body | {"deployment": "d1", "footprint": footprint}).encode()


def test_t75_nobody_gains_by_asking_for_less_than_nothing() -> None:
    for cpu in (-500, "-500m", "-0.5"):
        with pytest.raises(RequestInvalid) as refused:
            parse_request(body_with({"cpu": cpu}))
        assert refused.value.code is codes.INVALID_CPU
    tenant = Tenant()
    tenant.ask(reserve("r1", "d1", content(cpu=2)))
    for number in range(3):
        assert tenant.ask(release(f"x{number}", "r1")).allowed
    assert (tenant.total(CPU), tenant.holds["r1"].state) == (0, HoldState.RELEASED)


def test_t76_an_unknown_dimension_is_refused_not_ignored() -> None:
    with pytest.raises(RequestInvalid) as refused:
        parse_request(body_with({"gpu": 1}))
    assert refused.value.code is codes.UNKNOWN_FIELD
    with pytest.raises(ValueError, match="not a valid Dimension"):
        Dimension("limits.cpu")
    with pytest.raises(ValidationError):
        LimitsPatch.model_validate({"limits": {"cpu": 1}, "by": "a", "reason": "b", "limit": 1})
    for unknown in ("acme: {limits.cpu: 4}", "acme: {cpu: {value: 4, limit: 4}}", "acme: {gpu: 0}"):
        with pytest.raises(CommandFailed, match="f:1: "):
            read_quotas(f"scopes: {{{unknown}}}".encode(), "f")


def snapshot(version: int, plan: str, *, ended: bool = False) -> Entitlement:
    return Entitlement(version, plan, ended=ended, fingerprint=f"{version} {plan} {ended}".encode())


def test_t94_a_snapshot_that_comes_late_changes_nothing() -> None:
    tenant = Tenant(policy=POLICY)
    assert tenant.entitle(snapshot(7, "pro")).projected == (Standing.APPLIED,)
    assert tenant.entitle(snapshot(6, "free")).projected == (Standing.STALE,)
    assert tenant.entitle(snapshot(8, "pro", ended=True)).projected == (Standing.APPLIED,)
    assert tenant.entitle(snapshot(7, "pro")).projected == (Standing.STALE,)
    assert tenant.entitlement is not None
    assert tenant.entitlement.ended


def test_t96_of_one_version_the_first_body_is_kept_and_another_is_told() -> None:
    tenant = Tenant(policy=POLICY)
    became = tenant.entitle(snapshot(7, "pro"), snapshot(7, "pro"), snapshot(7, "free")).projected
    assert became == (Standing.APPLIED, Standing.REPEATED, Standing.CONFLICT)
    assert tenant.entitlement is not None
    assert tenant.entitlement.plan == "pro"


def test_t97_unknown_unpaid_and_not_included_are_three_answers() -> None:
    tenant = Tenant(policy=POLICY)
    unknown = tenant.ask(check("d1", content(cpu=1)))
    assert unknown.allowed
    assert len(answers.failed_open(unknown)) == 3
    tenant.entitle(Entitlement(1, "pro", blocked=frozenset({Dimension.CPU})))
    unpaid = tenant.ask(check("d1", content(cpu=1)))
    tenant.entitle(Entitlement(2, "free", deployments=False))
    not_included = tenant.ask(check("d1", content(cpu=1)))
    told = [answers.reply(one, datetime.now(UTC)).status for one in (unknown, unpaid, not_included)]
    assert told == [200, 402, 403]
    assert unpaid.code is not not_included.code
