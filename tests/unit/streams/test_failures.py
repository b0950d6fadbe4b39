"""What may be cured by waiting, and what may not."""

import random

import asyncpg
import pytest
from aiokafka.errors import KafkaTimeoutError

from plimsoll_streams.failures import Backoff, Transient, is_transient


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(),
        TimeoutError(),
        Transient("x"),
        KafkaTimeoutError(),
        asyncpg.DeadlockDetectedError(),
        asyncpg.SerializationError(),
        asyncpg.LockNotAvailableError(),
        asyncpg.QueryCanceledError(),
        asyncpg.AdminShutdownError(),
        asyncpg.CannotConnectNowError(),
        asyncpg.TooManyConnectionsError(),
        asyncpg.ConnectionDoesNotExistError(),
        asyncpg.IdleInTransactionSessionTimeoutError(),
        asyncpg.InternalClientError("cannot switch to state 11; another operation (2) is in progress"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InterfaceError("pool is closing"),
    ],
)
def test_waiting_cures(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        asyncpg.UniqueViolationError(),
        asyncpg.UndefinedTableError(),
        asyncpg.NumericValueOutOfRangeError(),
        asyncpg.DataError("invalid input for query argument $1: 1 (expected str)"),
        asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
    ],
)
def test_waiting_does_not_cure(error: Exception) -> None:
    assert not is_transient(error)


def test_waits_grow_to_a_cap_with_jitter_and_begin_again() -> None:
    backoff = Backoff(random.Random(1), first=0.1, cap=1.0)

    waits = [backoff.next() for _ in range(8)]
    backoff.reset()

    for wait, full in zip(waits, [0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1], strict=True):
        assert full / 2 <= wait <= full
    assert len(set(waits[4:])) == 4
    assert backoff.next() <= 0.1
