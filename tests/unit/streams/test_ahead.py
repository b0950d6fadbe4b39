"""What is taken from the source while a batch is being applied, and when it is forgotten."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plimsoll_streams.ahead import BATCH_BYTES, ReadAhead
from plimsoll_streams.ports import Settings
from plimsoll_streams.records import Partition, Record

FACTS, REQUESTS = Partition("facts", 0), Partition("requests", 0)


class Log:
    """A source with two logs; like the real one it delivers a record once, unless it is sought."""

    def __init__(self, facts: int, requests: int = 0) -> None:
        self.left = {FACTS: deque(range(facts)), REQUESTS: deque(range(requests))}
        self.paused: set[Partition] = set()
        self.limits: list[int] = []
        self.sizes: dict[Partition, int] = {}

    async def poll(
        self, partitions: Collection[Partition], *, seconds: float, limit: int
    ) -> dict[Partition, list[Record]]:
        if limit < 1:
            raise ValueError(limit)  # as aiokafka does
        self.limits.append(limit)
        found = {
            partition: [Record(*partition, left.popleft(), None, value) for _ in range(min(limit, len(left)))]
            for partition, left in self.left.items()
            if left and partition not in self.paused and (not partitions or partition in partitions)
            for value in [b"v" * self.sizes.get(partition, 0)]
        }
        if not found:
            await asyncio.sleep(seconds)
        return found

    def seek(self, partition: Partition, offset: int) -> None:
        self.left[partition] = deque(range(offset, 100))

    def pause(self, partitions: Collection[Partition]) -> None:
        self.paused.update(partitions)


@asynccontextmanager
async def reading(log: Log) -> AsyncIterator[ReadAhead]:
    source: Any = log
    settings = Settings(records_max=10, first_records_max=5, poll_seconds=0.05)
    ahead = ReadAhead(source, settings, lambda _: None)
    task = asyncio.create_task(ahead.run())
    await asyncio.sleep(0.01)
    yield ahead
    task.cancel()


async def take(ahead: ReadAhead) -> dict[Partition, list[int]]:
    taken = await ahead.take(lambda: [REQUESTS])
    return {partition: [record.offset for record in records] for partition, records in taken.items()}


async def test_what_comes_during_a_batch_is_taken_in_order_until_there_is_no_room() -> None:
    log = Log(4)
    async with reading(log) as ahead:
        log.left[FACTS].extend(range(4, 30))
        await asyncio.sleep(0.1)

        assert await take(ahead) == {FACTS: list(range(10))}
        assert await take(ahead) == {FACTS: list(range(10, 20))}
        assert max(log.limits) == 10


async def test_what_is_decided_first_goes_into_the_batch_that_the_others_fill() -> None:
    log = Log(30)
    async with reading(log) as ahead:
        log.left[REQUESTS].extend(range(7))

        assert await take(ahead) == {FACTS: list(range(10)), REQUESTS: list(range(5))}


async def test_a_flood_of_large_records_leaves_room_for_others_and_keeps_its_order() -> None:
    log = Log(0)
    log.sizes[FACTS] = BATCH_BYTES // 4
    async with reading(log) as ahead:
        log.left[FACTS].extend(range(9))
        log.left[REQUESTS].extend(range(3))

        assert await take(ahead) == {FACTS: [0, 1], REQUESTS: [0, 1, 2]}, "half of the bytes for each of two"
        assert await take(ahead) == {FACTS: [2, 3, 4, 5]}
        ahead.seek(FACTS, 7)
        log.left[FACTS] = deque([7, 8])
        assert await take(ahead) == {FACTS: [7, 8]}


async def test_a_busy_partition_is_not_cut_while_the_batch_is_small() -> None:
    log = Log(0)
    log.sizes[FACTS] = BATCH_BYTES // 10
    async with reading(log) as ahead:
        log.left[FACTS].extend(range(9))
        log.left[REQUESTS].extend(range(1))

        assert await take(ahead) == {FACTS: list(range(9)), REQUESTS: [0]}


async def test_a_record_that_is_larger_than_a_batch_comes_alone() -> None:
    log = Log(0, 0)
    log.sizes = {FACTS: BATCH_BYTES * 2, REQUESTS: BATCH_BYTES * 2}
    async with reading(log) as ahead:
        log.left[FACTS].extend(range(2))
        log.left[REQUESTS].extend(range(2))

        assert await take(ahead) == {FACTS: [0], REQUESTS: [0]}
        assert await take(ahead) == {FACTS: [1], REQUESTS: [1]}


async def test_what_waits_from_a_flood_is_bounded() -> None:
    log = Log(0)
    log.sizes[REQUESTS] = BATCH_BYTES
    async with reading(log) as ahead:
        log.left[REQUESTS].extend(range(90))
        for number in range(20):
            assert await take(ahead) == {REQUESTS: [number]}
            assert ahead._count() <= 15


async def test_nothing_comes_within_the_time_of_a_poll() -> None:
    async with reading(Log(0)) as ahead:
        assert await take(ahead) == {}


async def test_a_seek_forgets_what_was_taken_of_its_partition() -> None:
    async with reading(Log(8, 2)) as ahead:
        ahead.seek(FACTS, 95)

        assert await take(ahead) == {REQUESTS: [0, 1]}
        assert await take(ahead) == {FACTS: list(range(95, 100))}


async def test_what_is_paused_is_not_delivered() -> None:
    async with reading(Log(8)) as ahead:
        ahead.pause([FACTS])

        assert await take(ahead) == {}


async def test_an_error_is_told_once_and_reading_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    log, works = Log(3), Log.poll

    async def fail(*_: Any, **__: Any) -> dict[Partition, list[Record]]:
        raise OSError

    monkeypatch.setattr(Log, "poll", fail)
    async with reading(log) as ahead:
        monkeypatch.setattr(Log, "poll", works)
        with pytest.raises(OSError):  # noqa: PT011 - it has no message
            await take(ahead)

        assert await take(ahead) == {FACTS: [0, 1, 2]}
