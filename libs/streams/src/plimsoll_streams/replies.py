"""How does an answer reach its caller: checked before the transaction, sent after the commit, never waited for."""

import asyncio
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from plimsoll_contracts.codes import NO_REPLY_TO, REPLY_TO_REFUSED, REPLY_TO_UNKNOWN, Code
from plimsoll_streams import metrics
from plimsoll_streams.failures import Transient
from plimsoll_streams.kafka import batched
from plimsoll_streams.observe import Trouble
from plimsoll_streams.records import Reply

BACKLOG_MAX = 20_000
METADATA_SECONDS = 5.0
ABSENT_SECONDS = 1.0
"""How long a topic that was not there counts as not there: a name costs the broker at most one look a second."""
ABSENT_MAX = 1_000

log = structlog.get_logger("plimsoll.streams")


class Replies:
    """Sends replies from a task of its own, in order, and knows which reply topics there are."""

    def __init__(self, producer: AIOKafkaProducer, *, prefix: str) -> None:
        self._producer = producer
        self._prefix = prefix
        self._partitions: dict[str, int] = {}
        self._absent: dict[str, float] = {}
        self._backlog: deque[Reply] = deque()
        self._wake = asyncio.Event()
        self._pending: set[asyncio.Future[Any]] = set()
        self._stopping = False
        self._trouble = Trouble("reply")

    def check_reply_to(self, topic: str | None, partition: int | None) -> Code | None:
        """Say what is wrong with a reply address, None if nothing is. `learn` must have seen the topic."""
        if not topic:
            return NO_REPLY_TO
        if not topic.startswith(self._prefix):
            return REPLY_TO_REFUSED
        count = self._partitions.get(topic)
        if count is None or (partition is not None and not 0 <= partition < count):
            return REPLY_TO_UNKNOWN
        return None

    async def learn(self, topics: Collection[str]) -> None:
        """Ask the broker about reply topics that are not known yet.

        Raises:
            Transient: the broker does not answer, so it is not known whether they exist.
        """
        now = asyncio.get_running_loop().time()
        unknown = [
            topic
            for topic in topics
            if topic not in self._partitions
            and topic.startswith(self._prefix)
            and now - self._absent.get(topic, -ABSENT_SECONDS) >= ABSENT_SECONDS
        ]
        if not unknown:
            return
        try:
            async with asyncio.timeout(METADATA_SECONDS):
                cluster = await self._producer.client.fetch_all_metadata()
        except (KafkaError, TimeoutError) as error:
            raise Transient(f"no metadata of reply topics: {error!r}") from error
        for topic in cluster.topics():
            if topic.startswith(self._prefix):
                self._partitions[topic] = len(cluster.partitions_for_topic(topic) or ())
        if len(self._absent) > ABSENT_MAX:
            self._absent.clear()
        self._absent.update((topic, now) for topic in unknown if topic not in self._partitions)

    def send(self, replies: Iterable[Reply]) -> None:
        """Hand over replies of a committed transaction; beyond the backlog the oldest are dropped and counted."""
        self._backlog.extend(replies)
        excess = len(self._backlog) - BACKLOG_MAX
        for _ in range(excess):
            self._backlog.popleft()
        if excess > 0:
            metrics.replies.inc(excess, outcome="dropped")
        self._wake.set()

    async def run(self) -> None:
        """Send until `stop`."""
        while True:
            while self._backlog:
                replies, self._backlog = self._backlog, deque()
                for (topic, partition), group in _by_address(replies).items():
                    await self._send_group(topic, partition, group)
            if self._stopping:
                return
            self._wake.clear()
            await self._wake.wait()

    async def _send_group(self, topic: str, partition: int | None, replies: Sequence[Reply]) -> None:
        """Send what goes to one partition."""
        if partition is None:
            for reply in replies:
                sending = self._producer.send(topic, value=reply.value, key=reply.key, headers=list(reply.headers))
                await self._submit(topic, sending, 1)
            return
        for batch, held in batched(self._producer, replies):
            await self._submit(topic, self._producer.send_batch(batch, topic, partition=partition), len(held))

    async def _submit(self, topic: str, sending: "Coroutine[Any, Any, asyncio.Future[Any]]", count: int) -> None:
        try:
            future = await sending
        except Exception as error:  # noqa: BLE001 - replies that cannot be sent cost themselves, not the others
            self._failed(error, count)
            self._partitions.pop(topic, None)
            return
        self._pending.add(future)
        future.add_done_callback(partial(self._done, count))
        metrics.replies.inc(count, outcome="sent")

    def _done(self, count: int, future: "asyncio.Future[Any]") -> None:
        self._pending.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            self._failed(error, count)

    def _failed(self, error: BaseException, count: int) -> None:
        metrics.replies.inc(count, outcome="failed")
        self._trouble.again(error)

    async def stop(self, task: "asyncio.Task[None] | None", *, seconds: float) -> None:
        """Send what is there, bounded, and close; `task` is that of `run`, if it ever began."""
        self._stopping = True
        self._wake.set()
        try:
            async with asyncio.timeout(seconds):
                if task is not None:
                    await task
                if self._pending:
                    await asyncio.wait(self._pending)
                await self._producer.stop()
        except (TimeoutError, KafkaError) as error:
            log.warning("replies not drained", error=repr(error))


def _by_address(replies: Iterable[Reply]) -> Mapping[tuple[str, int | None], list[Reply]]:
    """Group in order of first appearance; what goes to one partition keeps its order."""
    groups: dict[tuple[str, int | None], list[Reply]] = {}
    for reply in replies:
        groups.setdefault((reply.topic, reply.partition), []).append(reply)
    return groups
