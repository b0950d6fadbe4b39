"""How is the next batch there when the last one ends: a task takes from the source while one is being applied.

aiokafka fetches nothing more from a broker while one of its partitions has records that nobody took. Taken at
once they make room for the next fetch, and each batch begins with everything that came during the last.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from plimsoll_streams.ports import Settings, Source
from plimsoll_streams.records import Partition, Record

Records = Mapping[Partition, Sequence[Record]]

BATCH_BYTES = 1024 * 1024
"""Of a batch, shared by its partitions, of which each gets a record at least: a flood of records that take long to
decode, such as compose files, delays those of other partitions by little."""


class ReadAhead:
    """Records taken and not applied yet. Seek and pause here, so that what they are about is forgotten, too."""

    def __init__(self, source: Source, settings: Settings, foresee: Callable[[Sequence[Record]], None]) -> None:
        self._source = source
        self._foresee = foresee
        self._settings = settings
        self._held: dict[Partition, Sequence[Record]] = {}
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def run(self) -> None:
        """Take until cancelled, while there is room and no error that nobody has seen yet."""
        while True:
            await self._room.wait()
            try:
                limit = self._settings.records_max - self._count()
                self._keep(await self._source.poll((), seconds=self._settings.poll_seconds, limit=limit))
            except Exception as error:  # noqa: BLE001 - it is raised where records are asked for
                self._error = error
                self._signal()

    async def take(self, urgent: Callable[[], Collection[Partition]]) -> Records:
        """Return what is there, or what comes within the time of a poll.

        Args:
            urgent: names partitions that are looked at once more where others left them no room.
        """
        try:
            async with asyncio.timeout(self._settings.poll_seconds):
                await self._news.wait()
        except TimeoutError:
            return {}
        try:
            if self._error is not None:
                raise self._error
            if not self._room.is_set() and (partitions := urgent()):
                left = self._settings.first_records_max - sum(len(self._held.get(each, ())) for each in partitions)
                if left > 0:
                    self._keep(await self._source.poll(partitions, seconds=0, limit=left))
            taken, self._held = _cut(self._held)
        finally:
            self._error = None
            self._signal()
        return taken

    def pause(self, partitions: Collection[Partition]) -> None:
        """Deliver no more of these."""
        self._forget(partitions)
        self._source.pause(partitions)

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from `offset`."""
        self._forget([partition])
        self._source.seek(partition, offset)

    def _forget(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            self._held.pop(partition, None)
        self._signal()

    def _keep(self, found: Records) -> None:
        for partition, records in found.items():
            self._held[partition] = [*self._held.get(partition, ()), *records]
            self._foresee(records)
        self._signal()

    def _count(self) -> int:
        return sum(map(len, self._held.values()))

    def _signal(self) -> None:
        _set(self._news, bool(self._held) or self._error is not None)
        _set(self._room, self._error is None and self._count() < self._settings.records_max)


def _cut(held: dict[Partition, Sequence[Record]]) -> tuple[Records, dict[Partition, Sequence[Record]]]:
    """Part what is held into one batch and what is left for the next."""
    if sum(len(record.value or b"") for records in held.values() for record in records) <= BATCH_BYTES:
        return held, {}
    taken: dict[Partition, Sequence[Record]] = {}
    left: dict[Partition, Sequence[Record]] = {}
    for partition, records in held.items():
        end, size = 0, 0
        while end < len(records) and size * len(held) < BATCH_BYTES:
            size += len(records[end].value or b"")
            end += 1
        taken[partition] = records[:end]
        if end < len(records):
            left[partition] = records[end:]
    return taken, left


def _set(event: asyncio.Event, on: bool) -> None:
    if on:
        event.set()
    else:
        event.clear()
