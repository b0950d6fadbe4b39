"""What was answered to a change that may be sent twice: kept under its key, in the transaction of the change."""

from dataclasses import dataclass
from datetime import datetime

from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_streams.transactions import Connection

KEPT_HOURS = 24
"""How long a repeat is recognised."""


@dataclass(frozen=True, slots=True)
class Once:
    """A request that its sender may repeat: whose it is, the key it came with, and what it asks."""

    principal: str
    """Empty where authentication is off."""
    key: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the first time. ``reply`` is None where that is not kept here, or is only now being made."""

    is_first: bool
    fingerprint: bytes
    reply: str | None
    taken_at: datetime


async def take(connection: Connection, once: Once) -> Known:
    """Take a key inside the caller's transaction; waits for another that has it and is not through."""
    while True:
        first = await connection.fetchrow(QUERIES["take_key"], once.principal, once.key, once.fingerprint)
        if first is not None:
            return Known(True, once.fingerprint, None, first["taken_at"])  # noqa: FBT003
        row = await connection.fetchrow(QUERIES["read_key"], once.principal, once.key)
        if row is not None:  # else it was forgotten in between
            return Known(False, row["fingerprint"], row["reply"], row["taken_at"])  # noqa: FBT003


async def keep(connection: Connection, once: Once, reply: str) -> None:
    """Keep what is answered."""
    await connection.execute(QUERIES["keep_reply"], once.principal, once.key, reply)
