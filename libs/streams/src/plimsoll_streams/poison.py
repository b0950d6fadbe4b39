"""How many records have failed by a bug: the tries of each, and how many in a row of each partition."""

from collections import Counter
from collections.abc import Iterable

from plimsoll_streams.records import Partition


class Bugs:
    """Counts within one process; a new one, which may have the mended code, begins at nothing."""

    def __init__(self) -> None:
        self._tries: Counter[tuple[Partition, int]] = Counter()
        self._in_a_row: Counter[Partition] = Counter()

    def tried(self, partition: Partition, offset: int) -> int:
        """Count a failed try of a record by itself, and return how many it had."""
        self._tries[partition, offset] += 1
        return self._tries[partition, offset]

    def in_a_row(self, partition: Partition) -> int:
        """Return how many records were condemned since the last good one."""
        return self._in_a_row[partition]

    def condemned(self, partition: Partition, offset: int) -> None:
        """A record was set aside for a bug."""
        del self._tries[partition, offset]
        self._in_a_row[partition] += 1

    def applied(self, partitions: Iterable[Partition]) -> None:
        """Records of these partitions were applied."""
        for partition in partitions:
            del self._in_a_row[partition]
