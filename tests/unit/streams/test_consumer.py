"""What the loop does with a poll before it opens a transaction."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError

from plimsoll_streams.consumer import Consumer
from plimsoll_streams.ownership import Claim, Holding, Ownership, Phase, select_fresh
from plimsoll_streams.records import Partition, Record

A = Partition("facts", 0)


class Seeks:
    """A source that remembers where it was sent, and fails at every poll."""

    def __init__(self) -> None:
        self.seeks: list[tuple[Partition, int]] = []

    async def poll(self, *_: Any, **__: Any) -> dict[Partition, list[Record]]:
        raise KafkaTimeoutError

    def seek(self, partition: Partition, offset: int) -> None:
        self.seeks.append((partition, offset))


class Absent:
    """Stands where nothing is asked for."""

    def foresee(self, records: Iterable[Record]) -> None:
        raise NotImplementedError


def believed(consumer: Consumer[Any], *offsets: int) -> list[int]:
    records = [Record("facts", 0, offset, b"k", b"v") for offset in offsets]
    selection = consumer._believe(select_fresh({A: records}, {A: Claim(5, 1)}))
    return [record.offset for part in selection.slices for record in part.records]


def test_a_gap_is_read_twice_before_it_is_believed() -> None:
    source: Any = Seeks()
    absent: Any = Absent()
    consumer: Consumer[Any] = Consumer(source=source, ledger=absent, processor=absent, observer=absent)

    assert believed(consumer, 8, 9) == []
    assert source.seeks == [(A, 5)]
    assert believed(consumer, 8, 9, 10) == [8, 9, 10]
    assert source.seeks == [(A, 5)]


def test_a_place_that_was_lost_once_is_not_believed_later() -> None:
    source: Any = Seeks()
    absent: Any = Absent()
    consumer: Consumer[Any] = Consumer(source=source, ledger=absent, processor=absent, observer=absent)

    assert believed(consumer, 8, 9) == []
    assert believed(consumer, 5, 6, 7) == [5, 6, 7]
    assert believed(consumer, 8, 9) == []
    assert source.seeks == [(A, 5), (A, 5)]


async def test_what_other_polls_brought_is_read_again_when_one_fails() -> None:
    source: Any = Seeks()
    absent: Any = Absent()
    consumer: Consumer[Any] = Consumer(source=source, ledger=absent, processor=absent, observer=absent)
    consumer.ownership = Ownership(holdings={A: Holding(Phase.OWNED, Claim(5, 1))})
    reading = asyncio.create_task(consumer._ahead.run())

    with pytest.raises(KafkaTimeoutError):
        await consumer._round()

    assert source.seeks == [(A, 5)]
    reading.cancel()
