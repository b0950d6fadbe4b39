"""What does the engine need of Kafka? A log per partition, a group with sessions, generations, static members."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from plimsoll_streams.records import Partition, Record

SESSION_SECONDS = 6.0
REBALANCE_SECONDS = 60.0
TICK_SECONDS = 0.25


class Log:
    """The records of all partitions; offsets may have gaps, as compaction makes them."""

    def __init__(self, partitions: Collection[Partition]) -> None:
        self.records: dict[Partition, list[Record]] = {partition: [] for partition in partitions}
        self._ends: dict[Partition, int] = dict.fromkeys(partitions, 0)
        self._arrived: list[asyncio.Future[None]] = []

    def append(self, partition: Partition, key: str, seq: int, *, skip: int = 0) -> None:
        """Write a record, after `skip` offsets that are never filled."""
        offset = self._ends[partition] + skip
        record = Record(partition.topic, partition.number, offset, key.encode(), str(seq).encode())
        self.records[partition].append(record)
        self._ends[partition] = offset + 1
        arrived, self._arrived = self._arrived, []
        for waiter in arrived:
            if not waiter.done():
                waiter.set_result(None)

    async def ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offset after the last record of each log."""
        return {partition: self._ends[partition] for partition in partitions}

    async def firsts(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the first offset of each log."""
        return dict.fromkeys(partitions, 0)

    async def fetch(
        self, positions: Mapping[Partition, int], *, seconds: float, limit: int
    ) -> dict[Partition, list[Record]]:
        """Return records from the given positions, waiting up to `seconds` for the first."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = self._read(positions, limit)
            left = deadline - asyncio.get_running_loop().time()
            if found or left <= 0:
                return found
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._arrived.append(waiter)
            await asyncio.wait([waiter], timeout=left)

    def _read(self, positions: Mapping[Partition, int], limit: int) -> dict[Partition, list[Record]]:
        found: dict[Partition, list[Record]] = {}
        for partition, position in positions.items():
            if limit <= 0:
                break
            if position < self._ends[partition]:
                page = [record for record in self.records[partition] if record.offset >= position][:limit]
                if page:
                    found[partition] = page
                    limit -= len(page)
        return found


@dataclass(slots=True)
class _Member:
    member_id: int
    seen: float
    joining: "asyncio.Future[Assignment] | None" = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member was given."""

    member_id: int
    generation: int
    partitions: tuple[Partition, ...]


@dataclass(slots=True)
class Group:
    """The coordinator: eager rebalances, static members, range assignment."""

    partitions: tuple[Partition, ...]
    note: Callable[[str], None]
    generation: int = 0
    _members: dict[str, _Member] = field(default_factory=dict)
    _assigned: dict[str, tuple[Partition, ...]] = field(default_factory=dict)
    _rebalancing_since: float | None = None
    _ids: int = 0

    async def join(self, instance: str, member_id: int | None) -> Assignment:
        """Join or rejoin; answers when the group is complete."""
        now = asyncio.get_running_loop().time()
        known = self._members.get(instance)
        if known is None or member_id is None or known.member_id != member_id:
            self._ids += 1
            if known is not None and self._rebalancing_since is None and known.joining is None:
                # A static member that came back: its old self is fenced, and nothing moves.
                known.member_id, known.seen = self._ids, now
                return Assignment(self._ids, self.generation, self._assigned.get(instance, ()))
            known = self._members[instance] = _Member(self._ids, now)
        known.seen = now
        known.joining = asyncio.get_running_loop().create_future()
        self._rebalance(f"{instance} joins")
        joining = known.joining
        self._complete()
        return await joining

    async def leave(self, instance: str) -> None:
        """Leave at once."""
        if self._members.pop(instance, None) is not None:
            self._rebalance(f"{instance} leaves")
            self._complete()

    async def heartbeat(self, instance: str, member_id: int, generation: int) -> str:
        """Return how things stand: "ok", "rebalance", or "unknown"."""
        member = self._members.get(instance)
        if member is None or member.member_id != member_id:
            return "unknown"
        member.seen = asyncio.get_running_loop().time()
        if self._rebalancing_since is not None or generation != self.generation:
            return "rebalance"
        return "ok"

    def is_assigned(self, instance: str, partition: Partition) -> bool:
        """Say whether the group means this member to own the partition."""
        return partition in self._assigned.get(instance, ())

    async def keep_time(self) -> None:
        """Expire sessions and rebalances, for ever."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = asyncio.get_running_loop().time()
            late = self._rebalancing_since is not None and now - self._rebalancing_since > REBALANCE_SECONDS
            for instance, member in list(self._members.items()):
                if member.joining is None and (late or now - member.seen > SESSION_SECONDS):
                    del self._members[instance]
                    self._rebalance(f"{instance} expires")
            self._complete()

    def _rebalance(self, why: str) -> None:
        if self._rebalancing_since is None:
            self._rebalancing_since = asyncio.get_running_loop().time()
        self.note(f"group: {why}, rebalancing")

    def _complete(self) -> None:
        if (
            not self._members
            or self._rebalancing_since is None
            or any(each.joining is None for each in self._members.values())
        ):
            return
        self._rebalancing_since = None
        self.generation += 1
        self._assigned = self._range()
        now = asyncio.get_running_loop().time()
        for instance, member in self._members.items():
            member.seen = now
            if member.joining is not None and not member.joining.done():
                member.joining.set_result(Assignment(member.member_id, self.generation, self._assigned[instance]))
            member.joining = None
        self.note(f"group: generation {self.generation}, {', '.join(sorted(self._members))}")

    def _range(self) -> dict[str, tuple[Partition, ...]]:
        instances = sorted(self._members)
        numbers = sorted({partition.number for partition in self.partitions})
        owner = {number: instances[index * len(instances) // len(numbers)] for index, number in enumerate(numbers)}
        return {
            instance: tuple(each for each in self.partitions if owner[each.number] == instance)
            for instance in instances
        }
