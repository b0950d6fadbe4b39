"""How does a test speak on the topics byte for byte, and see everything that comes out?"""

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.envelope import Envelope
from plimsoll_contracts.topics import (
    CATALOGUE,
    QUOTA_REQUESTS,
    REPLIES_FLOWS,
    Topic,
)

Headers = Sequence[tuple[str, bytes | None]]
_FAMILIES = ("quota.", "usage.", "entitlement.", "disk.", "node.")
HEARD = tuple(topic for topic in CATALOGUE if topic.name.startswith(_FAMILIES))
_OUTPUTS = tuple(topic.name for topic in HEARD if "quota-enforcer" in topic.producers and topic is not QUOTA_REQUESTS)


class Silence(AssertionError):
    """What was waited for did not come."""


def unique(prefix: str = "t") -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def asking(verb: str, tenant: str, **fields: Any) -> dict[str, Any]:
    """Return a request's body: id and moment chosen unless given, a small reserve of ``d1`` where nothing is said."""
    body: dict[str, Any] = {
        "verb": verb,
        "request_id": unique("r"),
        "issued_at": datetime.now(UTC).isoformat(),
        "tenant": tenant,
    }
    if verb in {"check", "reserve", "adjust"}:
        body |= {"environment": "prod", "stack": "blog", "deployment": "d1", "footprint": {"cpu": 100}}
    body |= fields
    return {name: value for name, value in body.items() if value is not ...}


class Wire:
    """A producer of anything, and one reader of replies, decisions, limits and dead letters."""

    def __init__(self, bootstrap: str) -> None:
        """Describe it; ``async with`` connects."""
        self._bootstrap = bootstrap
        self._news = asyncio.Condition()
        self.records: dict[str, list[ConsumerRecord]] = {name: [] for name in _OUTPUTS}
        """What came on each topic that the enforcer writes, since this was started."""

    async def __aenter__(self) -> Self:
        # Larger than any topic takes, so that the broker is who refuses.
        self.producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, max_request_size=16_000_000, linger_ms=0, request_timeout_ms=10_000
        )
        await self.producer.start()
        self._consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, group_id=None, fetch_max_wait_ms=50)
        await self._consumer.start()
        partitions = [
            TopicPartition(topic.name, n) for topic in HEARD if topic.name in _OUTPUTS for n in range(topic.partitions)
        ]
        self._consumer.assign(partitions)
        await self._consumer.seek_to_end(*partitions)
        for partition in partitions:
            await self._consumer.position(partition)
        self._reading = asyncio.create_task(self._read(), name="wire")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._consumer.stop()
        await self.producer.stop()

    async def _read(self) -> None:
        while True:
            for partition, records in (await self._consumer.getmany(timeout_ms=1000)).items():
                self.records[partition.topic] += records
            async with self._news:
                self._news.notify_all()

    async def until(
        self, topic: str, wanted: Callable[[ConsumerRecord], bool], *, count: int = 1, seconds: float = 15
    ) -> list[ConsumerRecord]:
        """Wait for so many records of a topic that are wanted, and return all there are.

        Raises:
            Silence: fewer came.
        """
        deadline = time.monotonic() + seconds
        while len(found := [record for record in self.records[topic] if wanted(record)]) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Silence(f"{len(found)} of {count} records on {topic} within {seconds:g} s")
            try:
                async with asyncio.timeout(left), self._news:
                    await self._news.wait()
            except TimeoutError:
                continue
        return found

    async def events(
        self, topic: Topic, tenant: str, *, count: int = 1, kind: str | None = None, seconds: float = 15
    ) -> list[Any]:
        """Wait for a tenant's events of a topic, and return them read with their models; ``kind`` begins their type."""
        key = tenant.encode()

        def wanted(record: ConsumerRecord) -> bool:
            return record.key == key and (header(record, "ce_type") or b"").startswith((kind or "").encode())

        found = await self.until(topic.name, wanted, count=count, seconds=seconds)
        return [
            topic.messages[(header(record, "ce_type") or b"").decode()].model_validate_json(record.value)
            for record in found
        ]

    async def send(
        self, topic: Topic, value: bytes | None, *, key: bytes | None, headers: Headers = ()
    ) -> tuple[str, int, int]:
        """Produce one record as it is, and return where it lies: topic, partition and offset."""
        sent = await self.producer.send_and_wait(topic.name, value, key=key, headers=list(headers))
        return (sent.topic, sent.partition, sent.offset)

    async def request(
        self,
        body: Mapping[str, Any] | bytes,
        *,
        key: str | bytes | None = None,
        headers: Headers | None = None,
        correlation: bytes | None = None,
        more: Headers = (),
    ) -> bytes:
        """Send a request with the four headers of a plain caller, or with the given ones; return its correlation id."""
        delivery, correlation = await self._enqueue(body, key, headers, correlation, more)
        await delivery
        return correlation

    async def post(
        self, body: Mapping[str, Any] | bytes, *, key: str | None = None, headers: Headers | None = None
    ) -> bytes:
        """Send a request without waiting for the broker, so that the next one follows at once."""
        _, correlation = await self._enqueue(body, key, headers, None, ())
        return correlation

    async def _enqueue(
        self,
        body: Mapping[str, Any] | bytes,
        key: str | bytes | None,
        headers: Headers | None,
        correlation: bytes | None,
        more: Headers,
    ) -> tuple["asyncio.Future[Any]", bytes]:
        correlation = correlation or uuid.uuid4().hex.encode()
        if headers is None:
            headers = [("reply_to", REPLIES_FLOWS.name.encode()), ("correlation_id", correlation)]
        if key is None:
            key = str(body["tenant"]) if isinstance(body, Mapping) else "nobody"
        value = body if isinstance(body, bytes) else json.dumps(body).encode()
        key = key.encode() if isinstance(key, str) else key
        delivery = await self.producer.send(QUOTA_REQUESTS.name, value, key=key, headers=[*headers, *more])
        return delivery, correlation

    async def ask(self, body: Mapping[str, Any] | bytes, *, seconds: float = 15, **how: Any) -> EnforcementReply:
        """Send a request, and return its reply."""
        correlation = await self.request(body, **how)
        return (await self.replies(correlation, seconds=seconds))[0]

    async def replies(self, correlation: bytes, *, count: int = 1, seconds: float = 15) -> list[EnforcementReply]:
        """Wait for so many replies under one correlation id."""

        def wanted(record: ConsumerRecord) -> bool:
            return header(record, "correlation_id") == correlation

        found = await self.until(REPLIES_FLOWS.name, wanted, count=count, seconds=seconds)
        return [EnforcementReply.model_validate_json(record.value) for record in found]

    async def dead_letter(self, place: tuple[str, int, int], *, seconds: float = 15) -> ConsumerRecord:
        """Wait for the dead letter of the record at a place, and return it as published."""
        topic, partition, offset = place
        named = {"dlq-topic": topic.encode(), "dlq-partition": b"%d" % partition, "dlq-offset": b"%d" % offset}

        def wanted(record: ConsumerRecord) -> bool:
            return all(header(record, name) == value for name, value in named.items())

        return (await self.until(f"{topic}.dlq", wanted, seconds=seconds))[0]

    async def ends(self, topic: Topic) -> dict[int, int]:
        """Read the end of each partition of a topic."""
        found = await self._consumer.end_offsets([TopicPartition(topic.name, n) for n in range(topic.partitions)])
        return {partition.partition: end for partition, end in found.items()}

    async def topics(self) -> set[str]:
        """Name every topic on the broker."""
        return set((await self.producer.client.fetch_all_metadata()).topics())

    async def tell(self, topic: Topic, body: Mapping[str, Any], *, key: str | None = None) -> tuple[str, int, int]:
        """Publish an event as its producer would, a usage delta or an entitlement snapshot; return where it lies."""
        sent = await (await self.tell_soon(topic, body, key=key))
        return (sent.topic, sent.partition, sent.offset)

    async def tell_soon(
        self, topic: Topic, body: Mapping[str, Any], *, key: str | None = None
    ) -> "asyncio.Future[Any]":
        """Publish an event without waiting for the broker, so that the next one follows at once."""
        (kind,) = topic.messages
        envelope = Envelope(uuid.uuid4().hex, kind, topic.producers[0], datetime.now(UTC))
        name = key if key is not None else str(body["tenant"])
        delivery: asyncio.Future[Any] = await self.producer.send(
            topic.name, json.dumps(body).encode(), key=name.encode(), headers=envelope.headers()
        )
        return delivery


def header(record: ConsumerRecord, name: str) -> bytes | None:
    """Return the last value of one header, None where it is absent."""
    found: bytes | None = next((value for key, value in reversed(record.headers) if key == name), None)
    return found
