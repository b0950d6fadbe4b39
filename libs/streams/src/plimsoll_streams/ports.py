"""What does the loop need of its surroundings: the seams at which the simulation puts its own world."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from plimsoll_streams.ownership import Claim, Selection, Slice
from plimsoll_streams.records import Partition, Record


class Seeker(Protocol):
    """Where one may say what is read next."""

    def pause(self, partitions: Collection[Partition]) -> None:
        """Fetch no more of these."""

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from `offset`; what was fetched before is dropped."""


class Source(Seeker, Protocol):
    """Where records come from: what the loop needs of a group consumer."""

    def resume(self, partitions: Collection[Partition]) -> None:
        """Fetch these again."""

    async def first_offsets(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the first offset of each log."""

    async def end_offsets(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the offset after each log's last record."""

    async def poll(
        self, partitions: Collection[Partition], *, seconds: float, limit: int
    ) -> Mapping[Partition, Sequence[Record]]:
        """Return fetched records, of these partitions or of any, waiting up to `seconds` for the first."""

    def commit_soon(self, offsets: Mapping[Partition, int]) -> None:
        """Tell the group how far we are, for lag tools only."""


class Session(Protocol):
    """The offset rows inside one open transaction."""

    async def claim(self, first_offsets: Mapping[Partition, int]) -> Mapping[Partition, Claim]:
        """Raise the epoch of each row that nobody has locked, and return those rows."""

    async def lock(self, expected: Mapping[Partition, Claim]) -> Mapping[Partition, Claim]:
        """Lock the rows and return them, whether or not they are as expected."""

    async def advance(self, targets: Mapping[Partition, int]) -> None:
        """Set each row's next offset, in the transaction's last act."""


S_co = TypeVar("S_co", bound=Session, covariant=True)
S_contra = TypeVar("S_contra", bound=Session, contravariant=True)


class Ledger(Protocol[S_co]):
    """Transactions that hold the offset rows and the state alike."""

    def transaction(self) -> AbstractAsyncContextManager[S_co]:
        """Commit at the end of the block, roll back if it raises."""


class Effects(Protocol):
    """What a transaction has to do once it is durable."""

    def committed(self) -> None:
        """Send replies, count, refresh caches; must not raise."""


class Processor(Protocol[S_contra]):
    """What is done with records."""

    def foresee(self, records: Iterable[Record]) -> None:
        """Do what needs no transaction, such as decoding, while another batch is with the database."""

    async def prepare(self, slices: Sequence[Slice]) -> None:
        """Decode, and do whatever waiting is better done while no row is locked."""

    async def apply(self, session: S_contra, slices: Sequence[Slice], condemned: Exception | None) -> Effects:
        """Apply the records to the state inside the transaction.

        With `condemned` there is exactly one record, and it is set aside for that error instead of handled.
        """


class Observer(Protocol):
    """Who counts and tells; called synchronously, must not raise."""

    def claimed(self, partition: Partition, claim: Claim) -> None: ...  # noqa: D102 - the names say it
    def refused(self, partition: Partition, why: str) -> None: ...  # noqa: D102
    def fenced(self, partition: Partition, claim: Claim, *, current: bool) -> None: ...  # noqa: D102
    def stopped(self, partition: Partition, why: str) -> None: ...  # noqa: D102
    def applied(self, slices: Sequence[Slice], seconds: float) -> None: ...  # noqa: D102
    def passed_over(self, selection: Selection) -> None: ...  # noqa: D102
    def bug(self, partition: Partition, offset: int, error: Exception, tries: int) -> None: ...  # noqa: D102
    def retrying(self, error: Exception, wait: float) -> None: ...  # noqa: D102
    def going_on(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds of the loop; times in seconds."""

    records_max: int = 500
    """Most records of one poll."""
    first_records_max: int = 500
    """Most records of the topics that are decided first, on top of what the poll brought."""
    poll_seconds: float = 0.1
    attempt_seconds: float = 30.0
    revoke_seconds: float = 5.0
    """How long a rebalance waits for the batch in flight; correctness does not rest on it."""
    report_seconds: float = 1.0
    bug_tries: int = 3
    bugs_in_a_row_max: int = 10
