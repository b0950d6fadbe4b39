"""How does a service consume: one decorated function per topic, everything else in here.

engine = Engine(name="quota-enforcer", bootstrap=..., pool=pool, open_unit=storage.open_unit)

@engine.subscriber(topics.QUOTA_REQUESTS, guard=lambda message: message.tenant, first=True)
async def on_requests(unit, batch, tx): ...

app = AsgiFastStream(engine.broker)
engine.attach(app)
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import asyncpg
import structlog
from aiokafka import AIOKafkaProducer
from faststream import AckPolicy
from faststream.asgi import AsgiFastStream
from faststream.kafka import KafkaBroker

from plimsoll_contracts.codes import Code
from plimsoll_contracts.topics import REPLY_PREFIX, Topic
from plimsoll_streams import kafka
from plimsoll_streams.consumer import Consumer
from plimsoll_streams.dispatch import Decode, Dispatcher, OpenUnit, Subscription, UnitOfWork, decode_by_type
from plimsoll_streams.ledger import Ledger, Session
from plimsoll_streams.observe import Reporter
from plimsoll_streams.outbox import Relay
from plimsoll_streams.ownership import Ownership, Phase
from plimsoll_streams.ports import Settings
from plimsoll_streams.records import Reply
from plimsoll_streams.replies import Replies
from plimsoll_streams.source import GroupListener, KafkaSource
from plimsoll_streams.watchdog import Watchdog

U = TypeVar("U", bound=UnitOfWork)
H = TypeVar("H", bound=Callable[..., Any])

STOP_SECONDS = 10.0
"""For the batch in flight; the drains of replies and outbox have as long each."""

log = structlog.get_logger("plimsoll.streams")


def _end_process() -> None:
    """Stop in good order. AsgiFastStream.exit() does nothing under its own run(); uvicorn listens to this."""
    os.kill(os.getpid(), signal.SIGTERM)


class Engine(Generic[U]):
    """The consumer of one service's topics, its outbox and its replies."""

    def __init__(
        self,
        *,
        name: str,
        bootstrap: str,
        pool: asyncpg.Pool,
        open_unit: OpenUnit[U],
        instance: int | str = 0,
        settings: Settings | None = None,
        group: kafka.Group | None = None,
        reply_prefix: str = REPLY_PREFIX,
        needs: tuple[str, ...] = (),
        on_failure: Callable[[], None] = _end_process,
    ) -> None:
        """Wire nothing yet.

        Args:
            name: of the service: consumer group, and the consumer in the offset rows.
            bootstrap: the brokers' addresses.
            pool: sessions in the service's schema.
            open_unit: makes the unit of work of a batch, given its transaction and its guard keys, sorted.
            instance: ordinal of this replica; no two live processes may share one.
            settings: bounds of the loop.
            group: how the member keeps its place.
            reply_prefix: what reply topics begin with.
            needs: further topics that must exist at start, such as those of the outbox.
            on_failure: called when a task of the engine ended by an error; by default the process ends.
        """
        self.name = name
        self.pool = pool
        self.broker = KafkaBroker(bootstrap, consumer_only=True, allow_auto_create_topics=False, logger=None)
        self._bootstrap = bootstrap
        self._open_unit = open_unit
        self._instance = str(instance)
        self._settings = settings
        self._group = group or kafka.Group()
        self._reply_prefix = reply_prefix
        self._needs = needs
        self._on_failure = on_failure
        self._subscriptions: list[Subscription[U]] = []
        self._relay = Relay(pool, self._make_outbox_producer)
        self._replies: Replies | None = None
        self._consumer: Consumer[Session] | None = None
        self._source: KafkaSource | None = None
        self._ledger = Ledger(pool, consumer=name, owner=f"{name}-{instance}")
        self._listener = GroupListener()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending = False
        self.failure: BaseException | None = None
        """Why the engine ended by itself, if it did."""

    def subscriber(
        self,
        topic: Topic,
        *,
        guard: Callable[[Any], str],
        decode: Decode | None = None,
        first: bool = False,
        answers: bool | None = None,
    ) -> Callable[[H], H]:
        """Register the handler of a topic: `async def handler(unit, batch, tx)`, at most one call a batch.

        Args:
            topic: of the catalogue.
            guard: the key of the guard row that a message's changes need.
            decode: bytes to message; by `ce_type` from the topic's models when not given.
            first: decided before the other topics in every batch, and never kept waiting by them.
            answers: its records name reply topics; as `first` when not given.
        """

        def register(handler: H) -> H:
            self._subscriptions.append(
                Subscription(
                    topic, handler, decode or decode_by_type(topic), guard, first, first if answers is None else answers
                )
            )
            return handler

        return register

    def attach(self, app: AsgiFastStream) -> None:
        """Hook into the application's life; call once, after all handlers are registered."""
        names = [each.topic.name for each in self._subscriptions]
        subscriber = self.broker.subscriber(
            *names,
            batch=True,
            listener=self._listener,
            ack_policy=AckPolicy.MANUAL,
            **kafka.consumer_options(self.name, self._instance, self._group),
        )

        def current() -> Any:
            return subscriber.consumer

        self._source = KafkaSource(current)
        app.on_startup(self._prepare)
        app.after_startup(self._begin)
        app.on_shutdown(self._end)

    async def _prepare(self) -> None:
        """Before the broker connects: what is missing is named here, not found out by waiting."""
        dlqs = [each.topic.dlq.name for each in self._subscriptions if each.topic.dlq is not None]
        consumed = [each.topic.name for each in self._subscriptions]
        await kafka.require_topics(self._bootstrap, [*consumed, *dlqs, *self._needs])
        self._replies = Replies(await kafka.reply_producer(self._bootstrap), prefix=self._reply_prefix)
        if self._source is None:
            raise RuntimeError("attach() comes first")
        self._watchdog = Watchdog(
            source=self._source, ownership=self._ownership, is_database_away=lambda: self._reporter.database_away
        )
        self._reporter = Reporter(self._watchdog.committed)
        self._consumer = Consumer(
            source=self._source,
            ledger=self._ledger,
            processor=Dispatcher(
                consumer=self.name,
                subscriptions=self._subscriptions,
                open_unit=self._open_unit,
                replies=self._replies,
                wake_relay=self._relay.wake,
            ),
            observer=self._reporter,
            settings=self._settings,
            first_topics=frozenset(each.topic.name for each in self._subscriptions if each.first),
        )
        self._listener.consumer = self._consumer

    async def _begin(self) -> None:
        if self._consumer is None or self._replies is None:
            raise RuntimeError("the application did not run its startup hooks")
        if self._ending:
            return  # told to stop while starting: nobody would end these tasks
        self._start("consume", self._consumer.run())
        self._start("relay", self._relay.run())
        self._start("replies", self._replies.run())
        self._start("watchdog", self._watchdog.run())

    def _start(self, name: str, work: Any) -> None:
        task = asyncio.create_task(work, name=f"{self.name}-{name}")
        self._tasks[name] = task
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        """End the process if one of its tasks ended by itself: half an engine looks alive and is not."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self.failure = error
        log.error("engine failed", task=task.get_name(), exc_info=error)
        self._on_failure()

    async def _end(self) -> None:
        """While broker and producers still run: finish the batch, send replies, drain the outbox, each bounded."""
        self._ending = True
        if self._consumer is not None and (loop := self._tasks.get("consume")) is not None:
            await self._consumer.stop(loop, seconds=STOP_SECONDS)
        if (watch := self._tasks.get("watchdog")) is not None:
            watch.cancel()
        if self._source is not None:
            await self._source.settle()
        if self._replies is not None:
            await self._replies.stop(self._tasks.get("replies"), seconds=STOP_SECONDS)
        if (task := self._tasks.get("relay")) is not None:
            await self._relay.stop(task, seconds=STOP_SECONDS)
        await self._ledger.close()

    async def _make_outbox_producer(self) -> AIOKafkaProducer:
        return await kafka.outbox_producer(self._bootstrap)

    def send_replies(self, replies: Sequence[Reply]) -> None:
        """Send answers that another task's transaction has committed; a lost one costs its caller a retry."""
        if self._replies is not None:
            self._replies.send(replies)

    def wake_relay(self) -> None:
        """Publish what another transaction of this process has just committed to the outbox."""
        self._relay.wake()

    def check_reply_to(self, topic: str | None, partition: int | None = None) -> Code | None:
        """Say what is wrong with a request's reply address, None if nothing is."""
        if self._replies is None:
            raise RuntimeError("the engine is not running")
        return self._replies.check_reply_to(topic, partition)

    def _ownership(self) -> Ownership:
        return Ownership() if self._consumer is None else self._consumer.ownership

    def is_settled(self) -> bool:
        """Say whether every assigned partition is owned (readiness); none assigned is settled, too."""
        if self._consumer is None or "consume" not in self._tasks:
            return False
        holdings = self._consumer.ownership.holdings.values()
        return all(holding.phase not in {Phase.ASSIGNED, Phase.CLAIMING} for holding in holdings)

    @property
    def consumes(self) -> tuple[Topic, ...]:
        """The topics that have a handler."""
        return tuple(each.topic for each in self._subscriptions)

    def status(self) -> Mapping[str, object]:
        """Return the engine's account of itself, for /internal/status."""
        if self._consumer is None:
            return {"partitions": {}}
        return {
            "partitions": self._consumer.status(),
            "database_away": self._reporter.database_away,
            "broker_away": self._watchdog.broker_away,
            "stalled_seconds": round(self._watchdog.stalled_seconds, 1),
        }
