"""What does the engine need of PostgreSQL? Row locks, atomic commits, timeouts, and answers that get lost."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import asyncpg

from plimsoll_devkit.simulation.network import DATABASE, LostError, Network
from plimsoll_streams.failures import Transient
from plimsoll_streams.ownership import Claim
from plimsoll_streams.records import Partition

T = TypeVar("T")

LOCK_SECONDS = 2.0
IDLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Sum:
    """What was applied of one key; `disorder` counts records that came before their predecessor."""

    seq: int = 0
    records: int = 0
    disorder: int = 0

    def add(self, seq: int) -> "Sum":
        """Apply one record."""
        if seq <= self.seq:
            return replace(self, records=self.records + 1)
        return Sum(seq, self.records + 1, self.disorder + (seq != self.seq + 1))


@dataclass(slots=True, eq=False)
class Session:
    """One open transaction, at the server."""

    process: str
    number: int
    offsets: dict[Partition, Claim] = field(default_factory=dict)
    sums: dict[str, Sum] = field(default_factory=dict)
    claiming: bool = False
    locks: set[Partition] = field(default_factory=set)
    ended: bool = False
    active: float = 0.0
    busy: bool = False


class Database:
    """The server."""

    def __init__(self, rng: random.Random, note: Callable[[str], None], violate: Callable[[str], None]) -> None:
        self.offsets: dict[Partition, Claim] = {}
        self.sums: dict[str, Sum] = {}
        self.claims: list[tuple[float, str, Partition]] = []
        self.committed: set[int] = set()
        self.deadlock_chance = 0.0
        self.down = False
        self._rng = rng
        self._note = note
        self._violate = violate
        self._sessions: dict[Session, None] = {}  # a set's order would differ from run to run
        self._holders: dict[Partition, Session] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._numbers = 0

    async def begin(self, process: str) -> Session:
        """Open a transaction."""
        if self.down:
            raise asyncpg.CannotConnectNowError("down")
        self._numbers += 1
        session = Session(process, self._numbers, active=asyncio.get_running_loop().time())
        self._sessions[session] = None
        self._watch(session)
        return session

    async def claim(self, session: Session, first: Mapping[Partition, int]) -> dict[Partition, Claim]:
        """Raise the epochs of rows that are free."""
        self._enter(session)
        session.claiming = True
        for partition in sorted(first):
            if self._holders.get(partition, session) is session:
                self._holders[partition] = session
                session.locks.add(partition)
                row = self.offsets.get(partition, Claim(first[partition], 0))
                session.offsets[partition] = Claim(row.next_offset, row.epoch + 1)
        self._leave(session)
        return dict(session.offsets)

    async def lock(self, session: Session, partitions: Iterable[Partition]) -> dict[Partition, Claim]:
        """Lock rows in order; the rows as they are then."""
        self._enter(session)
        if self._rng.random() < self.deadlock_chance:
            self.end(session)
            raise asyncpg.DeadlockDetectedError("simulated")
        for partition in sorted(partitions):
            await self._acquire(session, partition)
        self._leave(session)
        return {partition: self.offsets[partition] for partition in session.locks}

    async def _acquire(self, session: Session, partition: Partition) -> None:
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                while not session.ended and self._holders.get(partition, session) is not session:
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
        except TimeoutError:
            self.end(session)
            raise asyncpg.LockNotAvailableError("lock timeout") from None
        if session.ended:
            raise LostError
        self._holders[partition] = session
        session.locks.add(partition)

    async def load(self, session: Session, keys: Collection[str]) -> dict[str, Sum]:
        """Read sums as they are committed."""
        self._enter(session)
        self._leave(session)
        return {key: self.sums.get(key, Sum()) for key in keys}

    async def save(self, session: Session, sums: Mapping[str, Sum]) -> None:
        """Write sums."""
        self._enter(session)
        session.sums.update(sums)
        self._leave(session)

    async def advance(
        self, session: Session, claims: Mapping[Partition, Claim], targets: Mapping[Partition, int]
    ) -> None:
        """Move rows on; `claims` is what the writer believes, for the invariants only."""
        self._enter(session)
        for partition, target in targets.items():
            row = self.offsets[partition]
            if row != claims.get(partition, row):
                self._violate(f"{session.process} writes {partition} under {claims[partition]}, the row is {row}")
            session.offsets[partition] = Claim(target, row.epoch)
        self._leave(session)

    async def commit(self, session: Session) -> None:
        """Make everything durable at once."""
        self._enter(session)
        self.offsets.update(session.offsets)
        self.sums.update(session.sums)
        self.committed.add(session.number)
        if session.claiming:
            now = asyncio.get_running_loop().time()
            self.claims += [(now, session.process, partition) for partition in session.offsets]
        self._note(f"database: {session.process} committed #{session.number} {_offsets(session.offsets)}")
        self.end(session)

    def end(self, session: Session) -> None:
        """Free a transaction's locks; what it has not committed is gone."""
        if session.ended:
            return
        session.ended = True
        self._sessions.pop(session, None)
        for partition in session.locks:
            del self._holders[partition]
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def hang_up(self, process: str) -> None:
        """Notice that a process is gone: its connections are closed."""
        for session in [each for each in self._sessions if each.process == process]:
            self.end(session)

    def crash(self) -> None:
        """Lose every transaction, and take no new ones."""
        self.down = True
        for session in list(self._sessions):
            self.end(session)

    def _enter(self, session: Session) -> None:
        if session.ended or self.down:
            raise LostError
        session.busy = True

    def _leave(self, session: Session) -> None:
        session.busy = False
        session.active = asyncio.get_running_loop().time()
        self._watch(session)

    def _watch(self, session: Session) -> None:
        """End a transaction that nobody goes on with: idle_in_transaction_session_timeout."""

        def check() -> None:
            idle = asyncio.get_running_loop().time() - session.active
            if not session.ended and not session.busy and idle >= IDLE_SECONDS - 0.001:
                self._note(f"database: idle transaction of {session.process} ended")
                self.end(session)

        asyncio.get_running_loop().call_later(IDLE_SECONDS, check)


@dataclass(slots=True, eq=False)
class Transaction:
    """One open transaction, at the client: the engine's session, and the toy's statements."""

    database: Database
    network: Network
    process: str
    session: Session
    believed: dict[Partition, Claim] = field(default_factory=dict)

    async def claim(self, first_offsets: Mapping[Partition, int]) -> Mapping[Partition, Claim]:
        """As the engine's session."""
        return await self._call(lambda: self.database.claim(self.session, first_offsets))

    async def lock(self, expected: Mapping[Partition, Claim]) -> Mapping[Partition, Claim]:
        """As the engine's session."""
        return await self._call(lambda: self.database.lock(self.session, expected))

    async def advance(self, targets: Mapping[Partition, int]) -> None:
        """As the engine's session."""
        await self._call(lambda: self.database.advance(self.session, self.believed, targets))

    async def load(self, keys: Collection[str]) -> dict[str, Sum]:
        """Read sums."""
        return await self._call(lambda: self.database.load(self.session, keys))

    async def save(self, sums: Mapping[str, Sum]) -> None:
        """Write sums."""
        await self._call(lambda: self.database.save(self.session, sums))

    async def commit(self) -> None:
        """Commit."""
        await self._call(lambda: self.database.commit(self.session))

    async def rollback(self) -> None:
        """Roll back."""

        async def end() -> None:
            self.database.end(self.session)

        await self._call(end)

    def hang_up(self) -> None:
        """Close the connection; the server notices, unless nothing gets through."""

        async def end() -> None:
            await asyncio.sleep(0.01)
            if not self.network.is_cut(self.process, DATABASE):
                self.database.end(self.session)

        self.network.spawn(end())

    async def _call(self, serve: Callable[[], Awaitable[T]]) -> T:
        return await self.network.call(self.process, DATABASE, serve)


class Ledger:
    """Transactions of one process; stands in for the engine's own."""

    def __init__(self, database: Database, network: Network, process: str) -> None:
        self._database = database
        self._network = network
        self._process = process

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Commit at the end of the block, roll back if it raises."""
        database, network, process = self._database, self._network, self._process
        session = await network.call(process, DATABASE, lambda: database.begin(process))
        transaction = Transaction(database, network, process, session)
        try:
            yield transaction
            await transaction.commit()
        except LostError as error:
            transaction.hang_up()
            raise Transient("connection lost") from error
        except Exception:
            with suppress(OSError):
                await transaction.rollback()
            raise
        except BaseException:
            transaction.hang_up()
            raise


def _offsets(offsets: Mapping[Partition, Claim]) -> str:
    return " ".join(f"{p.topic}/{p.number}={c.next_offset}@{c.epoch}" for p, c in sorted(offsets.items()))
