"""One seed: members, servers, a producer and faults, and whether every promise was kept."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from plimsoll_devkit.simulation.broker import Group, Log
from plimsoll_devkit.simulation.database import Database
from plimsoll_devkit.simulation.member import Member
from plimsoll_devkit.simulation.network import BROKER, DATABASE, Network, Weather
from plimsoll_devkit.simulation.virtual import DeadlockError, VirtualLoop
from plimsoll_streams.ownership import Claim, Selection, Slice
from plimsoll_streams.records import Partition

FAULTS_UNTIL = 20.0
"""Virtual seconds in which faults begin."""
PROGRESS_SECONDS = 15.0
"""After the last fault has ended, everything must be applied within this time."""
KEYS_PER_PARTITION = 3
PARTITIONS = 3


@dataclass(slots=True)
class Outcome:
    """What one seed came to."""

    seed: int
    violations: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    fences: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    virtual_seconds: float = 0.0


class Watcher:
    """Sees what one process's loop does, and checks the invariants on fences."""

    def __init__(self, world: "World", process: str) -> None:
        self._world = world
        self._process = process

    def claimed(self, partition: Partition, claim: Claim) -> None:
        """Note."""
        self._world.note(f"{self._process} claimed {_name(partition)} {claim.next_offset}@{claim.epoch}")

    def refused(self, partition: Partition, why: str) -> None:
        """No log is ever cut here."""
        self._world.violate(f"{self._process} refused {_name(partition)}: {why}")

    def fenced(self, partition: Partition, claim: Claim, *, current: bool) -> None:
        """Note, and count those that cost the partition a hold-off."""
        self._world.note(f"{self._process} fenced {_name(partition)} {claim.next_offset}@{claim.epoch} {current=}")
        if current:
            self._world.fenced(self._process, partition)

    def stopped(self, partition: Partition, why: str) -> None:
        """Nothing here has bugs."""
        self._world.violate(f"{self._process} stopped {_name(partition)}: {why}")

    def applied(self, slices: Sequence[Slice], seconds: float) -> None:
        """Nothing: the database notes it."""

    def passed_over(self, selection: Selection) -> None:
        """Nothing."""

    def bug(self, partition: Partition, offset: int, error: Exception, tries: int) -> None:
        """Nothing here has bugs."""
        self._world.violate(f"{self._process} has a bug at {_name(partition)} {offset} ({tries}): {error!r}")

    def retrying(self, error: Exception, wait: float) -> None:
        """Note."""
        self._world.note(f"{self._process} waits {wait:.2f} s: {error!r}")

    def going_on(self) -> None:
        """Nothing."""


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.outcome = Outcome(seed)
        self._loop = loop
        self._rng = random.Random(seed)
        self._partitions = tuple(
            Partition(topic, number) for topic in ("facts", "requests") for number in range(PARTITIONS)
        )
        self._network = Network(self._rng)
        self._database = Database(self._rng, self.note, self.violate)
        self._log = Log(self._partitions)
        self._group = Group(self._partitions, self.note)
        self._fences: Counter[tuple[Partition, int]] = Counter()
        self._assigned_at: dict[str, float] = {}
        self._told: set[int] = set()
        self._seqs: Counter[str] = Counter()
        self._faults_end = 0.0
        count = self._rng.choice((2, 2, 3))
        self._members = [self._member(f"m{number}") for number in range(count)]
        self._guest = self._member("guest")

    def _member(self, instance: str) -> Member:
        return Member(
            instance,
            log=self._log,
            group=self._group,
            database=self._database,
            network=self._network,
            observe=lambda process: Watcher(self, process),
            on_assigned=lambda process: self._assigned_at.__setitem__(process, self._loop.time()),
            violate=self.violate,
            told=self._told,
            rng=self._rng,
        )

    def note(self, text: str) -> None:
        """Write a line of the trace."""
        self.outcome.trace.append(f"{self._loop.time():8.3f} {text}")

    def violate(self, text: str) -> None:
        """A promise is broken."""
        self.note(f"VIOLATION {text}")
        self.outcome.violations.append(text)

    def fenced(self, process: str, partition: Partition) -> None:
        """Check a fence: at most one per partition and rebalance, and only by a rival's later claim."""
        self.outcome.fences += 1
        self._fences[partition, self._group.generation] += 1
        if self._fences[partition, self._group.generation] > 1:
            self.violate(f"second fence of {_name(partition)} in generation {self._group.generation}")
        since = self._assigned_at[process]
        if not any(at >= since and by != process and claimed == partition for at, by, claimed in self._database.claims):
            self.violate(f"{process} was fenced at {_name(partition)} without a rival since its assignment")

    async def run(self) -> None:
        """Live through the faults, then wait for quiet."""
        background = [
            asyncio.create_task(self._group.keep_time()),
            asyncio.create_task(self._produce()),
        ]
        for member in self._members:
            member.start()
        faults = [asyncio.create_task(self._fault(kind, at)) for kind, at in self._plan()]
        self._set_weather()
        await asyncio.sleep(FAULTS_UNTIL)
        self._network.weather = Weather()
        self._database.deadlock_chance = 0.0
        self._faults_end = max(self._faults_end, self._loop.time())
        await asyncio.gather(*faults, background[1])
        self.note("quiet")
        deadline = self._faults_end + PROGRESS_SECONDS
        while not self._is_done() and self._loop.time() < deadline and not self.outcome.violations:  # noqa: ASYNC110
            await asyncio.sleep(0.25)
        self._judge()

    def end(self) -> None:
        """Take everything down."""
        self._network.is_over = True
        self._loop.thaw_all()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _plan(self) -> list[tuple[str, float]]:
        rng = self._rng
        kinds = ("crash", "freeze", "cut database", "cut broker", "database down", "guest", "storm")
        # A seed has a character: few kinds of fault, so that they meet each other often enough.
        character = rng.sample(kinds, rng.randint(1, 3))
        return [(rng.choice(character), rng.uniform(0.5, FAULTS_UNTIL)) for _ in range(rng.randint(1, 6))]

    def _set_weather(self) -> None:
        rng = self._rng
        if rng.random() < 0.7:  # noqa: PLR2004 - most seeds have some
            self._network.weather = Weather(
                lose_request=rng.choice((0, 0.01, 0.03)),
                lose_answer=rng.choice((0, 0.01, 0.03)),
                delay=rng.choice((0, 0.02, 0.1)),
                delay_max=rng.choice((0.5, 4.0)),
                latency=rng.choice((0.002, 0.02)),
            )
            self._database.deadlock_chance = rng.choice((0, 0.02))

    async def _fault(self, kind: str, at: float) -> None:
        await asyncio.sleep(at)
        self.outcome.faults[kind] += 1
        member = self._rng.choice(self._members)
        self.note(f"fault: {kind} ({member.process})")
        match kind:
            case "crash":
                await self._crash(member)
            case "freeze":
                await self._freeze(member)
            case "cut database" | "cut broker":
                await self._cut(member, DATABASE if kind == "cut database" else BROKER)
            case "database down":
                self._database.crash()
                await asyncio.sleep(self._rng.uniform(0.2, 5))
                self._database.down = False
            case "guest":
                await self._visit(self._rng.uniform(0.3, 5))
            case _:
                for _ in range(self._rng.randint(2, 5)):
                    await self._visit(self._rng.uniform(0.1, 1.5))
                    await asyncio.sleep(self._rng.uniform(0.0, 1.5))
        self._faults_end = max(self._faults_end, self._loop.time())

    async def _crash(self, member: Member) -> None:
        if member.is_running:
            self._loop.thaw(member.process)
            member.crash()
            await asyncio.sleep(self._rng.uniform(0.1, 4))
            member.start()

    async def _freeze(self, member: Member) -> None:
        process = member.process
        if member.is_running and not self._loop.is_frozen(process):
            self._loop.freeze(process)
            await asyncio.sleep(self._rng.choice((self._rng.uniform(0.5, 4), self._rng.uniform(6, 14))))
            self._loop.thaw(process)
            self.note(f"thaw {process}")

    async def _cut(self, member: Member, server: str) -> None:
        process = member.process
        if member.is_running and not self._network.is_cut(process, server):
            self._network.cut(process, server)
            await asyncio.sleep(self._rng.uniform(0.5, 9))
            if member.process == process and member.is_running:
                self._network.mend(process, server)

    async def _visit(self, seconds: float) -> None:
        """Let one more member come and go: two rebalances."""
        if self._guest.is_running:
            return
        self._guest.start()
        await asyncio.sleep(seconds)
        self._guest.crash()
        if self._rng.random() < 0.7:  # noqa: PLR2004 - else its session has to expire
            await self._group.leave(self._guest.instance)

    async def _produce(self) -> None:
        rng = self._rng
        while self._loop.time() < FAULTS_UNTIL + 2:
            partition = rng.choice(self._partitions)
            key = f"{_name(partition)}/{rng.randrange(KEYS_PER_PARTITION)}"
            if self._seqs[key] == 0 or rng.random() >= 0.1:  # noqa: PLR2004 - a tenth are duplicates
                self._seqs[key] += 1
            skip = 1 if rng.random() < 0.02 else 0  # noqa: PLR2004
            self._log.append(partition, key, self._seqs[key], skip=skip)
            await asyncio.sleep(rng.expovariate(12))

    def _is_done(self) -> bool:
        records = sum(len(each) for each in self._log.records.values())
        return sum(each.records for each in self._database.sums.values()) >= records

    def _judge(self) -> None:
        self.outcome.virtual_seconds = self._loop.time()
        expected: Counter[str] = Counter()
        for records in self._log.records.values():
            expected.update((record.key or b"").decode() for record in records)
        for key, count in sorted(expected.items()):
            found = self._database.sums.get(key)
            if found is None or found.records < count:
                self.violate(f"{key}: {found} of {count} records, 15 s after the last fault")
            elif (found.records, found.seq, found.disorder) != (count, self._seqs[key], 0):
                self.violate(f"{key}: {found}, expected {count} records up to {self._seqs[key]} in order")


def run(seed: int) -> Outcome:
    """Run one seed in a loop of its own."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    world = World(seed, loop)
    try:
        loop.run_until_complete(world.run())
    except DeadlockError:
        world.violate("nothing is left that could ever happen")
    finally:
        world.end()
        asyncio.set_event_loop(None)
        loop.close()
    return world.outcome


def _name(partition: Partition) -> str:
    return f"{partition.topic}/{partition.number}"
