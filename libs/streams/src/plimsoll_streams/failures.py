"""Which of three kinds is a failure: the record is invalid, the moment is bad, or the code has a bug."""

import random
from dataclasses import dataclass

import asyncpg
from aiokafka.errors import KafkaError

from plimsoll_contracts.codes import Code


class Invalid(Exception):
    """This record breaks its contract; it is set aside in the transaction that steps over it."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Transient(Exception):
    """Nothing is wrong with the records: the whole batch is tried again, for as long as it takes."""


_MOMENTARY: tuple[type[BaseException], ...] = (
    Transient,
    OSError,
    TimeoutError,
    KafkaError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutdown, crash recovery, cancelled by a timeout
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,  # deadlock, serialisation
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby, during a failover
    asyncpg.InvalidAuthorizationSpecificationError,  # at connecting: a password being rotated
    asyncpg.InvalidCatalogNameError,  # at connecting: the database is being restored
    asyncpg.InternalClientError,  # the driver lost count on a connection that was ended under it
)


def is_transient(error: BaseException) -> bool:
    """Say whether waiting may cure this error by itself.

    A driver's InterfaceError counts only for a connection that is gone: the rest of them (a value that
    cannot be encoded, two statements at once) are our own mistakes, and waiting would hide them.
    """
    if isinstance(error, asyncpg.InterfaceError) and not isinstance(error, asyncpg.DataError):
        return "clos" in str(error) or "released" in str(error)
    return isinstance(error, _MOMENTARY)


@dataclass(slots=True)
class Backoff:
    """Growing, jittered waits between tries; seconds."""

    jitter: random.Random
    first: float = 0.05
    cap: float = 2.0
    _next: float = 0.0

    def reset(self) -> None:
        """Begin again with the shortest wait: something worked."""
        self._next = 0.0

    def next(self) -> float:
        """Return how long to wait now."""
        self._next = min(self.cap, max(self.first, self._next * 2))
        return self._next * (0.5 + self.jitter.random() / 2)
