"""What is one process of the simulated service? The engine's own loop, on a simulated consumer and group client."""

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka.errors import IllegalStateError, KafkaTimeoutError

from plimsoll_devkit.simulation.broker import SESSION_SECONDS, Assignment, Group, Log
from plimsoll_devkit.simulation.database import Database, Ledger, Transaction
from plimsoll_devkit.simulation.network import BROKER, DATABASE, LostError, Network
from plimsoll_devkit.simulation.virtual import PROCESS
from plimsoll_streams.consumer import Consumer
from plimsoll_streams.ownership import Slice
from plimsoll_streams.ports import Observer, Settings
from plimsoll_streams.records import Partition, Record

HEARTBEAT_SECONDS = 0.5
RETRY_SECONDS = 0.1


class Source:
    """A group consumer as aiokafka's behaves: positions, pauses, and no records during a rebalance."""

    def __init__(self, log: Log, network: Network, process: str) -> None:
        self._log = log
        self._network = network
        self._process = process
        self._positions: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._settled = asyncio.Event()
        self.committed: dict[Partition, int] = {}

    def begin_rebalance(self) -> None:
        """Deliver nothing until the next assignment."""
        self._settled.clear()

    def assign(self, partitions: Collection[Partition]) -> None:
        """Take a new assignment; reading begins where the group's own offsets are, unless somebody seeks."""
        self._positions = {partition: self.committed.get(partition, 0) for partition in partitions}
        self._paused = set()

    def end_rebalance(self) -> None:
        """Deliver again."""
        self._settled.set()

    def pause(self, partitions: Collection[Partition]) -> None:
        """As aiokafka."""
        self._require(partitions)
        self._paused.update(partitions)

    def resume(self, partitions: Collection[Partition]) -> None:
        """As aiokafka."""
        self._require(partitions)
        self._paused.difference_update(partitions)

    def seek(self, partition: Partition, offset: int) -> None:
        """As aiokafka."""
        self._require([partition])
        self._positions[partition] = offset

    def _require(self, partitions: Collection[Partition]) -> None:
        if not all(partition in self._positions for partition in partitions):
            raise IllegalStateError(f"not assigned: {sorted(partitions)}")

    async def first_offsets(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """As the engine's source."""
        return await self._ask(lambda: self._log.firsts(partitions))

    async def end_offsets(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """As the engine's source."""
        return await self._ask(lambda: self._log.ends(partitions))

    async def _ask(self, serve: Callable[[], Awaitable[dict[Partition, int]]]) -> Mapping[Partition, int]:
        try:
            return await self._network.call(self._process, BROKER, serve)
        except LostError as error:
            raise KafkaTimeoutError from error

    async def poll(
        self, partitions: Collection[Partition], *, seconds: float, limit: int
    ) -> Mapping[Partition, Sequence[Record]]:
        """Fetch; what was sought, paused or taken away meanwhile is dropped, as aiokafka does."""
        await self._settled.wait()
        asked = {
            partition: position
            for partition, position in self._positions.items()
            if partition not in self._paused and (not partitions or partition in partitions)
        }
        try:
            found = await self._network.call(
                self._process, BROKER, lambda: self._log.fetch(asked, seconds=seconds, limit=limit)
            )
        except LostError:
            return {}
        await self._settled.wait()
        fresh = {}
        for partition, records in found.items():
            if self._positions.get(partition) == asked[partition] and partition not in self._paused:
                self._positions[partition] = records[-1].offset + 1
                fresh[partition] = records
        return fresh

    def commit_soon(self, offsets: Mapping[Partition, int]) -> None:
        """The group's own offsets are never right here: nothing may rest on them."""
        self.committed = {partition: max(0, offset - 5) for partition, offset in offsets.items()}


@dataclass(frozen=True, slots=True)
class Effects:
    """Checks that nothing is told before it is durable, or twice."""

    transaction: Transaction
    told: set[int]
    violate: Callable[[str], None]

    def committed(self) -> None:
        """Tell."""
        number = self.transaction.session.number
        if number not in self.transaction.database.committed:
            self.violate(f"#{number} was told before it was durable")
        if number in self.told:
            self.violate(f"#{number} was told twice")
        self.told.add(number)


class Adder:
    """The toy's processor: the sums of the database."""

    def __init__(self, told: set[int], violate: Callable[[str], None]) -> None:
        self._told = told
        self._violate = violate

    def foresee(self, records: Iterable[Record]) -> None:
        """Nothing to decode."""

    async def prepare(self, slices: Sequence[Slice]) -> None:
        """Nothing to look up."""

    async def apply(self, session: Transaction, slices: Sequence[Slice], condemned: Exception | None) -> Effects:
        """Add up."""
        if condemned is not None:
            self._violate(f"a record was condemned: {condemned!r}")
        session.believed = {part.partition: part.claim for part in slices}
        records = [record for part in slices for record in part.records]
        sums = await session.load({(record.key or b"").decode() for record in records})
        for record in records:
            key = (record.key or b"").decode()
            sums[key] = sums[key].add(int(record.value or b""))
        await session.save(sums)
        return Effects(session, self._told, self._violate)


class Member:
    """One replica: its processes come and go, its instance name stays."""

    def __init__(
        self,
        instance: str,
        *,
        log: Log,
        group: Group,
        database: Database,
        network: Network,
        observe: Callable[[str], Observer],
        on_assigned: Callable[[str], None],
        violate: Callable[[str], None],
        told: set[int],
        rng: random.Random,
    ) -> None:
        self.instance = instance
        self.process = ""
        self._log = log
        self._group = group
        self._database = database
        self._network = network
        self._observe = observe
        self._on_assigned = on_assigned
        self._violate = violate
        self._told = told
        self._rng = rng
        self._starts = 0
        self.is_running = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start a process."""
        self._starts += 1
        self.is_running = True
        self.process = f"{self.instance}.{self._starts}"
        context = contextvars.copy_context()
        context.run(PROCESS.set, self.process)
        loop = asyncio.get_running_loop()
        source = Source(self._log, self._network, self.process)
        consumer: Consumer[Transaction] = Consumer(
            source=source,
            ledger=Ledger(self._database, self._network, self.process),
            processor=Adder(self._told, self._violate),
            observer=self._observe(self.process),
            settings=Settings(records_max=20, first_records_max=20, poll_seconds=0.25),
            first_topics=frozenset({"requests"}),
            jitter=random.Random(self._rng.random()),
        )
        self._tasks = [
            loop.create_task(self._run(consumer), context=context),
            loop.create_task(self._be_in_group(source, consumer), context=context),
        ]

    def crash(self) -> None:
        """End the process at once, wherever it stands; what it has just sent may still arrive."""
        process = self.process
        self.is_running = False
        for task in self._tasks:
            task.cancel()

        async def vanish() -> None:
            await asyncio.sleep(0.01)
            self._network.cut(process, BROKER)
            self._network.cut(process, DATABASE)
            self._database.hang_up(process)

        self._network.spawn(vanish())

    async def _run(self, consumer: Consumer[Transaction]) -> None:
        try:
            await consumer.run()
        except Exception as error:  # noqa: BLE001 - any is a finding
            self._violate(f"the loop of {self.process} died: {error!r}")

    async def _be_in_group(self, source: Source, consumer: Consumer[Transaction]) -> None:
        member_id: int | None = None
        while True:
            assignment = await self._join(member_id)
            member_id = assignment.member_id
            self._on_assigned(self.process)
            source.assign(assignment.partitions)
            consumer.assigned(assignment.partitions)
            source.end_rebalance()
            if await self._stay(assignment) == "unknown":
                member_id = None
            source.begin_rebalance()
            revoking = asyncio.create_task(consumer.revoked())
            while not revoking.done():
                # Heartbeats go on while the rebalance waits for the batch in flight.
                await asyncio.wait([revoking], timeout=HEARTBEAT_SECONDS)
                if member_id is not None and not revoking.done():
                    await self._beat(assignment)

    async def _join(self, member_id: int | None) -> Assignment:
        while True:
            try:
                return await self._network.call(
                    self.process, BROKER, lambda: self._group.join(self.instance, member_id)
                )
            except LostError:
                await asyncio.sleep(RETRY_SECONDS)

    async def _stay(self, assignment: Assignment) -> str:
        """Send heartbeats until the group wants something else."""
        now = asyncio.get_running_loop().time
        answered = now()
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS if now() - answered < SESSION_SECONDS else RETRY_SECONDS)
            state = await self._beat(assignment)
            if state is not None:
                answered = now()
            if state not in {None, "ok"}:
                return str(state)

    async def _beat(self, assignment: Assignment) -> str | None:
        try:
            return await self._network.call(
                self.process,
                BROKER,
                lambda: self._group.heartbeat(self.instance, assignment.member_id, assignment.generation),
            )
        except LostError:
            return None
