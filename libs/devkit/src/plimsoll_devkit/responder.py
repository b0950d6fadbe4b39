"""How are callers tested without the service? A plain FastStream handler that answers as each test says."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from faststream.kafka import KafkaBroker, KafkaMessage

from plimsoll_contracts.topics import QUOTA_REQUESTS


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in, and the way to answer it."""

    body: bytes
    key: bytes | None
    headers: dict[str, str]
    broker: KafkaBroker

    @property
    def request(self) -> dict[str, Any]:
        """The body, read."""
        read: dict[str, Any] = json.loads(self.body)
        return read

    async def reply(self, answer: dict[str, Any] | bytes, *, correlation_id: str | None = None) -> None:
        """Send one reply to where the headers say. Members that every reply has are filled in."""
        if isinstance(answer, dict):
            request = self.request
            same = {name: request[name] for name in ("request_id", "verb", "tenant")}
            answer = json.dumps({**same, "allowed": True, **answer}).encode()
        await self.broker.publish(
            answer,
            topic=self.headers["reply_to"],
            partition=int(self.headers["reply_partition"]),
            key=self.key,
            correlation_id=correlation_id or self.headers["correlation_id"],
        )


Behaviour = Callable[[Asked], Awaitable[None]]


@dataclass(slots=True)
class Responder:
    """Answers requests on the request topic by the behaviour of their tenant; a tenant without one is ignored."""

    bootstrap: str
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    asked: dict[str, list[Asked]] = field(default_factory=dict)
    """What came in, by tenant."""
    _broker: KafkaBroker | None = None

    async def __aenter__(self) -> Self:
        broker = self._broker = KafkaBroker(self.bootstrap, logger=None, allow_auto_create_topics=False)

        # no_reply: FastStream would answer by itself, with what the handler returns and to no partition in particular.
        @broker.subscriber(
            QUOTA_REQUESTS.name, group_id=f"responder-{uuid.uuid4()}", auto_offset_reset="earliest", no_reply=True
        )
        async def on_request(message: KafkaMessage) -> None:
            record = message.raw_message
            key = None if isinstance(record, tuple) else record.key
            asked = Asked(message.body, key, dict(message.headers), broker)
            tenant = (key or b"").decode()
            self.asked.setdefault(tenant, []).append(asked)
            if (behaviour := self.behaviours.get(tenant)) is not None:
                await behaviour(asked)

        await broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._broker is not None:
            # Without a broker aiokafka's stop hangs or is cancelled by itself: a test's end must bear both.
            await asyncio.wait([asyncio.create_task(self._broker.stop())], timeout=5)


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for what another task or process will make true.

    Raises:
        TimeoutError: it did not.
    """
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  the condition is anybody's: there is no event to wait for
            await asyncio.sleep(0.01)
