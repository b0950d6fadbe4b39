"""What a record may break, and what is said about it."""

import asyncio
from typing import Any

import pytest

from plimsoll_contracts import codes
from plimsoll_devkit import sums
from plimsoll_streams import dead_letters, outbox
from plimsoll_streams.dispatch import LARGE, Dispatcher, Subscription, decode_by_type
from plimsoll_streams.failures import Invalid
from plimsoll_streams.ownership import Claim, Slice
from plimsoll_streams.records import Partition, Record

TOPIC = sums.topics("t")[1]
TYPE = ("ce_type", b"increment.v1")


class Deaf:
    """Stands where replies would be looked up."""

    async def learn(self, _: object) -> None: ...


def dispatching() -> Any:
    async def nothing(*_: object) -> None: ...

    subscription: Any = Subscription(TOPIC, nothing, decode_by_type(TOPIC), str, first=False, answers=False)
    replies: Any = Deaf()
    return Dispatcher(
        consumer="c", subscriptions=[subscription], open_unit=nothing, replies=replies, wake_relay=lambda: None
    )


def decoded(value: bytes | None, *headers: tuple[str, bytes | None]) -> Any:
    return dispatching()._decode(Record(TOPIC.name, 0, 7, b"k", value, headers))


def test_the_type_in_the_header_chooses_the_model() -> None:
    received = decoded(b'{"key": "a", "seq": 1}', TYPE)

    assert received.message == sums.Increment(key="a", seq=1)
    assert received.record.offset == 7


@pytest.mark.parametrize(
    ("value", "headers", "code", "detail"),
    [
        (b"\xff\x00", [TYPE], codes.UNDECODABLE, "JSON"),
        (b"", [TYPE], codes.UNDECODABLE, "JSON"),
        (None, [TYPE], codes.UNDECODABLE, "no value"),
        (b'{"key": 1}', [TYPE], codes.INVALID_REQUEST, "seq: Field required"),
        (b"{}", [], codes.INVALID_REQUEST, "ce_type None"),
        (b"{}", [("ce_type", b"other.v1")], codes.INVALID_REQUEST, "other.v1"),
        (b"{}", [("ce_type", b"\xff")], codes.INVALID_REQUEST, "not UTF-8"),
        (b"{}", [("ce_type", None)], codes.INVALID_REQUEST, "ce_type"),
    ],
)
def test_a_breach_has_its_code_and_says_what(value: bytes | None, headers: Any, code: codes.Code, detail: str) -> None:
    found = decoded(value, *headers)

    assert isinstance(found, Invalid)
    assert found.code is code
    assert detail in found.detail


def test_the_detail_never_repeats_the_input() -> None:
    found = decoded(b'{"key": 7, "seq": "hunter2"}', TYPE)

    assert "hunter2" not in found.detail


def test_headers_come_back_as_they_were() -> None:
    headers = (("a", b"\xff\x00"), ("a", None), ("z\x00", b""))

    assert outbox.join_headers(*outbox.split_headers(headers)) == headers


def test_one_key_has_one_shard() -> None:
    assert outbox.shard_of(b"acme") == outbox.shard_of(b"acme")
    assert 0 <= outbox.shard_of(None) < outbox.SHARDS


def test_a_dead_letter_keeps_the_bytes_and_bounds_the_detail() -> None:
    record = Record("t.facts", 3, 9, b"\xff", None, (("h", b"\xfe"),))

    letter = dead_letters.make(record, codes.POISON, "a\x00b\ud800" + "x" * 9999)
    message = letter.message("me", "t.facts.dlq")

    assert "\x00" not in letter.detail
    assert len(letter.detail) == dead_letters.DETAIL_MAX
    assert (message.key, message.value, message.headers[0]) == (b"\xff", None, ("h", b"\xfe"))
    assert dict(message.headers)["dlq-offset"] == b"9"


def test_a_dead_letter_without_key_and_value_can_still_be_sent() -> None:
    message = dead_letters.make(Record("t", 0, 0, None, None), codes.POISON, "x").message("me", "t.dlq")

    assert message.value == b""
    assert dict(message.headers)["dlq-value"] == b"null"


async def test_the_loop_breathes_between_records_that_take_long_to_decode() -> None:
    """Heartbeats run in the same loop: a batch of large compose files once cost the member its partitions."""
    dispatcher, turns = dispatching(), 0

    async def heartbeat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    body = b'{"key": "a", "seq": 1}'
    records = [Record(TOPIC.name, 0, n, b"k", body + b" " * (LARGE if n % 2 else 0), (TYPE,)) for n in range(10)]
    dispatcher.foresee(records)
    assert len(dispatcher._foreseen) == 5, "the large ones wait for their batch"
    beating = asyncio.create_task(heartbeat())
    await dispatcher.prepare([Slice(Partition(TOPIC.name, 0), Claim(0, 1), records)])
    beating.cancel()

    assert turns >= 5
    assert [each.message.seq for each in dispatcher._decoded.values()] == [1] * 10
    assert not dispatcher._foreseen
