"""How does one request travel and its reply come back: a producer, and one pinned partition of a reply topic."""

import asyncio
import contextlib
import itertools
import logging
import uuid
import zlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from plimsoll_client.outcomes import UnknownReason
from plimsoll_contracts.topics import QUOTA_REQUESTS, replies_topic

log = logging.getLogger(__name__)

_BATCH_BYTES = 256 * 1024
_REQUEST_TIMEOUT_MS = 10_000
"""How long a request to the broker may take, and how long an unsent batch is kept: above it, a call is long over."""
_STOP_SECONDS = 2.0
_PUMP_PAUSE_SECONDS = 0.5


class ClientStartError(RuntimeError):
    """The client cannot start: the broker does not answer, or a topic is missing."""


@dataclass(slots=True)
class Counters:
    """What a client did since it started; read them whenever you like."""

    calls: int = 0
    allowed: int = 0
    denied: int = 0
    unknown_open: int = 0
    """No verdict, and the caller went on: its fail-opens."""
    unknown_closed: int = 0
    """No verdict, and the caller stopped."""
    unknown_facts: int = 0
    """Commits, releases and adjusts that are not known to be recorded."""
    retries: int = 0
    late_replies: int = 0
    """Replies to a try that nobody waits for any more: late, or doubled."""
    foreign_replies: int = 0
    """Replies of other callers on the same partition, or without a correlation id of ours."""
    send_failures: int = 0
    pump_errors: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """One try brought no reply."""

    reason: UnknownReason
    detail: str


@dataclass(slots=True)
class Channel:
    """Requests out, replies in. Nothing here reads what a reply says, and no code of a caller runs in the pump."""

    bootstrap: str
    caller: str
    instance: str
    start_timeout: float
    kafka: Mapping[str, Any]
    counters: Counters
    _producer: AIOKafkaProducer | None = None
    _consumer: AIOKafkaConsumer | None = None
    _pump: asyncio.Task[None] | None = None
    _stopped: bool = False
    _address: tuple[tuple[str, bytes], ...] = ()
    """The headers that every request has: where its reply goes."""
    _token: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _pending: dict[bytes, "asyncio.Future[bytes | Failure]"] = field(default_factory=dict)

    async def start(self) -> None:
        """Connect, pin the reply partition and know the position there before anything is sent.

        Raises:
            ClientStartError: naming what is missing.
        """
        options = {"bootstrap_servers": self.bootstrap, "request_timeout_ms": _REQUEST_TIMEOUT_MS, **self.kafka}
        # A lost request costs a retry with the same id, so neither idempotence nor acks=all would buy anything.
        self._producer = AIOKafkaProducer(linger_ms=0, acks=1, max_batch_size=_BATCH_BYTES, **options)
        self._consumer = AIOKafkaConsumer(
            group_id=None, enable_auto_commit=False, auto_offset_reset="latest", fetch_min_bytes=1, **options
        )
        doing = f"connect to {self.bootstrap}"
        try:
            async with asyncio.timeout(self.start_timeout):
                await self._producer.start()
                await self._consumer.start()
                for topic in (QUOTA_REQUESTS.name, self.reply_topic):
                    doing = f"find the topic {topic} (topics are never created by use)"
                    partitions = await self._producer.partitions_for(topic)
                number = zlib.crc32(self.instance.encode()) % len(partitions)
                doing = f"find the end of {self.reply_topic}/{number}"
                pinned = TopicPartition(self.reply_topic, number)
                self._address = (
                    ("content-type", b"application/json"),
                    ("reply_to", self.reply_topic.encode()),
                    ("reply_partition", str(number).encode()),
                )
                self._consumer.assign([pinned])
                await self._consumer.seek_to_end(pinned)
                await self._consumer.position(pinned)
        except (TimeoutError, KafkaError, OSError) as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                raise ClientStartError(f"could not {doing} within {self.start_timeout} s") from error
            raise ClientStartError(f"could not {doing}: {error or type(error).__name__}") from error
        except BaseException:
            await self.stop()
            raise
        self._pump = asyncio.create_task(self._receive(), name="plimsoll-replies")

    @property
    def reply_topic(self) -> str:
        """The topic that replies to this kind of caller are written to."""
        return replies_topic(self.caller).name

    @property
    def started(self) -> bool:
        """Whether ``start`` has succeeded, whatever happened since."""
        return self._pump is not None

    async def ask(self, key: bytes, body: bytes, *, deadline_ms: int | None, until: float) -> bytes | Failure:
        """Make one try: send, and wait for its reply until the loop's time ``until``. Never raises for the broker."""
        if self._stopped:
            return Failure(UnknownReason.STOPPED, "the client is stopped")
        correlation = f"{self._token}.{next(self._numbers)}".encode()
        answer: asyncio.Future[bytes | Failure] = asyncio.get_running_loop().create_future()
        self._pending[correlation] = answer
        delivery: asyncio.Future[object] | None = None
        try:
            async with asyncio.timeout_at(until):
                delivery = await self._send(key, body, correlation, deadline_ms)
                delivery.add_done_callback(partial(self._delivered, answer))
                return await answer
        except TimeoutError:
            if delivery is None or not delivery.done():
                return Failure(UnknownReason.UNREACHABLE, f"no broker of {self.bootstrap} took the request in time")
            return Failure(UnknownReason.TIMEOUT, "the request is with the broker, and no reply came in time")
        except (KafkaError, OSError) as error:
            self.counters.send_failures += 1
            return Failure(UnknownReason.UNREACHABLE, f"not sent: {error or type(error).__name__}")
        finally:
            self._pending.pop(correlation, None)

    async def post(self, key: bytes, body: bytes, *, seconds: float) -> None:
        """Send and wait for nothing: for what is only good manners, such as a release on the way out."""
        correlation = f"{self._token}.{next(self._numbers)}".encode()
        ignored: asyncio.Future[bytes | Failure] = asyncio.get_running_loop().create_future()
        with contextlib.suppress(TimeoutError, KafkaError, OSError):
            async with asyncio.timeout(seconds):
                delivery = await self._send(key, body, correlation, None)
                delivery.add_done_callback(partial(self._delivered, ignored))

    async def stop(self) -> None:
        """Answer every pending try with ``STOPPED`` and close; bounded, also while the broker is away."""
        self._stopped = True
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        for answer in self._pending.values():
            _resolve(answer, Failure(UnknownReason.STOPPED, "the client was stopped"))
        # Without a broker neither stop() is clean in aiokafka: the consumer's raises CancelledError halfway, the
        # producer's flushes for as long as a batch is kept; and a second stop() does nothing. What they leave open
        # is closed one by one; what is still unsent is given up, since nobody waits for it.
        if (consumer := self._consumer) is not None and not await _ended(consumer.stop()):
            await _ended(consumer._client.close())  # noqa: SLF001  there is no public way
        if (producer := self._producer) is not None and not await _ended(producer.stop()):
            producer._message_accumulator.fail_all(KafkaError("the client was stopped"))  # noqa: SLF001  as above
            await _ended(producer.client.close())
            await _ended(producer._sender.close())  # noqa: SLF001  as above

    async def _send(
        self, key: bytes, body: bytes, correlation: bytes, deadline_ms: int | None
    ) -> "asyncio.Future[object]":
        if self._producer is None:
            raise RuntimeError("the client is not started: use it as `async with EnforcementClient(...) as client`")
        headers = [*self._address, ("correlation_id", correlation)]
        if deadline_ms is not None:
            headers.append(("deadline", str(deadline_ms).encode()))
        delivery: asyncio.Future[object] = await self._producer.send(
            QUOTA_REQUESTS.name, value=body, key=key, headers=headers
        )
        return delivery

    def _delivered(self, answer: "asyncio.Future[bytes | Failure]", delivery: "asyncio.Future[object]") -> None:
        if delivery.cancelled():
            return
        if (error := delivery.exception()) is not None:
            self.counters.send_failures += 1
            _resolve(answer, Failure(UnknownReason.UNREACHABLE, f"not sent: {error or type(error).__name__}"))

    async def _receive(self) -> None:
        consumer = self._consumer
        while consumer is not None:
            try:
                batches = await consumer.getmany(timeout_ms=1000)
            except Exception as error:  # noqa: BLE001  whatever it is: a pump that ends makes every later call Unknown
                self.counters.pump_errors += 1
                log.warning("replies could not be read, trying again: %s", error or type(error).__name__)
                await asyncio.sleep(_PUMP_PAUSE_SECONDS)
                continue
            for records in batches.values():
                for record in records:
                    self._match(record)

    def _match(self, record: "ConsumerRecord[bytes, bytes]") -> None:
        correlation = next((value for name, value in record.headers if name == "correlation_id"), b"") or b""
        if (answer := self._pending.pop(correlation, None)) is not None:
            _resolve(answer, record.value or b"")
        elif correlation.startswith(self._token.encode()):
            self.counters.late_replies += 1
        else:
            self.counters.foreign_replies += 1


def _resolve(answer: "asyncio.Future[bytes | Failure]", result: bytes | Failure) -> None:
    if not answer.done():
        answer.set_result(result)


async def _ended(closing: Coroutine[Any, Any, None]) -> bool:
    """Run a part of stopping, bounded, and tell whether it ended well; whatever it raises ends here."""
    task = asyncio.create_task(closing)
    done, late = await asyncio.wait([task], timeout=_STOP_SECONDS)
    for each in late:
        each.cancel()
        await asyncio.wait([each], timeout=_STOP_SECONDS)
    return bool(done) and not task.cancelled() and task.exception() is None
