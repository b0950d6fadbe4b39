"""Each trap of FastStream and aiokafka that concerns us, by name, on the real broker (reference 0.4 and 3.2)."""

import asyncio
import json
import logging
import statistics
import time
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.producer import message_accumulator, producer
from aiokafka.record import default_records

from plimsoll_contracts import codes
from plimsoll_devkit import sums
from plimsoll_devkit.sums import Increment
from plimsoll_devkit.workbench import TYPE, Bench, eventually
from plimsoll_streams import kafka
from plimsoll_streams.failures import Transient
from plimsoll_streams.ownership import Slice
from plimsoll_streams.ports import Settings
from plimsoll_streams.records import Received
from plimsoll_streams.source import KafkaSource

Batch = Sequence[Received[Increment]]


async def a_reply_topic(bench: Bench, name: str = "") -> str:
    return await bench.make_topic(f"quota.replies.{bench.name}{name}")


async def test_failed_batch_is_not_skipped(bench: Bench) -> None:
    """FastStream swallows a handler's error, and the next acknowledgement steps over the batch."""
    failures = 3

    async def fail(batch: Batch) -> None:  # noqa: ARG001
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise Transient("not now")

    await bench.start(hook=fail)
    await bench.add("a", 50)
    await bench.sums_to(50)

    assert await bench.rows() == {"a": (50, 50, 0)}
    assert failures < 0


async def test_failed_batch_is_read_again_on_every_partition(bench: Bench) -> None:
    """A nack rewound only the first partition of a batch."""
    keys = [f"k{n}" for n in range(12)]
    for key in keys:
        await bench.add(key, 5)
        await bench.add(f"{key}.requests", 5, topic=bench.requests)
    partitions: set[tuple[str, int]] = set()

    async def fail(batch: Batch) -> None:
        seen = {(each.record.topic, each.record.partition) for each in batch}
        if not seen <= partitions:
            partitions.update(seen)
            raise Transient("not now")

    await bench.start(hook=fail)
    await bench.sums_to(120)

    assert set((await bench.rows()).values()) == {(5, 5, 0)}
    assert len(partitions) > 2


async def test_binary_header_does_not_lose_records(bench: Bench) -> None:
    """A header that is no UTF-8, or None, made the default parser drop the whole batch."""
    await bench.add("a", 5, headers=[("trace", b"\xff\xfe"), ("empty", None)])
    await bench.start()
    await bench.add("a", 5)

    await bench.sums_to(10)


class BrokenName(str):
    """A header's name as only another client would write it."""

    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"\xff\xfe"


async def test_header_name_that_is_no_text_does_not_stop_the_partition(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aiokafka decodes names of headers itself: one record of a foreign client, and the consumer never gets on."""
    for module in (message_accumulator, producer):
        monkeypatch.setattr(module, "DefaultRecordBatchBuilder", default_records._DefaultRecordBatchBuilderPy)
    await bench.add("a", 7)
    broken = [(BrokenName("x"), b"1"), TYPE]
    places = [await bench.send(b"{}", key=b"a", headers=broken) for _ in range(2)]
    for key in ("a", "b", "c", "d", "e"):
        await bench.add(key, 3)

    await bench.start()
    await bench.sums_to(22)

    assert [(row["partition"], row["offset"], row["code"]) for row in await bench.letters()] == [
        (place.partition, place.offset, codes.UNDECODABLE.code) for place in places
    ]
    assert set((await bench.rows()).values()) == {(10, 10, 0), (3, 3, 0)}


async def test_undecodable_record_does_not_lose_its_neighbours(bench: Bench) -> None:
    """Undecodable JSON lost the batch, with content-type set before any handler saw it."""
    await bench.add("a", 5)
    await bench.send(b"\x00\xffnot json", key=b"a", headers=[TYPE, ("content-type", b"application/json")])
    await bench.add("a", 5)

    await bench.start()
    await bench.sums_to(10)

    letters = await bench.letters()
    assert [(row["value"], row["code"]) for row in letters] == [(b"\x00\xffnot json", codes.UNDECODABLE.code)]


async def test_tombstone_is_not_an_empty_body(bench: Bench) -> None:
    """FastStream delivers a tombstone as b""."""
    await bench.send(None, key=b"a")
    await bench.send(b"", key=b"a")
    await bench.start()
    await bench.add("a", 1)
    await bench.sums_to(1)

    assert [row["value"] for row in await bench.letters()] == [None, b""]


async def test_every_topic_is_consumed(bench: Bench) -> None:
    """A broker-wide MANUAL policy got past a check, and only the first topic was read."""
    await bench.start()
    await bench.add("a", 5)
    await bench.add("b", 5, topic=bench.requests)

    await bench.sums_to(10)


async def test_kafkas_own_offset_decides_nothing(bench: Bench) -> None:
    """After a database was restored Kafka's committed offset is ahead, and nothing would ever come."""
    await bench.add("a", 20)
    engine = await bench.start()
    await bench.sums_to(20)
    await bench.stop(engine)
    await bench.database.execute("UPDATE consumer_offsets SET next_offset = 0")
    await bench.database.execute("DELETE FROM sums")

    await bench.start()
    await bench.sums_to(20)


async def test_kafkas_own_offset_follows_the_database(bench: Bench) -> None:
    """Auto-commit is on by default, and acknowledging commits the position of everything fetched."""
    stuck = asyncio.Event()

    async def wait(batch: Batch) -> None:  # noqa: ARG001
        stuck.set()
        raise Transient("for ever")

    await bench.add("a", 20)
    await bench.start(hook=wait)
    await stuck.wait()
    await asyncio.sleep(1.5)

    admin = AIOKafkaAdminClient(bootstrap_servers=bench.bootstrap)
    await admin.start()
    committed = await admin.list_consumer_group_offsets(bench.name)
    await admin.close()
    assert all(each.offset <= 0 for each in committed.values())


async def test_revoke_waits_for_the_batch_in_flight(bench: Bench) -> None:
    """A rebalance runs beside the handler; partitions moved under it."""
    entered = asyncio.Event()

    async def dawdle(batch: Batch) -> None:  # noqa: ARG001
        entered.set()
        await asyncio.sleep(1.0)

    first = await bench.start(hook=dawdle)
    assert first._consumer is not None
    idle_when_given_back: list[bool] = []
    original = first._consumer.revoked

    async def revoked() -> None:
        await original()
        assert first._consumer is not None
        idle_when_given_back.append(first._consumer._idle.is_set())

    first._consumer.revoked = revoked  # type: ignore[method-assign]
    for key in range(20):
        await bench.add(f"k{key}")
    await entered.wait()

    await bench.start(instance=1)
    await bench.sums_to(20)

    assert set((await bench.rows()).values()) == {(1, 1, 0)}
    assert idle_when_given_back
    assert all(idle_when_given_back)


async def test_listener_that_fails_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors in a rebalance listener are logged and ignored; reading began at Kafka's offset."""
    original, calls = KafkaSource.pause, []

    def fail_once(self: KafkaSource, partitions: Any) -> None:
        calls.append(partitions)
        if len(calls) == 1:
            raise RuntimeError("listener")
        original(self, partitions)

    monkeypatch.setattr(KafkaSource, "pause", fail_once)
    await bench.add("a", 10)

    await bench.start()
    await bench.sums_to(10)

    assert await bench.rows() == {"a": (10, 10, 0)}


async def test_stop_ends_the_batch_first(bench: Bench) -> None:
    """FastStream cancels a handler that takes longer than its patience."""
    entered = asyncio.Event()

    async def dawdle(batch: Batch) -> None:  # noqa: ARG001
        entered.set()
        await asyncio.sleep(1.5)

    engine = await bench.start(hook=dawdle)
    await bench.add("a", 10)
    await entered.wait()
    await bench.stop(engine)

    assert (await bench.rows())["a"][1] > 0
    await bench.start()
    await bench.sums_to(10)
    assert await bench.rows() == {"a": (10, 10, 0)}


async def test_stop_while_starting_leaves_nothing_running(bench: Bench) -> None:
    """FastStream's own start goes on in the background when the application is told to stop."""
    for _ in range(5):
        engine = await bench.start()
        await bench.stop(engine)

        assert all(task.done() for task in engine._tasks.values())
        assert engine.failure is None


async def test_each_request_is_answered_at_its_own_address(bench: Bench) -> None:
    """A batch subscriber's automatic reply used the first message's address for all."""
    topics = [await a_reply_topic(bench, suffix) for suffix in (".a", ".b")]
    for topic in topics:
        await bench.add("a", 2, topic=bench.requests, headers=[("reply_to", topic.encode())])

    await bench.start()

    for topic, expected in zip(topics, ([1, 2], [3, 4]), strict=True):
        assert [json.loads(each.value)["total"] for each in await bench.read(topic, 2)] == expected


async def test_idle_engine_answers_at_once(bench: Bench) -> None:
    """After an empty poll a batch subscriber sleeps 200 ms although records have come."""
    topic = await a_reply_topic(bench)
    engine = await bench.start()
    await bench.add("warm", topic=bench.requests, headers=[("reply_to", topic.encode())])
    await bench.sums_to(1)
    waits = []
    for number in range(15):
        await asyncio.sleep(0.15)
        began = time.monotonic()
        await bench.add("a", topic=bench.requests)

        async def applied(expected: int = number + 1) -> bool:
            return await bench.total("a") == expected

        while not await applied():  # noqa: ASYNC110 - it is timed
            await asyncio.sleep(0.002)
        waits.append(time.monotonic() - began)
    await bench.stop(engine)

    assert statistics.median(waits) < 0.1


async def test_no_topic_is_created_by_use(bench: Bench) -> None:
    """FastStream creates topics on start, with one partition."""
    name = f"quota.replies.{bench.name}.never"
    await bench.add("a", topic=bench.requests, headers=[("reply_to", name.encode())])
    engine = await bench.start()
    await bench.sums_to(1)

    assert engine.check_reply_to(name, 0) is codes.REPLY_TO_UNKNOWN
    admin = AIOKafkaAdminClient(bootstrap_servers=bench.bootstrap)
    await admin.start()
    assert name not in await admin.list_topics()
    await admin.close()


async def test_missing_topic_is_named_at_start(bench: Bench) -> None:
    """A consumer of a missing topic waits 40 s, and does not say which it is."""
    bench.name = f"{bench.name}.other"
    began = time.monotonic()

    with pytest.raises(kafka.TopicsMissingError, match=f"{bench.name}.facts"):
        await bench.start()

    assert time.monotonic() - began < 5


async def test_no_log_line_per_record(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The default access log costs 30 us and a line per message."""
    caplog.set_level(logging.INFO)
    await bench.start()
    await bench.add("a", 300)
    await bench.sums_to(300)

    assert len(caplog.records) < 60


async def test_outbox_keeps_key_and_headers(bench: Bench) -> None:
    """publish_batch sends everything to one random partition, without the messages' own headers."""
    topic = await bench.make_topic(f"{bench.name}.out")
    await bench.start(out=topic)
    keys = [f"k{n}" for n in range(12)]
    for key in keys:
        await bench.add(key)

    found = await bench.read(topic, 12)

    expected = {(await bench.send(b"x", key=key.encode(), topic=topic)).partition for key in keys}
    assert {each.key.decode() for each in found} == set(keys)
    assert {each.partition for each in found} == expected
    assert len(expected) > 1


async def test_a_flood_of_facts_delays_no_request_by_more_than_a_batch(bench: Bench) -> None:
    """Aiokafka hands out one partition's buffer until it is empty; the others wait."""
    for key in range(20):
        await bench.add(f"f{key}", 400)
    applied: list[dict[str, int]] = []
    entered = asyncio.Event()

    async def dawdle(batch: Batch) -> None:
        await asyncio.sleep(0.03)
        if batch[0].record.topic == bench.facts and len(applied) > 3:
            entered.set()

    engine = await bench.start(hook=dawdle, settings=Settings(records_max=100))
    original = engine._reporter.applied

    def note(slices: Sequence[Slice], seconds: float) -> None:
        applied.append({part.partition.topic: len(part.records) for part in slices})
        original(slices, seconds)

    engine._reporter.applied = note  # type: ignore[method-assign]
    await entered.wait()
    asked: list[int] = []
    for number in range(5):
        await bench.add("r", topic=bench.requests)
        sent_at = len(applied)

        async def answered(expected: int = number + 1) -> bool:
            return await bench.total("r") == expected

        while not await answered():  # noqa: ASYNC110 - it is timed
            await asyncio.sleep(0.002)
        asked.append(next(n for n, each in enumerate(applied[sent_at:]) if bench.requests in each))

    # One batch may be in flight when a request comes, and one may be fetched before it is.
    assert max(asked) <= 2
    assert await bench.database.fetchval("SELECT sum(records) FROM sums") < 8000


async def test_partitions_of_one_number_meet_in_one_member(bench: Bench) -> None:
    """The sticky assignor shares its state between all consumers of a process; round robin tears topics apart."""
    engines = [await bench.start(), await bench.start(instance=1)]

    async def shared() -> bool:
        owned = [set(engine._ownership().claims()) for engine in engines]
        return len(owned[0]) == len(owned[1]) == sums.PARTITIONS

    await eventually(shared)
    for engine in engines:
        numbers = [partition.number for partition in engine._ownership().claims()]
        assert len(set(numbers)) == len(numbers) / 2
    for key in range(20):
        await bench.add(f"k{key}", 5)
    await bench.sums_to(100)
    assert set((await bench.rows()).values()) == {(5, 5, 0)}
