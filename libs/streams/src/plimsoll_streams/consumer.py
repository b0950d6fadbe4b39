"""The one loop that consumes: claim, poll, decode, one transaction, replies after the commit.

It is written against a source of records, a ledger and a processor, and takes its time from the running event
loop, so that the simulation drives this very code. Nothing but it and its applier claims, seeks or resumes.
"""

import asyncio
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

from plimsoll_streams import ownership
from plimsoll_streams.ahead import ReadAhead
from plimsoll_streams.applier import Applier, Standing
from plimsoll_streams.crashpoints import crash_at
from plimsoll_streams.failures import Backoff, is_transient
from plimsoll_streams.ownership import Ownership, Phase, Selection
from plimsoll_streams.ports import Ledger, Observer, Processor, Session, Settings, Source
from plimsoll_streams.records import Partition, Record

S = TypeVar("S", bound=Session)

IDLE_STOP_SECONDS = 1.0
"""How long stopping waits for a loop that has no batch in hand."""


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
        self._observer = observer
        self._settings = settings or Settings()
        self._first_topics = first_topics
        self._backoff = Backoff(jitter or random.Random())
        self._standing = Standing()
        self._ahead = ReadAhead(source, self._settings, processor.foresee)
        self._applier = Applier(
            standing=self._standing,
            source=self._ahead,
            ledger=ledger,
            processor=processor,
            observer=observer,
            settings=self._settings,
        )
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = asyncio.Event()
        self._gaps: dict[Partition, tuple[int, int]] = {}
        self._reported = 0.0

    @property
    def ownership(self) -> Ownership:
        """How each partition of the present assignment stands."""
        return self._standing.ownership

    @ownership.setter
    def ownership(self, after: Ownership) -> None:
        self._standing.ownership = after

    # The group's side. It runs beside the loop, so it only ever replaces the ownership.

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Take a new assignment. Nothing may be awaited here: records would be delivered before the claim's seek."""
        # First, since aiokafka logs and ignores what a listener raises; unpaused records are dropped until the claim.
        self.ownership = self.ownership.assigned(partitions)
        self._ahead.pause(partitions)

    async def revoked(self) -> None:
        """Give everything back, after the batch in flight where it ends in time."""
        self.ownership = self.ownership.revoked()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.revoke_seconds):
                await self._idle.wait()

    # The loop's side.

    async def run(self) -> None:
        """Consume until `stop`; only a failure of the loop itself is raised."""
        reading = asyncio.create_task(self._ahead.run(), name="read-ahead")
        try:
            while not self._stopping.is_set():
                try:
                    await self._round()
                    self._backoff.reset()
                    self._observer.going_on()
                except Exception as error:
                    if not is_transient(error):
                        raise
                    await self._wait(error)
        finally:
            reading.cancel()

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
        try:
            batch = await self._ahead.take(self._first)
        except Exception:
            # What other polls brought meanwhile is read again.
            self._applier.rewind(self.ownership.claims())
            raise
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
                self._ahead.seek(partition, holding.claim.next_offset)
                self._source.resume([partition])
                self._observer.claimed(partition, holding.claim)
            elif holding.phase is Phase.REFUSED:
                self._observer.refused(partition, holding.why)

    def _first(self) -> list[Partition]:
        """Name the owned partitions whose records are decided first.

        A flood of facts leaves them no room; whatever waits there goes into the very batch that the facts fill, so
        that no verdict is delayed by more than the batch before it.
        """
        return [partition for partition in self.ownership.claims() if partition.topic in self._first_topics]

    async def _handle(self, batch: Mapping[Partition, Sequence[Record]]) -> None:
        selection = self._believe(ownership.select_fresh(batch, self.ownership.claims()))
        self._observer.passed_over(selection)
        if not selection.slices:
            return
        self._idle.clear()
        try:
            await self._applier.apply(selection.slices)
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
                self._ahead.seek(part.partition, part.claim.next_offset)
        return replace(
            selection,
            slices=tuple(part for part in selection.slices if part.partition not in doubtful),
            gaps=tuple(partition for partition in selection.gaps if partition not in doubtful),
        )

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
