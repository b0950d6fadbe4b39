"""What does the loop tell the outside: figures for every batch, a log line only for what is rare."""

import time
from collections.abc import Callable, Mapping, Sequence

import asyncpg
import structlog
from aiokafka.errors import KafkaError

from plimsoll_streams import metrics
from plimsoll_streams.failures import Transient
from plimsoll_streams.ownership import Claim, Selection, Slice
from plimsoll_streams.records import Partition

REPEAT_SECONDS = 10.0
"""How often the same trouble is told again while it lasts."""

log = structlog.get_logger("plimsoll.streams")


class Trouble:
    """Tells of one kind of trouble when it begins, every 10 s while it lasts, and when it is over."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._told = -REPEAT_SECONDS
        self._held_back = 0
        self._lasts = False

    def again(self, error: BaseException, **more: object) -> None:
        """It happened (again)."""
        self._lasts = True
        now = time.monotonic()
        if now - self._told < REPEAT_SECONDS:
            self._held_back += 1
            return
        self._told = now
        log.warning("waiting", who=self._what, error=repr(error), held_back=self._held_back, **more)

    def over(self) -> None:
        """It works."""
        if self._lasts:
            log.info("going on", who=self._what, held_back=self._held_back)
            self._lasts, self._held_back = False, 0


class Reporter:
    """Counts, logs, and remembers whether the database is known to be away."""

    def __init__(self, on_commit: Callable[[Mapping[str, float]], None]) -> None:
        self._on_commit = on_commit
        self._trouble = Trouble("consumer")
        self.database_away = False

    def claimed(self, partition: Partition, claim: Claim) -> None:
        """A partition is ours from now on."""
        metrics.claims.inc(topic=metrics.label(partition.topic))
        log.debug("claimed", partition=_name(partition), next_offset=claim.next_offset, epoch=claim.epoch)

    def refused(self, partition: Partition, why: str) -> None:
        """A partition cannot be read on without losing records."""
        log.error("partition refused: an operator has to decide", partition=_name(partition), why=why)

    def fenced(self, partition: Partition, claim: Claim, *, current: bool) -> None:
        """A batch came too late: the partition was claimed by another member."""
        metrics.fences.inc(topic=metrics.label(partition.topic))
        log.warning("fenced", partition=_name(partition), epoch=claim.epoch, current=current)

    def stopped(self, partition: Partition, why: str) -> None:
        """A partition is not read on until this process starts again."""
        log.error("partition paused: too many bugs in a row", partition=_name(partition), why=why)

    def applied(self, slices: Sequence[Slice], seconds: float) -> None:
        """A transaction is durable and its replies are handed over."""
        for part in slices:
            metrics.records.inc(len(part.records), topic=metrics.label(part.partition.topic))
        metrics.batches.inc()
        metrics.batch_seconds.observe(seconds)
        self._on_commit({part.partition.topic: part.records[-1].timestamp_ms / 1000 for part in slices})

    def passed_over(self, selection: Selection) -> None:
        """Some records of a poll were not for us to apply."""
        metrics.replayed.inc(selection.replayed)
        for partition in selection.gaps:
            metrics.gaps.inc(topic=metrics.label(partition.topic))

    def bug(self, partition: Partition, offset: int, error: Exception, tries: int) -> None:
        """A record failed by itself."""
        metrics.bugs.inc(topic=metrics.label(partition.topic))
        log.error("bug", partition=_name(partition), offset=offset, tries=tries, exc_info=error)

    def retrying(self, error: Exception, wait: float) -> None:
        """Batch or claim will be tried again after `wait` seconds."""
        cause = _cause(error)
        metrics.retries.inc(cause=cause)
        self.database_away = self.database_away or cause == "database"
        self._trouble.again(error, cause=cause, seconds=round(wait, 2))

    def going_on(self) -> None:
        """A round went without trouble."""
        self._trouble.over()
        self.database_away = False


def _cause(error: Exception) -> str:
    if isinstance(error, KafkaError):
        return "broker"
    # What is left of the network is the database's: the broker's errors come as KafkaError.
    if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | OSError | Transient):
        return "database"
    return "other"


def _name(partition: Partition) -> str:
    return f"{partition.topic}/{partition.number}"
