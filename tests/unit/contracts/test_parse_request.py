"""Whatever comes in a body: a request, or one clear code, and never anything else."""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plimsoll_contracts import codes
from plimsoll_contracts.codes import CODES, Code
from plimsoll_contracts.problems import MAX_PROBLEMS
from plimsoll_contracts.requests import MAX_REQUEST_BYTES, AdjustRequest, RequestInvalid, ReserveRequest, parse_request
from plimsoll_contracts.scopes import Scope

RESERVE: dict[str, Any] = {
    "verb": "reserve",
    "request_id": "req-1",
    "issued_at": "2026-11-30T12:00:00Z",
    "tenant": "acme",
    "environment": "prod",
    "stack": "blog",
    "deployment": "dep-1",
    "footprint": {"cpu": "0.5", "memory": "512m"},
}
COMMIT: dict[str, Any] = {
    "verb": "commit",
    "request_id": "req-2",
    "issued_at": "2026-11-30T12:00:00Z",
    "tenant": "acme",
    "hold": "req-1",
}


def body(document: object) -> bytes:
    return json.dumps(document).encode()


def refusal(raw: bytes | None) -> RequestInvalid:
    with pytest.raises(RequestInvalid) as refused:
        parse_request(raw)
    return refused.value


def changed(**changes: object) -> bytes:
    return body(RESERVE | changes)


def with_text(text: str) -> bytes:
    """Put raw JSON where the amount of cpu stands."""
    return body(RESERVE | {"footprint": {"cpu": "HERE"}}).replace(b'"HERE"', text.encode())


def test_a_request() -> None:
    request = parse_request(body(RESERVE))
    assert isinstance(request, ReserveRequest)
    assert request.scope == Scope("acme", "prod", "blog")
    assert request.footprint is not None
    assert (request.footprint.cpu, request.footprint.memory, request.ttl_seconds) == (500, 536_870_912, 600)


def test_space_around_keys_is_no_repetition() -> None:
    assert parse_request(json.dumps(RESERVE, indent=3).replace('":', '" \t\r\n:').encode()) == parse_request(
        body(RESERVE)
    )


def test_gone_is_a_null_footprint_and_must_be_told() -> None:
    gone = {"verb": "adjust", **{name: RESERVE[name] for name in ("request_id", "issued_at", "tenant", "deployment")}}
    request = parse_request(body(gone | {"footprint": None}))
    assert isinstance(request, AdjustRequest)
    assert request.footprint is None
    assert refusal(body(gone)).code is codes.INVALID_REQUEST


UNDECODABLE = {
    "nothing": b"",
    "no JSON": b"hello",
    "cut off": body(RESERVE)[:-1],
    "not UTF-8": b"\xff\xfe",
    "not UTF-8 in a text": body(RESERVE).replace(b"acme", b"ac\xffme"),
    "UTF-16": json.dumps(RESERVE).encode("utf-16"),
    "a mark of byte order": b"\xef\xbb\xbf" + body(RESERVE),
    "more after the end": body(RESERVE) + b"{}",
    "a lone surrogate": body(RESERVE).replace(b"acme", b"\\ud800"),
    "half a pair": body(RESERVE).replace(b"acme", b"\\udc00\\ud800"),
    "a raw NUL": body(RESERVE).replace(b"acme", b"ac\0me"),
    "100,000 deep": b'{"verb":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 deep objects": b'{"a":' * 60_000 + b"1" + b"}" * 60_000,
    "5,000 digits": with_text("9" * 5000),
    "single quotes": b"{'verb':'check'}",
    "a trailing comma": body(RESERVE)[:-1] + b",}",
}


@pytest.mark.parametrize("raw", UNDECODABLE.values(), ids=UNDECODABLE)
def test_undecodable(raw: bytes) -> None:
    assert refusal(raw).code is codes.UNDECODABLE


def test_no_body_at_all() -> None:
    assert refusal(None).code is codes.UNDECODABLE


BROKEN: dict[str, tuple[bytes, Code]] = {
    "a list": (b"[]", codes.INVALID_REQUEST),
    "null": (b"null", codes.INVALID_REQUEST),
    "a number": (b"1", codes.INVALID_REQUEST),
    "a text": (b'"reserve"', codes.INVALID_REQUEST),
    "an empty object": (b"{}", codes.INVALID_REQUEST),
    "no such verb": (changed(verb="steal"), codes.INVALID_REQUEST),
    "a verb with NUL": (changed(verb="check\0"), codes.INVALID_REQUEST),
    "a verb that is a list": (changed(verb=["check"]), codes.INVALID_REQUEST),
    "a text for a footprint": (changed(footprint="500m"), codes.INVALID_REQUEST),
    "no footprint": (changed(footprint=None), codes.INVALID_REQUEST),
    "a number for a tenant": (changed(tenant=5), codes.INVALID_REQUEST),
    "no tenant": (changed(tenant=None), codes.INVALID_REQUEST),
    "a list for an id": (changed(request_id=["a"]), codes.INVALID_REQUEST),
    "an id with NUL": (changed(request_id="a\0"), codes.INVALID_REQUEST),
    "an id with a newline": (changed(deployment="dep-1\n"), codes.INVALID_REQUEST),
    "an id too long": (changed(request_id="a" * 129), codes.INVALID_REQUEST),
    "seconds for an instant": (changed(issued_at=1_764_504_000), codes.INVALID_REQUEST),
    "seconds as a text": (changed(issued_at="1764504000"), codes.INVALID_REQUEST),
    "an instant without offset": (changed(issued_at="2026-11-30T12:00:00"), codes.INVALID_REQUEST),
    "an instant that overflows": (changed(issued_at="9999-12-31T23:59:59-14:00"), codes.INVALID_REQUEST),
    "a boolean for seconds": (changed(ttl_seconds=True), codes.INVALID_REQUEST),
    "a float for seconds": (changed(ttl_seconds=60.0), codes.INVALID_REQUEST),
    "no time to live": (changed(ttl_seconds=0), codes.INVALID_REQUEST),
    "too long to live": (changed(ttl_seconds=86_401), codes.INVALID_REQUEST),
    "no such mode": (changed(mode="off"), codes.INVALID_REQUEST),
    "a negative revision": (body(COMMIT | {"revision": -1}), codes.INVALID_REQUEST),
    "a boolean revision": (body(COMMIT | {"revision": True}), codes.INVALID_REQUEST),
    "a revision of 4,000 digits": (body(COMMIT | {"revision": 0})[:-2] + b"9" * 4000 + b"}", codes.INVALID_REQUEST),
    "a key twice": (body(RESERVE)[:-1] + b',"tenant":"evil"}', codes.INVALID_REQUEST),
    "a key twice, escaped": (body(RESERVE)[:-1] + b',"ten\\u0061nt" : "evil"}', codes.INVALID_REQUEST),
    "a key twice inside": (with_text('1,"cpu":2'), codes.INVALID_REQUEST),
    "a field nobody knows": (changed(priority=1), codes.UNKNOWN_FIELD),
    "a field with NUL": (changed(**{"a\0b": 1}), codes.UNKNOWN_FIELD),
    "a dimension nobody knows": (changed(footprint={"gpu": 1}), codes.UNKNOWN_FIELD),
    "a deep field nobody knows": (body(RESERVE)[:-1] + b',"x":' + b"[" * 150 + b"]" * 150 + b"}", codes.UNKNOWN_FIELD),
    "a field of another verb": (body(COMMIT | {"footprint": {}}), codes.UNKNOWN_FIELD),
    "a capital": (changed(tenant="Acme"), codes.INVALID_NAME),
    "a name with a newline": (changed(tenant="acme\n"), codes.INVALID_NAME),
    "a name with NUL": (changed(environment="pr\0d"), codes.INVALID_NAME),
    "an empty name": (changed(app=""), codes.INVALID_NAME),
    "a name too long": (changed(tenant="a" * 64), codes.INVALID_NAME),
    "a path for a name": (changed(stack="../etc"), codes.INVALID_NAME),
    "a name that ends in a dot": (changed(tenant="acme."), codes.INVALID_NAME),
    "a name in another script": (changed(tenant="\u0430cme"), codes.INVALID_NAME),
    "a roll-up": (changed(environment=None), codes.SCOPE_IS_ROLLUP),
    "negative cpu": (changed(footprint={"cpu": -1}), codes.INVALID_CPU),
    "negative cpu as a text": (changed(footprint={"cpu": "-500m"}), codes.INVALID_CPU),
    "negative memory": (changed(footprint={"memory": -1}), codes.INVALID_BYTES),
    "a negative count": (changed(footprint={"vapps": -1}), codes.INVALID_COUNT),
    "a boolean amount": (changed(footprint={"cpu": True}), codes.INVALID_CPU),
    "a boolean count": (changed(footprint={"vapps": True}), codes.INVALID_COUNT),
    "a float": (with_text("1.5"), codes.INVALID_CPU),
    "an exponent": (with_text("1e3"), codes.INVALID_CPU),
    "NaN": (with_text("NaN"), codes.INVALID_CPU),
    "Infinity": (with_text("-Infinity"), codes.INVALID_CPU),
    "a number too large for a double": (with_text("1e999"), codes.INVALID_CPU),
    "2^53": (with_text(str(2**53)), codes.INVALID_CPU),
    "2^63": (with_text(str(2**63)), codes.INVALID_CPU),
    "2^64 + 1": (with_text(str(2**64 + 1)), codes.INVALID_CPU),
    "4,000 digits": (with_text("9" * 4000), codes.INVALID_CPU),
    "a null amount": (with_text("null"), codes.INVALID_CPU),
    "an amount that is a list": (with_text("[1]"), codes.INVALID_CPU),
    "a space in an amount": (changed(footprint={"memory": "1 Gi"}), codes.INVALID_BYTES),
    "an empty amount": (changed(footprint={"disk": ""}), codes.INVALID_BYTES),
    "digits of another script": (changed(footprint={"vapps": "\u0663"}), codes.INVALID_COUNT),
    "an amount with NUL": (changed(footprint={"memory": "1\0"}), codes.INVALID_BYTES),
    "5 MB": (b"a" * 5_000_000, codes.TOO_LARGE),
    "one byte too many": (body(RESERVE).ljust(MAX_REQUEST_BYTES + 1), codes.TOO_LARGE),
}


@pytest.mark.parametrize(("raw", "code"), BROKEN.values(), ids=BROKEN)
def test_what_is_refused_and_why(raw: bytes, code: Code) -> None:
    refused = refusal(raw)
    assert refused.code is code
    assert 0 < len(refused.detail) < 2000
    assert refused.detail.isprintable()


def test_the_largest_body_is_still_read() -> None:
    assert parse_request(body(RESERVE).ljust(MAX_REQUEST_BYTES)) == parse_request(body(RESERVE))


def test_the_detail_names_every_field() -> None:
    detail = refusal(changed(tenant="Acme", ttl_seconds=0, footprint={"cpu": -1, "memory": "x"})).detail
    for field in ("tenant", "ttl_seconds", "footprint.cpu", "footprint.memory"):
        assert field in detail


def test_a_body_of_thousands_of_faults_holds_nobody_up() -> None:
    many = changed(**{f"x{number}": 1 for number in range(30_000)})
    assert len(many) <= MAX_REQUEST_BYTES
    started = time.process_time()
    refused = refusal(many)
    assert time.process_time() - started < 0.25  # ten times what it takes; expanding them took ten times more
    assert refused.code is codes.INVALID_REQUEST
    assert "30000" in refused.detail
    few = changed(**{f"x{number}": 1 for number in range(MAX_PROBLEMS)})
    assert refusal(few).code is codes.UNKNOWN_FIELD


def outcome(raw: bytes) -> None:
    """Read a body; anything but a request or a registered code is a fault of ours."""
    try:
        request = parse_request(raw)
    except RequestInvalid as refused:
        assert refused.code.code in CODES and refused.detail.isprintable()  # noqa: PT017, PT018 - either may come
    else:
        written = request.model_dump_json()
        assert "\\u0000" not in written
        assert parse_request(written.encode()) == request


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
field_names = st.sampled_from([*RESERVE, "ttl_seconds", "mode", "supersedes", "app", "hold", "revision"])
plausible = st.sampled_from(["acme", "a\n", "2026-11-30T12:00:00Z", "0001-01-01T00:00:00+14:00", "1g", 1, -1, 2**63])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
@example(b"\xed\xa0\x80")
def test_arbitrary_bytes(raw: bytes) -> None:
    outcome(raw)


@settings(max_examples=200, deadline=None)
@given(json_values)
def test_arbitrary_json(document: object) -> None:
    outcome(json.dumps(document).encode())
    outcome(json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(field_names, plausible | json_values, max_size=4), st.sets(field_names, max_size=2))
def test_arbitrary_changes_to_a_good_request(changes: dict[str, object], less: set[str]) -> None:
    outcome(body({name: value for name, value in (RESERVE | changes).items() if name not in less}))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(body(RESERVE))), st.integers(0, 40), st.binary(max_size=20))
def test_a_good_request_with_bytes_cut_and_put_in(start: int, length: int, put: bytes) -> None:
    whole = body(RESERVE)
    outcome(whole[:start] + put + whole[start + length :])
