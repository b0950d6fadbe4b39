"""The kinds of values that messages share."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import TypeAdapter, ValidationError

from plimsoll_contracts.api import LimitsPatch
from plimsoll_contracts.dimensions import REGISTRY, Dimension
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.fields import UNLIMITED, Id, Instant, Name, Text, parse_limit
from plimsoll_contracts.quantities import QuantityError
from plimsoll_contracts.usage import UsageDelta
from plimsoll_contracts.verbs import CheckBody

CONTROL = ["a\0b", "\0", "a\nb", "a\rb", "\x1b[31mred", "a\x7f", "a\x9bb", "a\u2028b", "\u202eevil", "a\u2066b"]


@pytest.mark.parametrize("text", [*CONTROL, "", "   ", "x" * 501, 5, None])
def test_words_of_a_person_are_one_line_that_prints(text: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Text).validate_python(text)


def test_words_of_any_script_are_taken_without_the_space_around_them() -> None:
    assert TypeAdapter(Text).validate_python("  Żółć 任 🚢 ticket 7 ") == "Żółć 任 🚢 ticket 7"


@pytest.mark.parametrize("text", [*CONTROL, "", "-a", "a b", "a/b", "a\n", "é", "x" * 129, 5, None, True])
def test_what_is_no_id(text: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Id).validate_python(text)


@pytest.mark.parametrize("text", [*CONTROL, "", "Acme", "acme\n", "a b", "a:b", "x" * 64, 5, None, b"\xff"])
def test_what_is_no_name(text: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2026-11-30T12:00:00Z", datetime(2026, 11, 30, 12, tzinfo=UTC)),
        ("2026-11-30T13:00:00.5+01:00", datetime(2026, 11, 30, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-11-30T12:00:00.123456789Z", datetime(2026, 11, 30, 12, 0, 0, 123_456, tzinfo=UTC)),
        (datetime(2026, 11, 30, 13, tzinfo=timezone(timedelta(hours=1))), datetime(2026, 11, 30, 12, tzinfo=UTC)),
    ],
)
def test_instants_are_read_into_utc(given: object, expected: datetime) -> None:
    read = TypeAdapter(Instant).validate_python(given)
    assert read == expected
    assert read.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "given",
    [
        0,
        1764504000,
        1.5,
        True,
        None,
        "",
        "1764504000",
        "2026-11-30",
        "2026-11-30T12:00:00",
        "12:00:00Z",
        "now",
        "2026-02-30T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+01:00",
        "2999-12-31T23:59:59-01:00",
        "2026-11-30T12:00:00Z\n",
        datetime(2026, 11, 30),  # noqa: DTZ001 - that is what is refused
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    ],
    ids=str,
)
def test_what_is_no_instant(given: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Instant).validate_python(given)


def test_the_value_of_a_limit() -> None:
    assert parse_limit(Dimension.CPU, "0.5") == 500
    assert parse_limit(Dimension.CPU, 0) == 0
    assert parse_limit(Dimension.MEMORY, UNLIMITED) == UNLIMITED
    for bad in (None, "", "Unlimited", -1, True):
        with pytest.raises(QuantityError):
            parse_limit(Dimension.CPU, bad)


PATCH = {"limits": {"cpu": "4", "memory": None, "vapps": 3}, "by": "alice", "reason": "ticket 7"}


def test_a_patch_of_limits() -> None:
    patch = LimitsPatch.model_validate(PATCH)
    assert patch.limits == {"cpu": "4", "memory": None, "vapps": 3}
    assert (patch.force, patch.mode) == (False, "enforce")


@pytest.mark.parametrize(
    "change",
    [
        {"limits": {}},
        {"limits": {"cpu": True}},
        {"limits": {"cpu": 1.0}},
        {"limits": {"cpu": "9" * 65}},
        {"limits": {"x" * 65: 1}},
        {"limits": {"cpu": [1]}},
        {"limits": {f"d{n}": 1 for n in range(17)}},
        {"force": "yes"},
        {"force": 1},
        {"by": "a\x00"},
        {"reason": ""},
        {"by": ""},
        {"who": "alice"},
        {"mode": "off"},
        {"expires_at": "tomorrow"},
    ],
    ids=str,
)
def test_a_patch_that_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        LimitsPatch.model_validate(PATCH | change)


def test_a_check_over_http_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValidationError):
        CheckBody.model_validate({"tenant": "acme", "cpu": "1"})


SNAPSHOT = {"tenant": "acme", "entitlement_version": 1, "plan": "pro"}


def test_a_snapshot_survives_what_billing_adds_for_others() -> None:
    read = EntitlementSnapshot.model_validate(
        SNAPSHOT
        | {"limits": {"cpu": "4", "max_payload_bytes": "1k", "gpu\0": None, "seats": {"any": 1}}}
        | {"features": {"deployments": False, "sso": "gold"}, "quota_blocked": ["cpu", "gpu\0", "cpu"]}
    )
    assert read.limits == {"cpu": 4000, "max_payload_bytes": 1024}
    assert read.features == {"deployments": False}
    assert read.quota_blocked == {"cpu"}


@pytest.mark.parametrize(
    "change",
    [
        {"limits": {"cpu": None}},
        {"limits": {"cpu": True}},
        {"limits": {"cpu": -1}},
        {"limits": {"memory": "1.5g"}},
        {"limits": {"min_schedule_interval_seconds": "1m"}},
        {"limits": [["cpu", 1]]},
        {"limits": None},
        {"features": {"deployments": "yes"}},
        {"features": {"deployments": 1}},
        {"features": []},
        {"quota_blocked": "cpu"},
        {"quota_blocked": [1]},
        {"ended": "no"},
        {"ended": 0},
        {"entitlement_version": 0},
        {"entitlement_version": "1"},
        {"entitlement_version": True},
        {"plan": "p\x00"},
        {"plan": ""},
        {"tenant": "Acme"},
    ],
    ids=str,
)
def test_a_snapshot_that_breaks_its_contract(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        EntitlementSnapshot.model_validate(SNAPSHOT | change)


def test_equal_snapshots_have_equal_bytes() -> None:
    blocked = sorted(REGISTRY)  # many names: chance does not put them in order
    one = EntitlementSnapshot.model_validate(SNAPSHOT | {"quota_blocked": blocked})
    other = EntitlementSnapshot.model_validate(SNAPSHOT | {"quota_blocked": blocked[::-1]})
    assert one.model_dump_json() == other.model_dump_json()
    assert json.loads(one.model_dump_json())["quota_blocked"] == blocked


DELTA = {"tenant": "acme", "deployment": "d1", "revision": 1, "after": {"cpu": "500m"}}


def test_a_delta_is_signed_and_only_for_dimensions_that_are_known() -> None:
    read = UsageDelta.model_validate(DELTA | {"delta": {"cpu": -500, "gpu\0": "one"}})
    assert read.delta == {"cpu": -500}
    assert read.after is not None
    assert read.after.footprint().cpu == 500


@pytest.mark.parametrize(
    "change",
    [
        {"delta": {"cpu": 2**53}},
        {"delta": {"cpu": "1"}},
        {"delta": [1]},
        {"revision": -1},
        {"revision": True},
        {"revision": None},
        {"after": {"cpu": -1}},
        {"after": 0},
        {"stack": "blog"},
        {"deployment": "d\x00"},
    ],
    ids=str,
)
def test_a_delta_that_breaks_its_contract(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        UsageDelta.model_validate(DELTA | change)


def test_gone_is_told_and_never_assumed() -> None:
    assert UsageDelta.model_validate(DELTA | {"after": None}).after is None
    with pytest.raises(ValidationError):
        UsageDelta.model_validate({name: value for name, value in DELTA.items() if name != "after"})
