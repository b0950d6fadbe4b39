"""How do records become calls of handlers: decoded once, grouped by topic, inside one transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.enforcement import code_of, explain
from plimsoll_contracts.envelope import EnvelopeError, text_header
from plimsoll_contracts.topics import Topic
from plimsoll_streams import dead_letters, metrics, outbox
from plimsoll_streams.dead_letters import DeadLetter
from plimsoll_streams.failures import Invalid
from plimsoll_streams.ledger import Session
from plimsoll_streams.ownership import Slice
from plimsoll_streams.records import OutboxMessage, Received, Record, Reply
from plimsoll_streams.replies import Replies
from plimsoll_streams.statements import Statements
from plimsoll_streams.transactions import Connection

FORESEEN_MAX = 10_000
"""Records decoded ahead that never come to be applied (a rebalance took them away) are forgotten beyond this."""
LARGE = 32 * 1024
"""Bytes of a record that may take long to decode: the loop breathes after each, or heartbeats would be missed."""


@dataclass(slots=True)
class Transaction:
    """What a handler may ask for inside the open transaction of a batch."""

    connection: Connection
    topics: frozenset[str]
    """Topics that have records in this batch."""
    received: Sequence[Any] = ()
    """Every decoded message of this batch, so that all that it needs can be locked in one go."""
    statements: Statements = field(default_factory=Statements)
    """Run together as the last act; what is written here must not be read again in the transaction."""
    replies: list[Reply] = field(default_factory=list)
    messages: list[OutboxMessage] = field(default_factory=list)
    letters: list[tuple[DeadLetter, str]] = field(default_factory=list)
    callbacks: list[Callable[[], None]] = field(default_factory=list)

    def reply(self, reply: Reply) -> None:
        """Answer a request once the transaction has committed."""
        self.replies.append(reply)

    def emit(self, message: OutboxMessage) -> None:
        """Publish a message if and only if the transaction commits."""
        self.messages.append(message)

    def dead_letter(self, record: Record, code: Code, detail: str, *, reason: str = "invalid") -> None:
        """Set a record aside instead of applying it."""
        self.letters.append((dead_letters.make(record, code, detail), reason))

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call something cheap and synchronous once the transaction has committed: counters, for example."""
        self.callbacks.append(callback)


class UnitOfWork(Protocol):
    """The state that one batch loads, changes and saves; it leaves no trace when its transaction rolls back."""

    async def save(self, tx: Transaction) -> None:
        """Write what the handlers changed."""

    def committed(self) -> None:
        """The transaction is durable."""


U = TypeVar("U", bound=UnitOfWork)

Handler = Callable[[U, Sequence[Received[Any]], Transaction], Awaitable[None]]
OpenUnit = Callable[[Transaction, Sequence[str]], Awaitable[U]]
Decode = Callable[[Record], Any]


@dataclass(frozen=True, slots=True)
class Subscription(Generic[U]):
    """One topic and what is done with it."""

    topic: Topic
    handler: Handler[U]
    decode: Decode
    guard: Callable[[Any], str]
    """Names the guard row that a message's changes need."""
    first: bool
    answers: bool
    """Whether its records carry `reply_to`, so that those topics are looked up before the transaction."""


def decode_by_type(topic: Topic) -> Decode:
    """Return the usual decoder: `ce_type` chooses the model, which reads the JSON bytes."""

    def decode(record: Record) -> BaseModel:
        kind = text_header(record.headers, "ce_type")
        model = topic.messages.get(kind or "")
        if model is None:
            raise Invalid(codes.INVALID_REQUEST, f"ce_type {kind!r} is not one of {sorted(topic.messages)}")
        if record.value is None:
            raise Invalid(codes.UNDECODABLE, "the record has no value")
        return model.model_validate_json(record.value)

    return decode


@dataclass(frozen=True, slots=True)
class Done:
    """The effects of one committed transaction."""

    tx: Transaction
    unit: UnitOfWork | None
    replies: Replies
    wake_relay: Callable[[], None]

    def committed(self) -> None:
        """Tell the unit, hand over replies, count."""
        if self.unit is not None:
            self.unit.committed()
        if self.tx.replies:
            self.replies.send(self.tx.replies)
        if self.tx.messages or self.tx.letters:
            self.wake_relay()
        for letter, reason in self.tx.letters:
            metrics.dead_letters.inc(topic=metrics.label(letter.record.topic), reason=reason)
        for callback in self.tx.callbacks:
            callback()


class Dispatcher(Generic[U]):
    """Applies slices through the registered handlers."""

    def __init__(
        self,
        *,
        consumer: str,
        subscriptions: Sequence[Subscription[U]],
        open_unit: OpenUnit[U],
        replies: Replies,
        wake_relay: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        # What is decided first comes first; the rest in the order of registration.
        self._subscriptions = sorted(subscriptions, key=lambda each: not each.first)
        self._by_topic = {each.topic.name: each for each in subscriptions}
        self._open_unit = open_unit
        self._replies = replies
        self._wake_relay = wake_relay
        self._foreseen: dict[tuple[str, int, int], Received[Any] | Exception] = {}
        self._decoded: dict[tuple[str, int, int], Received[Any] | Exception] = {}

    def foresee(self, records: Iterable[Record]) -> None:
        """Decode records, most of which `prepare` will be called with."""
        if len(self._foreseen) > FORESEEN_MAX:
            self._foreseen.clear()
        for record in records:
            if not _is_large(record):
                self._foreseen[record[:3]] = self._decode(record)

    async def prepare(self, slices: Sequence[Slice]) -> None:
        """See that all records are decoded, and look up the reply topics they name."""
        self._decoded = {}
        for part in slices:
            for record in part.records:
                foreseen = self._foreseen.pop(record[:3], None)
                self._decoded[record[:3]] = foreseen or self._decode(record)
                if _is_large(record):
                    await asyncio.sleep(0)
        reply_topics = {
            _reply_topic(record)
            for part in slices
            if self._by_topic[part.partition.topic].answers
            for record in part.records
        }
        await self._replies.learn(reply_topics)

    def _decode(self, record: Record) -> Received[Any] | Exception:
        if record.unreadable:
            return Invalid(codes.UNDECODABLE, record.unreadable)
        try:
            return Received(self._by_topic[record.topic].decode(record), record)
        except ValidationError as error:
            # The code of the first field that has one, and what is wrong without the input, which may be private.
            return Invalid(code_of(error), explain(error))
        except EnvelopeError as error:
            return Invalid(error.code, error.detail)
        except Exception as error:  # noqa: BLE001 - a bug of the decoder; apply() raises it where it can be bisected
            return error

    async def apply(self, session: Session, slices: Sequence[Slice], condemned: Exception | None) -> Done:
        """Run guards, handlers and unit, and write what they asked for."""
        tx = Transaction(session.connection, frozenset(part.partition.topic for part in slices))
        unit: U | None = None
        if condemned is not None:
            self._set_aside(tx, slices[0].records[0], condemned)
        else:
            batches = self._batches(tx, slices)
            if batches:
                unit = await self._handle(tx, batches)
        if tx.letters:
            await self._bury(tx)
        outbox.add(tx.statements, tx.messages)
        await tx.statements.run(tx.connection)
        return Done(tx, unit, self._replies, self._wake_relay)

    def _batches(self, tx: Transaction, slices: Sequence[Slice]) -> dict[str, list[Received[Any]]]:
        batches: dict[str, list[Received[Any]]] = {}
        for part in slices:
            for record in part.records:
                decoded = self._decoded[record[:3]]
                if isinstance(decoded, Invalid):
                    tx.dead_letter(record, decoded.code, decoded.detail)
                elif isinstance(decoded, Exception):
                    raise decoded
                else:
                    batches.setdefault(record.topic, []).append(decoded)
        return batches

    async def _handle(self, tx: Transaction, batches: Mapping[str, list[Received[Any]]]) -> U:
        guards = {
            self._by_topic[topic].guard(received.message) for topic, batch in batches.items() for received in batch
        }
        tx.received = [received.message for batch in batches.values() for received in batch]
        unit = await self._open_unit(tx, sorted(guards))
        for subscription in self._subscriptions:
            batch = batches.get(subscription.topic.name)
            if batch:
                await subscription.handler(unit, batch, tx)
        await unit.save(tx)
        return unit

    async def _bury(self, tx: Transaction) -> None:
        await dead_letters.insert(tx.connection, self._consumer, [letter for letter, _ in tx.letters])
        for letter, _ in tx.letters:
            dlq = self._by_topic[letter.record.topic].topic.dlq
            if dlq is not None:
                tx.emit(letter.message(self._consumer, dlq.name))

    @staticmethod
    def _set_aside(tx: Transaction, record: Record, error: Exception) -> None:
        if isinstance(error, Invalid):
            tx.dead_letter(record, error.code, error.detail)
        else:
            tx.dead_letter(record, codes.POISON, f"{type(error).__name__}: {error}", reason="bug")


def _is_large(record: Record) -> bool:
    return record.value is not None and len(record.value) > LARGE


def _reply_topic(record: Record) -> str:
    for name, value in reversed(record.headers):  # the last counts, as everywhere
        if name == "reply_to":
            return (value or b"").decode(errors="replace")
    return ""
