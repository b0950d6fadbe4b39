"""Which settings do our clients use, and do the topics on the broker match the catalogue."""

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError, for_code
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder

from plimsoll_contracts.topics import Topic
from plimsoll_streams.records import OutboxMessage, Reply

Message = OutboxMessage | Reply
M = TypeVar("M", OutboxMessage, Reply)

_MIB = 1024 * 1024
CONNECT_SECONDS = 5.0
REQUEST_MAX = 4 * _MIB
"""The largest message that is tried at all."""
ALREADY_EXISTS = 36
SET_ON_TOPIC = 1
"""The source that describe_configs names for a setting of the topic itself."""


@dataclass(frozen=True, slots=True)
class Group:
    """How a member keeps its place in the group; seconds."""

    session_seconds: float = 6.0
    """Short, since members are static: one that restarts within it gets its partitions back without a rebalance."""
    heartbeat_seconds: float = 0.5
    rebalance_seconds: float = 60.0


class TopicsMissingError(Exception):
    """Topics that a service needs are not on the broker."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(
            f"topics missing on the broker: {', '.join(missing)} (create them: python -m plimsoll_streams topics)"
        )
        self.missing = tuple(missing)


def consumer_options(name: str, instance: str, group: Group) -> dict[str, Any]:
    """Return the settings of an engine's group consumer, as FastStream's subscriber takes them."""
    return {
        "group_id": name,
        # Static: unique per replica and the same after a restart.
        "group_instance_id": f"{name}-{instance}",
        "session_timeout_ms": int(group.session_seconds * 1000),
        "heartbeat_interval_ms": int(group.heartbeat_seconds * 1000),
        "rebalance_timeout_ms": int(group.rebalance_seconds * 1000),
        # Exactly one assignor (a tuple joins twice); range, so that partition n of every topic meets in one member.
        "partition_assignment_strategy": (RangePartitionAssignor,),
        "auto_offset_reset": "earliest",
        "fetch_min_bytes": 1,
        # Short: while one fetch waits at the broker, aiokafka sends no other, so that a partition which was being
        # read when it was sent has to wait for it. At 250 ms one busy partition got half the throughput.
        "fetch_max_wait_ms": 20,
        # Bounds what lies fetched and unread in memory; a larger single record still comes.
        "max_partition_fetch_bytes": _MIB,
        "fetch_max_bytes": 16 * _MIB,
    }


async def outbox_producer(bootstrap: str) -> AIOKafkaProducer:
    """Start the producer of facts: idempotent, every replica acknowledges."""
    return await _started(
        AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            acks="all",
            linger_ms=0,  # requests in flight make batches by themselves; waiting adds latency only
            max_batch_size=_MIB // 4,
            max_request_size=REQUEST_MAX,
            request_timeout_ms=30_000,
        )
    )


async def reply_producer(bootstrap: str) -> AIOKafkaProducer:
    """Start the producer of replies: a lost one is asked for again, so one acknowledgement does."""
    return await _started(
        AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks=1,
            linger_ms=0,
            max_batch_size=_MIB // 4,
            max_request_size=2 * _MIB,
            request_timeout_ms=5_000,
        )
    )


async def _started(producer: AIOKafkaProducer) -> AIOKafkaProducer:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await producer.start()
    except BaseException:
        await producer.stop()
        raise
    return producer


def batched(producer: AIOKafkaProducer, messages: Iterable[M]) -> Iterator[tuple[BatchBuilder, list[M]]]:
    """Put messages of one partition into batches of our own: a send for each costs four times as much.

    What is larger than a batch goes alone.
    """
    batch, held = producer.create_batch(), list[M]()
    for message in messages:
        if not _append(batch, message):
            yield batch, held
            batch, held = producer.create_batch(), []
            _append(batch, message)  # the first of a batch always has room
        held.append(message)
    if held:
        yield batch, held


def _append(batch: BatchBuilder, message: Message) -> bool:
    """Add to a batch, and say whether there was room."""
    added = batch.append(timestamp=None, key=message.key, value=message.value, headers=list(message.headers))
    return added is not None


@lru_cache(maxsize=20_000)
def _hash(key: bytes) -> int:
    """Hash as Java's client does; in Python it costs more than sending."""
    hashed: int = murmur2(key)
    return hashed & 0x7FFFFFFF


def partition_of(key: bytes | None, partitions: int) -> int:
    """Return where aiokafka's own partitioner sends a key; what has none goes anywhere."""
    return random.randrange(partitions) if key is None else _hash(key) % partitions


def settings_of(topic: Topic) -> dict[str, str]:
    """Return the broker's settings of a topic, as text."""
    settings = {
        "cleanup.policy": "compact" if topic.compacted else "delete",
        "max.message.bytes": str(topic.max_message_bytes),
    }
    if not topic.compacted:
        kept = -1 if topic.retention is None else int(topic.retention.total_seconds() * 1000)
        settings["retention.ms"] = str(kept)
    return settings


async def create_topics(bootstrap: str, topics: Iterable[Topic], *, replication: int = 1) -> list[str]:
    """Create what is missing, touch nothing that is there, and return every problem in words."""
    wanted = list(topics)
    new = [NewTopic(topic.name, topic.partitions, replication, topic_configs=settings_of(topic)) for topic in wanted]
    async with _Admin(bootstrap) as admin:
        response = await admin.create_topics(new)
        problems = [
            f"{name}: {message or for_code(code).__name__}"
            for name, code, message, *_ in response.topic_errors
            if code not in {0, ALREADY_EXISTS}
        ]
    if not problems:
        # Created is not yet known to every broker; only then can it be compared and used.
        await require_topics(bootstrap, [topic.name for topic in wanted], topics_seconds=10.0)
    return problems or await check_topics(bootstrap, wanted)


async def check_topics(bootstrap: str, topics: Iterable[Topic]) -> list[str]:
    """Compare partitions and settings with the catalogue, and return every difference in words."""
    wanted = list(topics)
    async with _Admin(bootstrap) as admin:
        partitions = await _partitions(admin, [topic.name for topic in wanted])
        there = [topic for topic in wanted if topic.name in partitions]
        settings = await _settings(admin, [topic.name for topic in there])
    problems = [f"{topic.name}: missing" for topic in wanted if topic.name not in partitions]
    for topic in there:
        if partitions[topic.name] != topic.partitions:
            problems.append(
                f"{topic.name}: {partitions[topic.name]} partitions, declared {topic.partitions};"
                " the count never changes, since keys would move"
            )
        problems += [
            f"{topic.name}: {name} is {settings[topic.name].get(name, 'unset')}, declared {value}"
            for name, value in settings_of(topic).items()
            if settings[topic.name].get(name) != value
        ]
    return problems


async def brokers(bootstrap: str) -> int:
    """Return how many brokers the cluster has now.

    Raises:
        KafkaError: none answers.
        TimeoutError: likewise.
    """
    async with _Admin(bootstrap) as admin:
        return len((await admin.describe_cluster())["brokers"])


async def require_topics(
    bootstrap: str, names: Iterable[str], *, broker_seconds: float = 30.0, topics_seconds: float = 0.0
) -> None:
    """Check at start that topics exist; waits for a broker that is still starting, and by default not for topics.

    Without it a consumer would wait 40 s and not say which topic it is.

    Raises:
        TopicsMissingError: naming them.
        KafkaError: the broker did not answer in time.
    """
    wanted = sorted(set(names))
    began = asyncio.get_running_loop().time()
    while True:
        waited = asyncio.get_running_loop().time() - began
        try:
            async with _Admin(bootstrap) as admin:
                found = await _partitions(admin, wanted)
            missing = [name for name in wanted if name not in found]
            if not missing:
                return
            if waited >= topics_seconds:
                raise TopicsMissingError(missing)
        except (KafkaError, TimeoutError, OSError):
            if waited >= broker_seconds:
                raise
        await asyncio.sleep(0.1)


class _Admin:
    """An admin client that is closed again, and does not wait for ever to connect."""

    def __init__(self, bootstrap: str) -> None:
        self._client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=10_000)

    async def __aenter__(self) -> AIOKafkaAdminClient:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._client.start()
        except BaseException:
            await self._client.close()
            raise
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


async def _partitions(admin: AIOKafkaAdminClient, names: Sequence[str]) -> Mapping[str, int]:
    described = await admin.describe_topics(list(names))
    return {each["topic"]: len(each["partitions"]) for each in described if each["error_code"] == 0}


async def _settings(admin: AIOKafkaAdminClient, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    if not names:
        return {}
    answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])
    found: dict[str, dict[str, str]] = {}
    for answer in answers:
        for resource in answer.to_object()["resources"]:
            found[resource["resource_name"]] = {
                entry["config_names"]: entry["config_value"]
                for entry in resource["config_entries"]
                if entry.get("config_source", SET_ON_TOPIC) == SET_ON_TOPIC
            }
    return found
