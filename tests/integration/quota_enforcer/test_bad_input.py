"""Each bad input gets its code or a dead letter with its reason, is counted, loses nothing, and stops nothing."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError

from plimsoll_client import Denied
from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.quantities import MAX_AMOUNT
from plimsoll_contracts.requests import MAX_REQUEST_BYTES
from plimsoll_contracts.topics import QUOTA_REQUESTS, REPLIES_FLOWS, USAGE_DELTAS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Headers, Wire, asking, header, unique

FIVE_MB = 5_000_000


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


def milliseconds(moment: datetime) -> bytes:
    return b"%d" % int(moment.timestamp() * 1000)


BODIES: dict[str, tuple[Mapping[str, Any] | bytes, Code]] = {
    "undecodable bytes": (b"\xff\xfe\x00{", codes.UNDECODABLE),
    "no JSON": (b"please", codes.UNDECODABLE),
    "an empty body": (b"", codes.UNDECODABLE),
    "JSON of another shape": (b"[1, 2]", codes.INVALID_REQUEST),
    "a verb nobody knows": ({"verb": "grant"}, codes.INVALID_REQUEST),
    "a text for a time to live": ({"ttl_seconds": "60"}, codes.INVALID_REQUEST),
    "a number for a moment": ({"issued_at": 1_700_000_000}, codes.INVALID_REQUEST),
    "a boolean for an amount": ({"footprint": {"cpu": True}}, codes.INVALID_CPU),
    "an unknown field": ({"priority": 1}, codes.UNKNOWN_FIELD),
    "an unknown dimension": ({"footprint": {"gpu": 1}}, codes.UNKNOWN_FIELD),
    "a tenant outside the grammar": ({"tenant": "Acme"}, codes.INVALID_NAME),
    "a name with a newline": ({"environment": "prod\n"}, codes.INVALID_NAME),
    "a name of 64 characters": ({"stack": "a" * 64}, codes.INVALID_NAME),
    "a negative amount of cpu": ({"footprint": {"cpu": -1}}, codes.INVALID_CPU),
    "a negative amount of bytes": ({"footprint": {"memory": "-1"}}, codes.INVALID_BYTES),
    "an amount beyond int64": ({"footprint": {"disk": 2**63}}, codes.INVALID_BYTES),
    "a negative count": ({"footprint": {"vapps": -1}}, codes.INVALID_COUNT),
    "a roll-up": ({"environment": None}, codes.SCOPE_IS_ROLLUP),
    "a zero byte in an id": ({"deployment": "d\x00"}, codes.INVALID_REQUEST),
    "a field written twice": (b'{"verb": "release", "verb": "release"}', codes.INVALID_REQUEST),
    "a body over the maximum": (b'{"verb": "' + b"x" * MAX_REQUEST_BYTES + b'"}', codes.TOO_LARGE),
    "the key of another tenant": ({"tenant": "somebody-else"}, codes.KEY_MISMATCH),
}


@pytest.mark.parametrize("what", BODIES)
async def test_a_bad_body_is_answered_with_its_code(quota: Platform, wire: Wire, tenant: str, what: str) -> None:
    wrong, code = BODIES[what]
    body = wrong if isinstance(wrong, bytes) else {**asking("reserve", tenant), **wrong}
    counted = await quota.counted()

    correlation = await wire.request(body, key=tenant)
    behind = await wire.ask(asking("reserve", tenant))

    (reply,) = await wire.replies(correlation)
    assert (reply.allowed, reply.code, reply.status) == (False, code.code, code.status)
    assert reply.message
    assert behind.allowed, "a good request right behind it, in the same partition, is answered"
    assert await counted.since("quota_refusals_total", code=code.code) == 1
    assert await counted.since("quota_decisions_total", verb="none", verdict="invalid") == 1
    assert len(await quota.decisions(tenant)) == 1
    assert await quota.used(tenant, "cpu") == (0, 100)


async def test_a_deadline_that_passed_is_told_and_nothing_is_decided(quota: Platform, wire: Wire, tenant: str) -> None:
    counted = await quota.counted()
    late = [("deadline", milliseconds(datetime.now(UTC) - timedelta(seconds=1)))]
    question = asking("reserve", tenant)

    reply = await wire.ask(question, more=late)

    assert reply.code == codes.DEADLINE_PASSED.code
    assert await quota.decisions(tenant) == []
    assert await counted.since("quota_refusals_total", code=codes.DEADLINE_PASSED.code) == 1
    again = await wire.ask(question, more=[("deadline", milliseconds(datetime.now(UTC) + timedelta(seconds=30)))])
    assert again.allowed, "the same request with a later deadline is decided"
    assert not again.repeated


async def test_a_fact_is_never_dropped_for_being_late(quota: Platform, wire: Wire, tenant: str) -> None:
    late = [("deadline", milliseconds(datetime.now(UTC) - timedelta(hours=1)))]

    assert (await wire.ask(asking("adjust", tenant), more=late)).allowed
    assert await quota.used(tenant, "cpu") == (100, 0)


async def test_a_deadline_that_cannot_be_read_is_told(wire: Wire, tenant: str) -> None:
    for unreadable in (b"soon", b"9" * 40, b"\xff", b"", "٣".encode()):
        reply = await wire.ask(asking("reserve", tenant), more=[("deadline", unreadable)])
        assert reply.code == codes.INVALID_REQUEST.code
        assert "deadline" in reply.message


@pytest.mark.parametrize(
    ("issued", "code"),
    [
        ({"hours": 24, "minutes": 1}, codes.REQUEST_TOO_OLD),
        ({"days": 30}, codes.REQUEST_TOO_OLD),
        ({"minutes": -6}, codes.ISSUED_IN_FUTURE),
        ({"days": -1}, codes.ISSUED_IN_FUTURE),
    ],
)
async def test_a_moment_outside_the_window_is_never_decided(
    quota: Platform, wire: Wire, tenant: str, issued: dict[str, float], code: Code
) -> None:
    counted = await quota.counted()

    reply = await wire.ask(asking("reserve", tenant, issued_at=ago(**issued)))

    assert (reply.allowed, reply.code) == (False, code.code)
    assert await counted.since("quota_refusals_total", code=code.code) == 1
    assert await quota.decisions(tenant) == []
    assert (await wire.ask(asking("reserve", tenant, issued_at=ago(hours=23, minutes=59)))).allowed
    assert (await wire.ask(asking("check", tenant, deployment="d2", issued_at=ago(minutes=-4)))).allowed


async def test_a_repeated_id_with_another_body_changes_nothing(quota: Platform, wire: Wire, tenant: str) -> None:
    question = asking("reserve", tenant)
    assert (await wire.ask(question)).allowed
    counted = await quota.counted()

    for other in ({"footprint": {"cpu": 101}}, {"deployment": "d2"}, {"ttl_seconds": 601}, {"issued_at": ago(hours=1)}):
        assert (await wire.ask({**question, **other})).code == codes.IDEMPOTENCY_MISMATCH.code

    assert await counted.since("quota_refusals_total", code=codes.IDEMPOTENCY_MISMATCH.code) == 4
    assert await quota.used(tenant, "cpu") == (0, 100)
    assert (await wire.ask(question)).repeated, "the first body still has its answer"


async def test_a_revision_that_goes_back_is_stale_and_changes_nothing(quota: Platform, wire: Wire, tenant: str) -> None:
    assert (await wire.ask(asking("adjust", tenant, revision=5))).allowed
    counted = await quota.counted()

    reply = await wire.ask(asking("adjust", tenant, revision=4, footprint={"cpu": 900}))
    await wire.tell(USAGE_DELTAS, {"tenant": tenant, "deployment": "d1", "revision": 3, "after": None})

    assert reply.settled is not None
    assert (reply.settled.outcome, reply.settled.revision) == ("stale", 5)

    async def is_counted() -> bool:
        return await counted.since("quota_settles_total", outcome="stale") == 1

    await eventually(is_counted)
    assert await quota.used(tenant, "cpu") == (100, 0)


async def test_a_sum_that_would_overflow_is_refused(quota: Platform, wire: Wire, tenant: str) -> None:
    large = {"disk": MAX_AMOUNT}
    for number in range(1023):
        await wire.post(asking("adjust", tenant, deployment=f"d{number}", footprint=large), key=tenant)
    assert (await wire.ask(asking("adjust", tenant, deployment="last", footprint=large))).allowed

    for verb in ("reserve", "adjust", "check"):
        reply = await wire.ask(asking(verb, tenant, deployment="beyond", footprint=large))
        assert reply.code == codes.AMOUNT_OVERFLOW.code, verb
    assert await quota.used(tenant, "disk") == (1024 * MAX_AMOUNT, 0)


ADDRESSES: dict[str, tuple[Headers, Code]] = {
    "no reply_to": ((), codes.NO_REPLY_TO),
    "an empty reply_to": ((("reply_to", b""),), codes.NO_REPLY_TO),
    "a null reply_to": ((("reply_to", None),), codes.NO_REPLY_TO),
    "a reply_to that is no text": ((("reply_to", b"\xff\xfe"),), codes.NO_REPLY_TO),
    "a reply_to outside the prefix": ((("reply_to", USAGE_DELTAS.name.encode()),), codes.REPLY_TO_REFUSED),
    "our own request topic": ((("reply_to", QUOTA_REQUESTS.name.encode()),), codes.REPLY_TO_REFUSED),
    "a topic that does not exist": ((("reply_to", b"quota.replies.nobody"),), codes.REPLY_TO_UNKNOWN),
    "a name no topic can have": ((("reply_to", b"quota.replies./../x"),), codes.REPLY_TO_UNKNOWN),
    "the bare prefix": ((("reply_to", b"quota.replies."),), codes.REPLY_TO_UNKNOWN),
    "a partition there is not": (
        (("reply_to", REPLIES_FLOWS.name.encode()), ("reply_partition", b"16")),
        codes.REPLY_TO_UNKNOWN,
    ),
    "a partition below zero": (
        (("reply_to", REPLIES_FLOWS.name.encode()), ("reply_partition", b"-1")),
        codes.REPLY_TO_UNKNOWN,
    ),
    "a partition that is no number": (
        (("reply_to", REPLIES_FLOWS.name.encode()), ("reply_partition", "²".encode())),
        codes.REPLY_TO_UNKNOWN,
    ),
}


@pytest.mark.parametrize("what", ADDRESSES)
async def test_a_request_that_nobody_can_be_told_about_becomes_a_dead_letter(
    quota: Platform, wire: Wire, tenant: str, what: str
) -> None:
    headers, code = ADDRESSES[what]
    counted = await quota.counted()
    body = json.dumps(asking("reserve", tenant, deployment="bad")).encode()

    place = await wire.send(QUOTA_REQUESTS, body, key=tenant.encode(), headers=[*headers, ("x-own", b"\x00\xff")])
    behind = await wire.ask(asking("reserve", tenant))

    assert behind.allowed
    letter = await wire.dead_letter(place)
    assert (letter.key, letter.value) == (tenant.encode(), body)
    assert letter.headers[: len(headers) + 1] == (*headers, ("x-own", b"\x00\xff")), "its own headers, byte for byte"
    assert header(letter, "dlq-code") == code.code.encode()
    assert header(letter, "dlq-detail")
    assert await counted.since("streams_dead_letters_total", topic=QUOTA_REQUESTS.name, reason="invalid") == 1
    assert [decision["reply"]["hold"]["deployment"] for decision in await quota.decisions(tenant)] == ["d1"]


async def test_the_largest_record_becomes_a_dead_letter_whole(wire: Wire, tenant: str) -> None:
    value = b"x" * (QUOTA_REQUESTS.max_message_bytes - 1000)

    place = await wire.send(QUOTA_REQUESTS, value, key=tenant.encode())

    assert (await wire.dead_letter(place)).value == value


async def test_a_request_without_a_key_is_told(wire: Wire, tenant: str) -> None:
    correlation = b"no-key-" + tenant.encode()
    headers = [("reply_to", REPLIES_FLOWS.name.encode()), ("correlation_id", correlation)]

    await wire.send(QUOTA_REQUESTS, json.dumps(asking("reserve", tenant)).encode(), key=None, headers=headers)

    assert (await wire.replies(correlation))[0].code == codes.KEY_MISMATCH.code


async def test_of_a_header_written_twice_the_last_counts(wire: Wire, tenant: str) -> None:
    correlation = b"twice-" + tenant.encode()
    headers = [("reply_to", b"elsewhere"), ("reply_to", REPLIES_FLOWS.name.encode()), ("correlation_id", correlation)]

    await wire.request(asking("reserve", tenant), headers=headers)

    assert (await wire.replies(correlation))[0].allowed


async def test_a_refused_reply_address_is_never_written_to(wire: Wire, tenant: str) -> None:
    partitions = await wire.producer.partitions_for(USAGE_DELTAS.name)
    before = await wire.ends(USAGE_DELTAS)

    await wire.request(asking("reserve", tenant), headers=[("reply_to", USAGE_DELTAS.name.encode())])
    assert (await wire.ask(asking("check", tenant))).allowed

    assert len(partitions) == USAGE_DELTAS.partitions
    assert await wire.ends(USAGE_DELTAS) == before
    assert "quota.replies.nobody" not in await wire.topics(), "no topic is created by being named"


async def test_five_megabytes_never_get_beyond_the_broker(quota: Platform, wire: Wire, tenant: str) -> None:
    with pytest.raises(MessageSizeTooLargeError):
        await wire.request(b"x" * FIVE_MB, key=tenant)
    sent = await quota.client.reserve(
        tenant=tenant, deployment="d1", footprint={"cpu": "9" * FIVE_MB}, on_unknown="open"
    )
    assert isinstance(sent, Denied), "the client refuses it unsent"
    async with quota.http as http:
        answer = await http.post("/check", content=b"x" * FIVE_MB, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, codes.TOO_LARGE.code)
    assert (await wire.ask(asking("reserve", tenant))).allowed


async def test_a_flood_of_bad_input_loses_no_good_request(quota: Platform, wire: Wire) -> None:
    tenants = [unique() for _ in range(8)]
    good: list[bytes] = []
    for number in range(200):
        tenant = tenants[number % 8]
        await wire.post(b"\xff" * (number % 50), key=tenant)
        await wire.post(json.dumps(asking("reserve", tenant)).encode(), key=tenant, headers=[("reply_to", b"x")])
        good.append(await wire.post(asking("adjust", tenant, deployment=f"d{number}"), key=tenant))

    replies = [(await wire.replies(correlation))[0] for correlation in good]

    assert all(reply.allowed for reply in replies)
    for tenant in tenants:
        assert await quota.used(tenant, "cpu") == (2500, 0)
