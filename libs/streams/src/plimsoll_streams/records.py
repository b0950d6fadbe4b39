"""What passes through the engine: a record as it was read, a message as it was understood, what goes out again.

Tuples, since one is made for each record: a frozen dataclass costs three times as much.
"""

from typing import Generic, NamedTuple, TypeVar

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)

Headers = tuple[tuple[str, bytes | None], ...]


class Partition(NamedTuple):
    """One partition of one topic; sorts in the order in which offset rows are locked."""

    topic: str
    number: int


class Record(NamedTuple):
    """One record as the broker holds it, nothing decoded."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    unreadable: str = ""
    """Why the client could not even read it: then only its place is known, and the rest is empty."""


class Received(NamedTuple, Generic[M_co]):
    """A decoded message with the record that carried it."""

    message: M_co
    record: Record


class Reply(NamedTuple):
    """An answer to one request, sent after the commit; a lost one costs its caller a retry."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes
    headers: Headers = ()


class OutboxMessage(NamedTuple):
    """A message that is published if and only if the transaction that wrote it commits, in order per key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
