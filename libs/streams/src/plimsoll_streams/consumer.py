"""The one loop that consumes: claim, poll, decode, one transaction, replies after the commit.

It is written against a source of records, a ledger and a processor, and takes its time from the running event
loop, so that the simulation drives this very code. Nothing else claims, seeks, resumes or applies.
"""

import asyncio
import random
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from plimsoll_streams import ownership
from plimsoll_streams.crashpoints import crash_at
from plimsoll_streams.failures import Backoff, Invalid, is_transient
from plimsoll_streams.ownership import Claim, Ownership, Phase, Selection, Slice, Verdict
from plimsoll_streams.poison import Bugs
from plimsoll_streams.ports import Effects, Ledger, Observer, Processor, Session, Settings, Source
from plimsoll_streams.records import Partition, Record

S = TypeVar("S", bound=Session)

IDLE_STOP_SECONDS = 1.0
"""How long stopping waits for a loop that has no batch in hand."""


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


class Consumer(Generic[S]):
    """One member's loop. `assigned` and `revoked` are called by the group, `run` is the one task."""

    def __init__(
        self,
        *,
        source: Source,
        ledger: Ledger[S],
        processor: Processor[S],
        observer: Observer,
        settings: Settings | None = None,
        first_topics: frozenset[str] = frozenset(),
        jitter: random.Random | None = None,
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._processor = processor
        self._observer = observer
        self._settings = settings or Settings()
        self._first_topics = first_topics
        self._backoff = Backoff(jitter or random.Random())
        self.ownership = Ownership()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = asyncio.Event()
        self._in_doubt: _InDoubt | None = None
        self._bugs = Bugs()
        self._gaps: dict[Partition, tuple[int, int]] = {}
        self._reported = 0.0

    # The group's side. It runs beside the loop, so it only ever replaces the ownership.

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Take a new assignment. Nothing may be awaited here: records would be delivered before the claim's seek."""
        # First, since aiokafka logs and ignores what a listener raises; unpaused records are dropped until the claim.
        self.ownership = self.ownership.assigned(partitions)
        self._source.pause(partitions)

    async def revoked(self) -> None:
        """Give everything back, after the batch in flight where it ends in time."""
        self.ownership = self.ownership.revoked()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.revoke_seconds):
                await self._idle.wait()

    # The loop's side.

    async def run(self) -> None:
        """Consume until `stop`; only a failure of the loop itself is raised."""
        while not self._stopping.is_set():
            try:
                await self._round()
                self._backoff.reset()
                self._observer.going_on()
            except Exception as error:
                if not is_transient(error):
                    raise
                await self._wait(error)

    async def stop(self, task: "asyncio.Task[None]", *, seconds: float) -> None:
        """End `run`, which is `task`, after the batch in flight, bounded."""
        self._stopping.set()
        # Without a batch it may be waiting for a rebalance to end, which can take as long as an outage.
        for patience in (IDLE_STOP_SECONDS, seconds):
            await asyncio.wait([task], timeout=patience)
            if task.done() or self._idle.is_set():
                break
        task.cancel()
        await asyncio.wait([task])

    async def _round(self) -> None:
        claim_error: Exception | None = None
        try:
            await self._claim_due()
        except Exception as error:
            if not is_transient(error):
                raise
            claim_error = error
        # Polled also while claims fail: what is owned goes on, and the group sees a live member.
        batch = await self._poll()
        if batch:
            await self._handle(batch)
        self._report()
        if claim_error is not None:
            raise claim_error

    async def _wait(self, error: Exception) -> None:
        delay = self._backoff.next()
        self._observer.retrying(error, delay)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._stopping.wait()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _claim_due(self) -> None:
        due = self.ownership.claimable(self._now())
        if not due:
            return
        generation = self.ownership.generation
        self.ownership = self.ownership.claiming(due)
        try:
            async with asyncio.timeout(self._settings.attempt_seconds):
                first = await self._source.first_offsets(due)
                async with self._ledger.transaction() as session:
                    claims = await session.claim(first)
                crash_at("after_claim")
                end = await self._source.end_offsets(due)
        except BaseException:
            self.ownership = self.ownership.claim_failed(generation, due)
            raise
        log = {partition: (first[partition], end[partition]) for partition in due}
        self.ownership = self.ownership.claimed(generation, claims, log, self._now())
        self._begin_reading(due, generation)

    def _begin_reading(self, due: Iterable[Partition], generation: int) -> None:
        if not self.ownership.is_current(generation):
            return
        for partition in due:
            holding = self.ownership.holdings[partition]
            if holding.phase is Phase.OWNED and holding.claim is not None:
                self._source.seek(partition, holding.claim.next_offset)
                self._source.resume([partition])
                self._observer.claimed(partition, holding.claim)
            elif holding.phase is Phase.REFUSED:
                self._observer.refused(partition, holding.why)

    async def _poll(self) -> Mapping[Partition, Sequence[Record]]:
        settings, began = self._settings, self._now()
        batch = await self._source.poll((), seconds=settings.poll_seconds, limit=settings.records_max)
        if batch and self._now() - began < settings.top_up_seconds:
            batch = await self._top_up(batch)
        urgent = [partition for partition in self.ownership.claims() if partition.topic in self._first_topics]
        if not batch or not urgent or all(partition.topic in self._first_topics for partition in batch):
            return batch
        # Facts came: whatever waits to be decided first goes into this very batch, so that a flood of facts
        # delays no verdict by more than the batch before it.
        return _joined(batch, await self._source.poll(urgent, seconds=0, limit=settings.first_records_max))

    async def _top_up(self, batch: Mapping[Partition, Sequence[Record]]) -> Mapping[Partition, Sequence[Record]]:
        """Add what has come to the broker during the last batch.

        What a poll finds waiting was fetched when the last batch began, and aiokafka fetches nothing more before
        it is taken: without a second look, each record would wait for one batch more than it has to.
        """
        room = self._settings.records_max - sum(map(len, batch.values()))
        if room <= 0:
            return batch
        return _joined(batch, await self._source.poll((), seconds=self._settings.top_up_seconds, limit=room))

    async def _handle(self, batch: Mapping[Partition, Sequence[Record]]) -> None:
        selection = self._believe(ownership.select_fresh(batch, self.ownership.claims()))
        self._observer.passed_over(selection)
        if not selection.slices:
            return
        generation = self.ownership.generation
        pending: deque[Sequence[Slice]] = deque([selection.slices])
        self._idle.clear()
        try:
            await self._processor.prepare(selection.slices)
            while pending and self.ownership.is_current(generation):
                await self._step(pending)
        except Exception:
            # Read again what was not applied; the next try may then have more or fewer records.
            self._rewind(generation, (part for group in pending for part in group))
            raise
        finally:
            self._idle.set()

    def _believe(self, selection: Selection) -> Selection:
        """Read again where the next record seems missing, and believe it only the second time.

        Compaction and transactions leave such gaps; so would a consumer that lost its place, silently.
        """
        doubtful: set[Partition] = set()
        for part in selection.slices:
            gap = (part.claim.next_offset, part.records[0].offset)
            if part.partition not in selection.gaps:
                self._gaps.pop(part.partition, None)
            elif self._gaps.get(part.partition) != gap:
                self._gaps[part.partition] = gap
                doubtful.add(part.partition)
                self._source.seek(part.partition, part.claim.next_offset)
        return replace(
            selection,
            slices=tuple(part for part in selection.slices if part.partition not in doubtful),
            gaps=tuple(partition for partition in selection.gaps if partition not in doubtful),
        )

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
        began = self._now()
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
        self._observer.applied(group, self._now() - began)

    def _advance(self, group: Iterable[Slice]) -> None:
        for part in group:
            self.ownership = self.ownership.advanced(part.partition, part.claim.epoch, part.target)

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
                    self.ownership = self.ownership.advanced(partition, row.epoch, row.next_offset)
                    batch[partition], claims[partition] = part.records, row
                case Verdict.OURS:
                    batch[partition], claims[partition] = part.records, part.claim
        return ownership.select_fresh(batch, claims).slices

    def _fence(self, part: Slice) -> None:
        before = self.ownership
        self.ownership = before.fenced(part.partition, part.claim.epoch, self._now())
        current = self.ownership is not before
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
        self.ownership = self.ownership.stopped(partition, why)
        if partition in self.ownership.holdings:
            self._source.pause([partition])
        self._observer.stopped(partition, why)

    def _drop_stopped(self, pending: deque[Sequence[Slice]]) -> None:
        if not self.ownership.paused:
            return
        kept = [[part for part in group if part.partition not in self.ownership.paused] for group in pending]
        pending.clear()
        pending.extend(group for group in kept if group)

    def _rewind(self, generation: int, parts: Iterable[Slice]) -> None:
        if not self.ownership.is_current(generation):
            return
        claims = self.ownership.claims()
        for partition in {part.partition for part in parts}:
            if partition in claims:
                self._source.seek(partition, claims[partition].next_offset)

    def _report(self) -> None:
        now = self._now()
        if now - self._reported >= self._settings.report_seconds:
            self._reported = now
            offsets = {partition: claim.next_offset for partition, claim in self.ownership.claims().items()}
            if offsets:
                self._source.commit_soon(offsets)

    def status(self) -> Mapping[str, Any]:
        """Return the standing of each partition, for people."""
        return {
            f"{partition.topic}/{partition.number}": {
                "phase": holding.phase,
                "next_offset": holding.claim.next_offset if holding.claim else None,
                "epoch": holding.claim.epoch if holding.claim else None,
                "why": holding.why,
            }
            for partition, holding in sorted(self.ownership.holdings.items())
        }


def _joined(
    batch: Mapping[Partition, Sequence[Record]], more: Mapping[Partition, Sequence[Record]]
) -> Mapping[Partition, Sequence[Record]]:
    return {**batch, **{partition: [*batch.get(partition, ()), *more[partition]] for partition in more}}
