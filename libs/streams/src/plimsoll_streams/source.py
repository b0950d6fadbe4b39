"""How are records got from Kafka: aiokafka's consumer behind the loop's few verbs."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from plimsoll_streams.consumer import Consumer
from plimsoll_streams.ledger import Session
from plimsoll_streams.records import Partition, Record

COMMIT_SECONDS = 5.0
STEP_MS = 1_000


class KafkaSource:
    """The consumer that FastStream built; `current` finds it, since it exists only once the broker starts."""

    def __init__(self, current: Callable[[], AIOKafkaConsumer]) -> None:
        self._current = current
        self._commit: asyncio.Task[None] | None = None
        self._next: dict[TopicPartition, int] = {}
        """The offset after what was last sought or delivered, of every partition that was ever ours."""

    def pause(self, partitions: Collection[Partition]) -> None:
        """Fetch no more of these; also what was fetched already is not delivered."""
        self._current().pause(*_theirs(partitions))

    def resume(self, partitions: Collection[Partition]) -> None:
        """Fetch these again."""
        self._current().resume(*_theirs(partitions))

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from `offset`."""
        tp = TopicPartition(*partition)
        self._current().seek(tp, offset)
        self._next[tp] = offset

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
        consumer = self._current()
        try:
            found = await consumer.getmany(*_theirs(partitions), timeout_ms=int(seconds * 1000), max_records=limit)
        except UnicodeDecodeError as error:
            # The name of a header, which aiokafka decodes itself: one such record would stop us for ever.
            tp = _broken_off(consumer, error)
            self._go_back()
            read = await self._step_over(tp, limit)
            return {Partition(tp.topic, tp.partition): read} if read else {}
        except Exception:
            self._go_back()
            raise
        for tp, records in found.items():
            self._next[tp] = records[-1].offset + 1
        return {Partition(tp.topic, tp.partition): _ours(records) for tp, records in found.items()}

    def _go_back(self) -> None:
        """Read again what a failed poll had taken from other partitions: aiokafka moved on and dropped it."""
        assigned = self._current().assignment()
        for tp, offset in self._next.items():
            if tp in assigned:
                self._current().seek(tp, offset)

    async def _step_over(self, tp: TopicPartition, limit: int) -> list[Record]:
        """Read one by one up to the record that cannot be read, and stand in for it."""
        consumer = self._current()
        read: list[Record] = []
        while len(read) < limit:
            try:
                found = await consumer.getmany(tp, timeout_ms=STEP_MS, max_records=1)
            except UnicodeDecodeError as error:
                offset = self._next[tp]
                unreadable = f"the name of a header is not UTF-8: {error.reason}"
                read.append(Record(tp.topic, tp.partition, offset, None, None, unreadable=unreadable))
                self.seek(Partition(tp.topic, tp.partition), offset + 1)
                break
            if not found:
                break
            read += _ours(found[tp])
            self._next[tp] = read[-1].offset + 1
        return read

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


def _ours(records: Iterable[ConsumerRecord]) -> list[Record]:
    return [
        Record(each.topic, each.partition, each.offset, each.key, each.value, tuple(each.headers), each.timestamp)
        for each in records
    ]


def _broken_off(consumer: AIOKafkaConsumer, error: UnicodeDecodeError) -> TopicPartition:
    """Find the partition at which reading broke off. Only aiokafka's private state tells; a test looks after it."""
    for tp, result in consumer._fetcher._records.items():  # noqa: SLF001
        iterator = getattr(getattr(result, "_partition_records", None), "_records_iterator", None)
        if iterator is not None and iterator.gi_frame is None:
            return tp
    raise error


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
