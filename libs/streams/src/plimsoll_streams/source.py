"""How are records got from Kafka: aiokafka's consumer behind the loop's few verbs."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from plimsoll_streams.consumer import Consumer
from plimsoll_streams.ledger import Session
from plimsoll_streams.records import Partition, Record

COMMIT_SECONDS = 5.0


class KafkaSource:
    """The consumer that FastStream built; `current` finds it, since it exists only once the broker starts."""

    def __init__(self, current: Callable[[], AIOKafkaConsumer]) -> None:
        self._current = current
        self._commit: asyncio.Task[None] | None = None

    def pause(self, partitions: Collection[Partition]) -> None:
        """Fetch no more of these; also what was fetched already is not delivered."""
        self._current().pause(*_theirs(partitions))

    def resume(self, partitions: Collection[Partition]) -> None:
        """Fetch these again."""
        self._current().resume(*_theirs(partitions))

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from `offset`."""
        self._current().seek(TopicPartition(*partition), offset)

    async def first_offsets(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the first offset of each log."""
        found = await self._current().beginning_offsets(_theirs(partitions))
        return {partition: found[TopicPartition(*partition)] for partition in partitions}

    async def end_offsets(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the offset after each log's last record."""
        found = await self._current().end_offsets(_theirs(partitions))
        return {partition: found[TopicPartition(*partition)] for partition in partitions}

    async def poll(
        self, partitions: Collection[Partition], *, seconds: float, limit: int
    ) -> Mapping[Partition, Sequence[Record]]:
        """Return fetched records. Not to be wrapped in a timeout: aiokafka would lose count of its waiters."""
        found = await self._current().getmany(*_theirs(partitions), timeout_ms=int(seconds * 1000), max_records=limit)
        return {
            Partition(tp.topic, tp.partition): [
                Record(
                    each.topic,
                    each.partition,
                    each.offset,
                    each.key,
                    each.value,
                    tuple(each.headers),
                    each.timestamp,
                )
                for each in records
            ]
            for tp, records in found.items()
        }

    def commit_soon(self, offsets: Mapping[Partition, int]) -> None:
        """Commit in the background unless the last one is still on its way; what fails is made up by the next."""
        if self._commit is None or self._commit.done():
            self._commit = asyncio.create_task(self._commit_now(dict(offsets)), name="kafka-commit")

    async def _commit_now(self, offsets: Mapping[Partition, int]) -> None:
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._current().commit({TopicPartition(*p): offset for p, offset in offsets.items()})
        except (KafkaError, TimeoutError):
            return

    async def settle(self) -> None:
        """Wait for a commit on its way."""
        if self._commit is not None:
            await self._commit


class GroupListener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Passes the group's decisions to the loop."""

    def __init__(self) -> None:
        self.consumer: Consumer[Session] | None = None

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:  # noqa: ARG002
        """Everything is taken back: aiokafka's rebalances are eager."""
        if self.consumer is not None:
            await self.consumer.revoked()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Take the new assignment."""
        if self.consumer is not None:
            self.consumer.assigned([Partition(*each) for each in assigned])


def _theirs(partitions: Collection[Partition]) -> list[TopicPartition]:
    return [TopicPartition(*partition) for partition in partitions]
