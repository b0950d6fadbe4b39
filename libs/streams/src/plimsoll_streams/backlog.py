"""How much of each topic has nobody applied, and how old is the oldest of it: asked of the broker, for all replicas."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from plimsoll_streams.kafka import CONNECT_SECONDS
from plimsoll_streams.records import Partition

READ_SECONDS = 2.0
"""How long the oldest unread records are waited for."""


@dataclass(frozen=True, slots=True)
class Unread:
    """What of one topic was not applied."""

    records: int = 0
    oldest_ms: int | None = None
    """When the oldest of it was produced (Unix milliseconds); None where there is none, or it did not come in time."""


async def unread(bootstrap: str, next_offsets: Mapping[Partition, int]) -> Mapping[str, Unread]:
    """Compare the first offsets not applied with the ends of the logs, by topic.

    Raises:
        KafkaError: the broker does not answer.
        TimeoutError: likewise.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await consumer.start()
            ends = await consumer.end_offsets([TopicPartition(*each) for each in next_offsets])
            behind = {TopicPartition(*each): next_ for each, next_ in next_offsets.items()}
            behind = {tp: next_ for tp, next_ in behind.items() if ends[tp] > next_}
            oldest = await _oldest(consumer, behind) if behind else {}
    finally:
        await consumer.stop()
    found = {partition.topic: Unread() for partition in next_offsets}
    for tp, next_ in behind.items():
        known = found[tp.topic]
        times = [each for each in (known.oldest_ms, oldest.get(tp)) if each is not None]
        found[tp.topic] = Unread(known.records + ends[tp] - next_, min(times, default=None))
    return found


async def _oldest(consumer: AIOKafkaConsumer, behind: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    consumer.assign(list(behind))
    for tp, offset in behind.items():
        consumer.seek(tp, offset)
    found: dict[TopicPartition, int] = {}
    until = time.monotonic() + READ_SECONDS
    while len(found) < len(behind) and (left := until - time.monotonic()) > 0:
        for tp, records in (await consumer.getmany(timeout_ms=int(left * 1000) + 1)).items():
            found.setdefault(tp, records[0].timestamp)
            consumer.pause(tp)
    return found
