"""Messages come out of a row as they went in; a key goes where aiokafka sends it."""

import random

from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_streams import parcels
from plimsoll_streams.kafka import partition_of
from plimsoll_streams.records import OutboxMessage

headers = st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=4).map(tuple)
content = st.none() | st.binary(max_size=99)
messages = st.builds(OutboxMessage, st.just("t"), content, content, headers)


@given(st.lists(messages, max_size=9))
def test_what_is_packed_is_unpacked(given_messages: list[OutboxMessage]) -> None:
    assert list(parcels.unpack("t", parcels.pack(given_messages))) == given_messages


def test_a_row_holds_no_more_than_a_page_can_bear_or_one_message() -> None:
    sizes = [100_000, 100_000, 100_000, 5_000_000, 1, 1]
    given_messages = [OutboxMessage("t", b"k", bytes(size)) for size in sizes]

    made = list(parcels.parcels(given_messages))

    assert [count for count, _ in made] == [2, 1, 1, 2]
    assert [each for _, parcel in made for each in parcels.unpack("t", parcel)] == given_messages


def test_a_key_goes_where_aiokafka_sends_it() -> None:
    rng, theirs = random.Random(1), DefaultPartitioner()
    for partitions in (1, 3, 12, 64):
        every = list(range(partitions))
        for length in [*range(20), *(rng.randrange(200) for _ in range(300))]:
            key = rng.randbytes(length)
            assert partition_of(key, partitions) == theirs(key, every, every)
        assert {partition_of(None, partitions) for _ in range(1000)} == set(every)
