"""What the loop does with a poll before it opens a transaction."""

from typing import Any

from plimsoll_streams.consumer import Consumer
from plimsoll_streams.ownership import Claim, select_fresh
from plimsoll_streams.records import Partition, Record

A = Partition("facts", 0)


class Seeks:
    """A source that remembers where it was sent."""

    def __init__(self) -> None:
        self.seeks: list[tuple[Partition, int]] = []

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
