"""Is this process getting on: lag, no known outage and no progress for five minutes end it, with every task's stack."""

import asyncio
import io
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog
from aiokafka.errors import KafkaError

from plimsoll_streams import metrics
from plimsoll_streams.ownership import Claim, Ownership, Phase
from plimsoll_streams.ports import Source
from plimsoll_streams.records import Partition

STALL_SECONDS = 300.0
TICK_SECONDS = 1.0
PROBE_SECONDS = 5.0
"""How often the ends of the logs are read, and how long the broker may take to tell them."""
EXIT_STALLED = 70

log = structlog.get_logger("plimsoll.streams")


@dataclass(frozen=True, slots=True)
class Health:
    """What is known about progress; times on one monotonic clock, in seconds."""

    progressed: float
    """When the loop last committed, had nothing to do, or knew why it could not go on."""
    lag: int = 0

    def seen(self, now: float, *, lag: int, outage: bool, committed: bool) -> "Health":
        """Take in one observation."""
        if committed or outage or lag == 0:
            return replace(self, progressed=now, lag=lag)
        return replace(self, lag=lag)

    def is_stalled(self, now: float) -> bool:
        """Say whether the process should end."""
        return self.lag > 0 and now - self.progressed >= STALL_SECONDS


class Watchdog:
    """Measures lag and the event loop's delay, and ends a process that is stuck."""

    def __init__(
        self,
        *,
        source: Source,
        ownership: Callable[[], Ownership],
        is_database_away: Callable[[], bool],
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._source = source
        self._ownership = ownership
        self._standing: Counter[tuple[str, Phase]] = Counter()
        self._is_database_away = is_database_away
        self._end = end
        self._health = Health(time.monotonic())
        self._committed = False
        self._applied: dict[str, float] = {}
        self.broker_away = False

    @property
    def stalled_seconds(self) -> float:
        """Since when the loop has not got on, though it should have."""
        return time.monotonic() - self._health.progressed if self._health.lag else 0.0

    def committed(self, produced_at: Mapping[str, float]) -> None:
        """A batch was applied; by topic, when (Unix seconds) its last record was produced."""
        self._committed = True
        self._applied.update(produced_at)

    async def run(self) -> None:
        """Watch until cancelled."""
        worst, probed = 0.0, 0.0
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)
            worst = max(worst, time.monotonic() - before - TICK_SECONDS)
            if before - probed >= PROBE_SECONDS:
                probed = before
                metrics.loop_lag.set(worst)
                worst = 0.0
                await self._probe()

    async def _probe(self) -> None:
        ownership = self._ownership()
        claims = ownership.claims()
        self._count_partitions(ownership)
        lag = await self._lag(claims)
        now = time.monotonic()
        outage = self.broker_away or self._is_database_away()
        self._health = self._health.seen(now, lag=lag, outage=outage, committed=self._committed)
        self._committed = False
        metrics.outage.set(outage)
        metrics.progress_seconds.set(now - self._health.progressed)
        if self._health.is_stalled(now):
            log.error("no progress, ending", lag=lag, seconds=STALL_SECONDS, stacks=stacks())
            self._end(EXIT_STALLED)

    def _count_partitions(self, ownership: Ownership) -> None:
        counted = Counter(
            (metrics.label(partition.topic), holding.phase) for partition, holding in ownership.holdings.items()
        )
        for topic, phase in counted.keys() | self._standing.keys():
            metrics.partitions.set(counted[topic, phase], topic=topic, phase=phase)
        self._standing = counted

    async def _lag(self, claims: Mapping[Partition, Claim]) -> int:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                ends = await self._source.end_offsets(list(claims)) if claims else {}
            self.broker_away = False
        except (KafkaError, TimeoutError, OSError):
            self.broker_away = True
            return self._health.lag
        by_topic: dict[str, int] = {}
        for partition, claim in claims.items():
            behind = max(0, ends[partition] - claim.next_offset)
            by_topic[partition.topic] = by_topic.get(partition.topic, 0) + behind
        for topic, lag in by_topic.items():
            produced = self._applied.get(topic)
            age = max(0.0, time.time() - produced) if lag and produced else 0.0
            metrics.lag_records.set(lag, topic=metrics.label(topic))
            metrics.lag_seconds.set(age, topic=metrics.label(topic))
        return sum(by_topic.values())


def stacks() -> str:
    """Return the stack of every task."""
    out = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(limit=12, file=out)
    return out.getvalue()
