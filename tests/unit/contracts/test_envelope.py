"""CloudEvents in headers: written, read, and refused where they are broken."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_contracts.codes import INVALID_REQUEST
from plimsoll_contracts.envelope import Envelope, EnvelopeError, parse_headers, text_header

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
GOOD = Envelope("id-1", "usage.delta.v1", "/platform", datetime(2026, 11, 30, 12, tzinfo=UTC), TRACE)
HEADERS: dict[str, bytes | None] = dict(GOOD.headers())


def parsed(**changes: bytes | None) -> Envelope:
    changed = HEADERS | {name.replace("content_type", "content-type"): value for name, value in changes.items()}
    return parse_headers(list(changed.items()))


def test_what_is_written_is_read_back() -> None:
    assert parse_headers(GOOD.headers()) == GOOD
    without_trace = Envelope("id-1", "usage.delta.v1", "/platform", GOOD.time)
    assert parse_headers(without_trace.headers()) == without_trace


@pytest.mark.parametrize("name", ["ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time"])
def test_a_missing_attribute_is_named(name: str) -> None:
    with pytest.raises(EnvelopeError, match=name) as refused:
        parse_headers([pair for pair in HEADERS.items() if pair[0] != name])
    assert refused.value.code is INVALID_REQUEST


@pytest.mark.parametrize("name", ["ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time"])
@pytest.mark.parametrize("value", [None, b"", b"\xff", b"a\0b", b"a\nb", b"\x1b[31m", b"x" * 257])
def test_an_unreadable_attribute_is_named(name: str, value: bytes | None) -> None:
    with pytest.raises(EnvelopeError, match=name) as refused:
        parsed(**{name: value})
    assert refused.value.detail.isprintable()


@pytest.mark.parametrize("value", [b"0.3", b"2.0", b"1", b"1.", b"1.0x", b"1.x"])
def test_another_specification_is_refused(value: bytes) -> None:
    with pytest.raises(EnvelopeError, match="is not 1"):
        parsed(ce_specversion=value)


@pytest.mark.parametrize("value", [b"usage.delta", b"usage.delta.v0", b"v1", b"Usage.v1", b"usage..v1", b"usage.v1.x"])
def test_a_type_without_a_major_version_is_refused(value: bytes) -> None:
    with pytest.raises(EnvelopeError, match="major version"):
        parsed(ce_type=value)


@pytest.mark.parametrize(
    "value", [b"now", b"1764504000", b"2026-11-30T12:00:00", b"2026-13-01T00:00:00Z", b"0001-01-01T00:00:00+14:00"]
)
def test_a_time_that_is_no_instant_is_refused(value: bytes) -> None:
    with pytest.raises(EnvelopeError, match="ce_time"):
        parsed(ce_time=value)


def test_times_are_read_into_utc() -> None:
    assert parsed(ce_time=b"2026-11-30T13:00:00+01:00").time.isoformat() == "2026-11-30T12:00:00+00:00"


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"garbage", TRACE.upper().encode(), TRACE.encode() + b"-x"])
def test_a_broken_trace_costs_no_event(value: bytes | None) -> None:
    assert parsed(traceparent=value).traceparent is None


def test_the_last_of_repeated_headers_counts_and_absent_ones_are_none() -> None:
    assert text_header([("a", b"1"), ("b", b"2"), ("a", b"3")], "a") == "3"
    assert text_header([], "a") is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*HEADERS, "x"]), st.none() | st.binary(max_size=40)), max_size=12))
def test_any_headers_make_an_envelope_or_an_envelope_error(extra: list[tuple[str, bytes | None]]) -> None:
    try:
        parse_headers([*HEADERS.items(), *extra])
    except EnvelopeError as error:
        assert "\0" not in error.detail  # noqa: PT017 - both outcomes are expected
