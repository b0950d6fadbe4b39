"""How does a loop keep a transaction from hanging: one connection kept between them, given up at the first doubt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from plimsoll_streams.failures import Transient

Connection = asyncpg.Connection | PoolConnectionProxy

ROLLBACK_SECONDS = 2.0
_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


@dataclass(slots=True)
class Round:
    """One transaction in the making, for those who save the trips to the server that its ends cost."""

    connection: Connection
    last: str = ""
    """Statements that go along with the COMMIT."""


class Transactions:
    """Transactions one after the other, on one connection that is not returned to its pool in between."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._connection: PoolConnectionProxy | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Connection]:
        """Begin, and commit what the block did, or roll back where it raised; see `unbegun`."""
        async with self.unbegun() as made:
            await made.connection.execute("BEGIN")
            yield made.connection

    @asynccontextmanager
    async def unbegun(self) -> AsyncIterator[Round]:
        """Commit what the block did, which begins the transaction by itself, or roll back where it raised.

        Raises:
            Transient: the connection was lost, whatever the driver called it. After a commit was sent that
                leaves open whether it happened.
        """
        if self._connection is None or _is_lost(self._connection):
            self._connection = await self._pool.acquire()
        connection = self._connection
        try:
            made = Round(connection)
            yield made
            await connection.execute(f"{made.last}COMMIT")
        except BaseException as error:
            self._connection = None
            lost = _is_lost(connection)
            await self._abandon(connection, error)
            if lost and isinstance(error, Exception):
                raise Transient(f"connection lost: {error!r}") from error
            raise

    async def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(*_LOST):
                await self._pool.release(connection, timeout=ROLLBACK_SECONDS)

    async def _abandon(self, connection: PoolConnectionProxy, error: BaseException) -> None:
        """End the transaction; where asking the server may hang, closing the socket makes it roll back."""
        polite = isinstance(error, Exception) and not isinstance(error, TimeoutError | OSError)
        if polite and not _is_lost(connection):
            try:
                await connection.execute("ROLLBACK", timeout=ROLLBACK_SECONDS)
            except _LOST:
                polite = False
        with suppress(*_LOST):
            if not polite:
                connection.terminate()
            await asyncio.shield(self._pool.release(connection, timeout=ROLLBACK_SECONDS))


def _is_lost(connection: PoolConnectionProxy) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True  # the pool has taken a broken connection back by itself
