"""How does a batch become durable: judged under its row locks, applied in one transaction, bisected where it fails."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from plimsoll_streams import ownership
from plimsoll_streams.crashpoints import crash_at
from plimsoll_streams.failures import Invalid, is_transient
from plimsoll_streams.ownership import Claim, Ownership, Slice, Verdict
from plimsoll_streams.poison import Bugs
from plimsoll_streams.ports import Effects, Ledger, Observer, Processor, Seeker, Session, Settings
from plimsoll_streams.records import Partition, Record

S = TypeVar("S", bound=Session)


@dataclass(slots=True)
class Standing:
    """The ownership as it is now; the group's callbacks replace it while a batch is being applied."""

    ownership: Ownership = field(default_factory=Ownership)


class _Stale(Exception):
    """Some rows are not as this batch expects them; the transaction is rolled back."""

    def __init__(self, verdicts: Mapping[Partition, Verdict], rows: Mapping[Partition, Claim]) -> None:
        self.verdicts = verdicts
        self.rows = rows


@dataclass(frozen=True, slots=True)
class _InDoubt:
    """A transaction whose COMMIT was sent and not answered yet."""

    slices: Sequence[Slice]
    effects: Effects

    def is_settled_by(self, rows: Mapping[Partition, Claim]) -> bool:
        """Say whether rows under our epoch show it to have happened."""
        for part in self.slices:
            row = rows.get(part.partition)
            if row is not None and row.epoch == part.claim.epoch and row.next_offset >= part.target:
                return True
        return False


class Applier(Generic[S]):
    """Applies slices under their claims; only the loop calls it."""

    def __init__(
        self,
        *,
        standing: Standing,
        source: Seeker,
        ledger: Ledger[S],
        processor: Processor[S],
        observer: Observer,
        settings: Settings,
    ) -> None:
        self._standing = standing
        self._source = source
        self._ledger = ledger
        self._processor = processor
        self._observer = observer
        self._settings = settings
        self._in_doubt: _InDoubt | None = None
        self._bugs = Bugs()

    async def apply(self, slices: Sequence[Slice]) -> None:
        """Apply everything that is still ours, or have what is left read again.

        Raises:
            Exception: a transient one: the moment is bad, try again later.
        """
        generation = self._standing.ownership.generation
        pending: deque[Sequence[Slice]] = deque([slices])
        try:
            await self._processor.prepare(slices)
            while pending and self._standing.ownership.is_current(generation):
                await self._step(pending)
        except Exception:
            # The next try may have more or fewer records.
            if self._standing.ownership.is_current(generation):
                self.rewind(part.partition for group in pending for part in group)
            raise

    def rewind(self, partitions: Iterable[Partition]) -> None:
        """Read again what was delivered of these and not applied."""
        claims = self._standing.ownership.claims()
        for partition in set(partitions) & claims.keys():
            self._source.seek(partition, claims[partition].next_offset)

    async def _step(self, pending: deque[Sequence[Slice]]) -> None:
        """Apply the first pending group, or put what is left of it back."""
        group = pending[0]
        try:
            await self._attempt(group)
        except _Stale as stale:
            left = self._settle(group, stale)
        except Exception as error:
            if is_transient(error):
                raise
            pending.popleft()
            if len(group) > 1:
                pending.extendleft((group[len(group) // 2 :], group[: len(group) // 2]))
            elif len(group[0].records) > 1:
                pending.extendleft([half] for half in reversed(group[0].halves()))
            elif not await self._condemn(group[0], error):
                pending.appendleft(group)
            self._drop_stopped(pending)
            return
        else:
            left = ()
        pending.popleft()
        if left:
            pending.appendleft(left)

    async def _attempt(self, group: Sequence[Slice], condemned: Exception | None = None) -> None:
        began = _now()
        claims = {part.partition: part.claim for part in group}
        async with asyncio.timeout(self._settings.attempt_seconds):
            async with self._ledger.transaction() as session:
                rows = await session.lock(claims)
                crash_at("after_lock")
                verdicts = ownership.judge(claims, rows)
                if any(verdict is not Verdict.OURS for verdict in verdicts.values()):
                    raise _Stale(verdicts, rows)
                effects = await self._processor.apply(session, group, condemned)
                await session.advance({part.partition: part.target for part in group})
                crash_at("before_commit")
                self._in_doubt = _InDoubt(group, effects)
        self._in_doubt = None
        crash_at("after_commit")
        self._advance(group)
        if condemned is None:
            self._bugs.applied(part.partition for part in group)
        effects.committed()
        crash_at("after_replies")
        self._observer.applied(group, _now() - began)

    def _advance(self, group: Iterable[Slice]) -> None:
        for part in group:
            self._standing.ownership = self._standing.ownership.advanced(part.partition, part.claim.epoch, part.target)

    def _settle(self, group: Sequence[Slice], stale: _Stale) -> Sequence[Slice]:
        """Take in what the locked rows said, and return what is still to be applied."""
        if self._in_doubt is not None and self._in_doubt.is_settled_by(stale.rows):
            self._in_doubt.effects.committed()
        self._in_doubt = None
        batch: dict[Partition, Sequence[Record]] = {}
        claims: dict[Partition, Claim] = {}
        for part in group:
            partition = part.partition
            match stale.verdicts[partition]:
                case Verdict.FENCED:
                    self._fence(part)
                case Verdict.APPLIED:
                    row = stale.rows[partition]
                    self._standing.ownership = self._standing.ownership.advanced(partition, row.epoch, row.next_offset)
                    batch[partition], claims[partition] = part.records, row
                case Verdict.OURS:
                    batch[partition], claims[partition] = part.records, part.claim
        return ownership.select_fresh(batch, claims).slices

    def _fence(self, part: Slice) -> None:
        before = self._standing.ownership
        self._standing.ownership = before.fenced(part.partition, part.claim.epoch, _now())
        current = self._standing.ownership is not before
        if current:
            self._source.pause([part.partition])
        self._observer.fenced(part.partition, part.claim, current=current)

    async def _condemn(self, part: Slice, error: Exception) -> bool:
        """Decide on a record that fails alone; say whether it is done with."""
        partition, offset = part.partition, part.records[0].offset
        is_bug = not isinstance(error, Invalid)
        if is_bug:
            tries = self._bugs.tried(partition, offset)
            self._observer.bug(partition, offset, error, tries)
            if tries < self._settings.bug_tries:
                await asyncio.sleep(0.05 * 2**tries)
                return False
            in_a_row = self._bugs.in_a_row(partition)
            if in_a_row >= self._settings.bugs_in_a_row_max:
                self._stop_partition(partition, f"{in_a_row + 1} records in a row failed by a bug, last {error!r}")
                return True
        try:
            await self._attempt([part], condemned=error)
        except _Stale as stale:
            return not self._settle([part], stale)
        if is_bug:
            self._bugs.condemned(partition, offset)
        return True

    def _stop_partition(self, partition: Partition, why: str) -> None:
        self._standing.ownership = self._standing.ownership.stopped(partition, why)
        if partition in self._standing.ownership.holdings:
            self._source.pause([partition])
        self._observer.stopped(partition, why)

    def _drop_stopped(self, pending: deque[Sequence[Slice]]) -> None:
        if not self._standing.ownership.paused:
            return
        kept = [[part for part in group if part.partition not in self._standing.ownership.paused] for group in pending]
        pending.clear()
        pending.extend(group for group in kept if group)


def _now() -> float:
    return asyncio.get_running_loop().time()
