"""Who may write a partition's state now, and from which offset: a pure state machine, no I/O, no clock.

A partition that the group gave to this member is *assigned*, then *claimed* (its row's epoch is raised in the
database, its next offset learned), then *owned*. Losing the compare-and-swap means that somebody claimed it
after us: *fenced*, and *held off* until a new assignment or a while later, since a zombie that claimed again at
once would fence the rightful owner. *Revoked* partitions are simply gone, and everything that was awaited
across a revocation is void: the generation says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from plimsoll_streams.records import Partition, Record

HOLD_OFF_SECONDS = 8.0
"""Longer than a zombie needs to learn from the group that it is one."""

RECHECK_SECONDS = 30.0
"""How often a refused partition is looked at again, so that an operator's repair takes hold by itself."""


class Phase(StrEnum):
    """Where a partition stands with this member; a revoked one stands nowhere."""

    ASSIGNED = "assigned"
    CLAIMING = "claiming"
    OWNED = "owned"
    HELD_OFF = "held_off"
    REFUSED = "refused"
    """Its stored offset lies outside its log: reading on would silently lose or skip records."""
    PAUSED = "paused"
    """Too many records in a row failed by a bug: reading on would dead-letter everything."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write: the first offset not yet applied, and the epoch at which the row was taken."""

    next_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Holding:
    """One partition's standing."""

    phase: Phase
    claim: Claim | None = None
    until: float = 0.0
    """When a held off or refused partition may be claimed again."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Ownership:
    """All partitions of the present assignment. Every method returns the state after; none changes this one."""

    generation: int = 0
    holdings: Mapping[Partition, Holding] = field(default_factory=dict)
    paused: Mapping[Partition, str] = field(default_factory=dict)
    """Partitions stopped by bugs, with the reason; kept over rebalances, until the process ends."""

    def assigned(self, partitions: Iterable[Partition]) -> "Ownership":
        """The group gave us these and nothing else."""
        holdings = {
            partition: Holding(Phase.PAUSED, why=self.paused[partition])
            if partition in self.paused
            else Holding(Phase.ASSIGNED)
            for partition in sorted(partitions)
        }
        return replace(self, generation=self.generation + 1, holdings=holdings)

    def revoked(self) -> "Ownership":
        """The group took everything back (its rebalances are eager)."""
        return replace(self, generation=self.generation + 1, holdings={})

    def claimable(self, now: float) -> tuple[Partition, ...]:
        """Return what should be claimed now, in the order of locks."""
        return tuple(
            partition
            for partition, holding in sorted(self.holdings.items())
            if holding.phase is Phase.ASSIGNED
            or (holding.phase in {Phase.HELD_OFF, Phase.REFUSED} and holding.until <= now)
        )

    def claiming(self, partitions: Iterable[Partition]) -> "Ownership":
        """A claim of these is on its way."""
        return self._with({partition: Holding(Phase.CLAIMING) for partition in partitions})

    def claim_failed(self, generation: int, partitions: Iterable[Partition]) -> "Ownership":
        """The claim that began in `generation` did not come about."""
        if not self.is_current(generation):
            return self
        return self._with({partition: Holding(Phase.ASSIGNED) for partition in partitions})

    def claimed(
        self,
        generation: int,
        claims: Mapping[Partition, Claim],
        log: Mapping[Partition, tuple[int, int]],
        now: float,
    ) -> "Ownership":
        """The database answered the claim that began in `generation`, for the rows that were free.

        `log` has each first and end offset. The end must have been read after the claim: until then a former
        owner moved the offset on.
        """
        if not self.is_current(generation):
            return self
        return self._with(
            {
                partition: _admit(claims[partition], *log[partition], now)
                if partition in claims
                else Holding(Phase.ASSIGNED)
                for partition in log
            }
        )

    def is_current(self, generation: int) -> bool:
        """Say whether no assignment changed since `generation`."""
        return generation == self.generation

    def advanced(self, partition: Partition, epoch: int, next_offset: int) -> "Ownership":
        """A transaction under this epoch took the partition to `next_offset`."""
        if not self._holds(partition, epoch):
            return self
        return self._with({partition: Holding(Phase.OWNED, Claim(next_offset, epoch))})

    def fenced(self, partition: Partition, epoch: int, now: float) -> "Ownership":
        """Somebody claimed the partition after we did at `epoch`."""
        if not self._holds(partition, epoch):
            return self  # an older batch of ours; the claim we hold now is not touched by it
        return self._with({partition: Holding(Phase.HELD_OFF, until=now + HOLD_OFF_SECONDS, why="fenced")})

    def stopped(self, partition: Partition, why: str) -> "Ownership":
        """Stop reading this partition until the process is started again."""
        holdings = self.holdings
        if partition in holdings:
            holdings = {**holdings, partition: Holding(Phase.PAUSED, why=why)}
        return replace(self, holdings=holdings, paused={**self.paused, partition: why})

    def claims(self) -> dict[Partition, Claim]:
        """Return the claims of all owned partitions."""
        return {
            partition: holding.claim
            for partition, holding in self.holdings.items()
            if holding.phase is Phase.OWNED and holding.claim is not None
        }

    def _holds(self, partition: Partition, epoch: int) -> bool:
        holding = self.holdings.get(partition)
        return holding is not None and holding.claim is not None and holding.claim.epoch == epoch

    def _with(self, changes: Mapping[Partition, Holding]) -> "Ownership":
        return replace(self, holdings={**self.holdings, **changes})


def _admit(claim: Claim, first: int, end: int, now: float) -> Holding:
    if first <= claim.next_offset <= end:
        return Holding(Phase.OWNED, claim)
    why = f"stored offset {claim.next_offset} lies outside the log, {first} to {end}"
    return Holding(Phase.REFUSED, until=now + RECHECK_SECONDS, why=why)


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive records of one partition, to be applied under one claim; never empty."""

    partition: Partition
    claim: Claim
    records: Sequence[Record]

    @property
    def target(self) -> int:
        """The next offset once these records are applied."""
        return self.records[-1].offset + 1

    def halves(self) -> tuple["Slice", "Slice"]:
        """Split in two; the second half's claim begins where the first half ends."""
        middle = len(self.records) // 2
        first, second = self.records[:middle], self.records[middle:]
        onward = Claim(first[-1].offset + 1, self.claim.epoch)
        return replace(self, records=first), Slice(self.partition, onward, second)


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a poll is to be applied, and what was passed over."""

    slices: tuple[Slice, ...]
    replayed: int
    """Records below the claim's offset: they came again after a seek or a rebalance."""
    unclaimed: int
    """Records of partitions that are not owned; the seek of their claim brings them back."""
    gaps: tuple[Partition, ...]
    """Partitions whose next record is missing from the log (compaction and transactions do that)."""


def select_fresh(batch: Mapping[Partition, Sequence[Record]], claims: Mapping[Partition, Claim]) -> Selection:
    """Keep the records that each claim has not applied yet."""
    slices: list[Slice] = []
    replayed = unclaimed = 0
    gaps: list[Partition] = []
    for partition, records in sorted(batch.items()):
        claim = claims.get(partition)
        if claim is None:
            unclaimed += len(records)
            continue
        fresh = records
        if records and records[0].offset < claim.next_offset:
            fresh = [record for record in records if record.offset >= claim.next_offset]
            replayed += len(records) - len(fresh)
        if not fresh:
            continue
        if fresh[0].offset > claim.next_offset:
            gaps.append(partition)
        slices.append(Slice(partition, claim, fresh))
    return Selection(tuple(slices), replayed, unclaimed, tuple(gaps))


class Verdict(StrEnum):
    """What a locked offset row says about our claim."""

    OURS = "ours"
    APPLIED = "applied"
    """Our epoch, but further on: the answer to our own COMMIT was lost."""
    FENCED = "fenced"


def judge(claims: Mapping[Partition, Claim], rows: Mapping[Partition, Claim]) -> dict[Partition, Verdict]:
    """Compare claims with their locked rows. Under the row lock this is the compare of the compare-and-swap."""
    return {partition: _verdict(claim, rows.get(partition)) for partition, claim in claims.items()}


def _verdict(claim: Claim, row: Claim | None) -> Verdict:
    if row == claim:
        return Verdict.OURS
    if row is not None and row.epoch == claim.epoch and row.next_offset > claim.next_offset:
        return Verdict.APPLIED
    # Another's epoch; or no row, or one behind us: the database was restored, so what we know is void.
    return Verdict.FENCED
