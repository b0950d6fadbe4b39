"""What the loop does with a poll before it opens a transaction."""

from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError

from plimsoll_streams.consumer import Consumer
from plimsoll_streams.ownership import Claim, Holding, Ownership, Phase, select_fresh
from plimsoll_streams.records import Partition, Record

A = Partition("facts", 0)


class Seeks:
    """A source that remembers where it was sent, and fails at its second poll."""

    def __init__(self) -> None:
        self.seeks: list[tuple[Partition, int]] = []
        self.polls = 0

    async def poll(self, *_: Any, **__: Any) -> dict[Partition, list[Record]]:
        self.polls += 1
        if self.polls > 1:
            raise KafkaTimeoutError
        return {A: [Record("facts", 0, 5, b"k", b"v")]}

    def seek(self, partition: Partition, offset: int) -> None:
        self.seeks.append((partition, offset))


def believed(consumer: Consumer[Any], *offsets: int) -> list[int]:
    records = [Record("facts", 0, offset, b"k", b"v") for offset in offsets]
    selection = consumer._believe(select_fresh({A: records}, {A: Claim(5, 1)}))
    return [record.offset for part in selection.slices for record in part.records]


def test_a_gap_is_read_twice_before_it_is_believed() -> None:
    source: Any = Seeks()
    absent: Any = None
    consumer: Consumer[Any] = Consumer(source=source, ledger=absent, processor=absent, observer=absent)

    assert believed(consumer, 8, 9) == []
    assert source.seeks == [(A, 5)]
    assert believed(consumer, 8, 9, 10) == [8, 9, 10]
    assert source.seeks == [(A, 5)]


def test_a_place_that_was_lost_once_is_not_believed_later() -> None:
    source: Any = Seeks()
    absent: Any = None
    consumer: Consumer[Any] = Consumer(source=source, ledger=absent, processor=absent, observer=absent)

    assert believed(consumer, 8, 9) == []
    assert believed(consumer, 5, 6, 7) == [5, 6, 7]
    assert believed(consumer, 8, 9) == []
    assert source.seeks == [(A, 5), (A, 5)]


async def test_what_a_poll_brought_is_read_again_when_its_second_look_fails() -> None:
    source: Any = Seeks()
    absent: Any = None
    consumer: Consumer[Any] = Consumer(
        source=source, ledger=absent, processor=absent, observer=absent, first_topics=frozenset({"requests"})
    )
    consumer.ownership = Ownership(
        holdings={
            A: Holding(Phase.OWNED, Claim(5, 1)),
            Partition("requests", 0): Holding(Phase.OWNED, Claim(0, 1)),
        }
    )

    with pytest.raises(KafkaTimeoutError):
        await consumer._round()

    assert (A, 5) in source.seeks
