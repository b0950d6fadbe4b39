"""Who closes holds and wakes waiters of tenants that ask nothing: a task that looks every second."""

import asyncio
from collections.abc import Callable, Sequence

import asyncpg
import structlog

from plimsoll_quota_enforcer import metrics
from plimsoll_quota_enforcer.domain.decide import expire
from plimsoll_quota_enforcer.domain.model import TENANT
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.limits import forget_expired, forget_expired_defaults
from plimsoll_quota_enforcer.storage.once import KEPT_HOURS
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.unit import open_unit
from plimsoll_streams import outbox
from plimsoll_streams.failures import Backoff, is_transient
from plimsoll_streams.records import OutboxMessage, Reply

BITE = 100
"""Tenants of one transaction: small, so that their requests wait for it no longer than for a batch."""

PARTITIONS_AHEAD_DAYS = 14
UPKEEP_SECONDS = 3600.0
FORGET_BITE = 5_000

log = structlog.get_logger("plimsoll.quota")


class Sweep:
    """Expires holds and limits, and tells crossings of changed defaults; every replica may run it at once."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        cache: StateCache,
        policy: Policy,
        *,
        seconds: float,
        retention_days: int,
        wake_relay: Callable[[], None],
        send: Callable[[Sequence[Reply]], None],
        instance: str,
        backoff: Backoff,
    ) -> None:
        """Take what it works with; ``run`` does the work."""
        self._pool = pool
        self._cache = cache
        self._policy = policy
        self._seconds = seconds
        self._retention_days = retention_days
        self._wake_relay = wake_relay
        self._send = send
        self._instance = instance
        self._backoff = backoff

    async def run(self) -> None:
        """Sweep for ever; a database that is away is waited for, anything else is logged and tried again."""
        upkeep_at = 0.0
        while True:
            wait = self._seconds
            try:
                if (now := asyncio.get_running_loop().time()) >= upkeep_at:
                    await self.upkeep()
                    upkeep_at = now + UPKEEP_SECONDS
                if await self.sweep() == BITE:
                    wait = 0.0
                self._backoff.reset()
            except Exception as error:  # noqa: BLE001 - a sweep never ends the process; the next one tries again
                wait = self._backoff.next()
                (log.debug if is_transient(error) else log.error)("sweep failed", error=repr(error))
            await asyncio.sleep(wait)

    async def sweep(self) -> int:
        """Do one bite, and return how many tenants were due."""
        messages: list[OutboxMessage] = []
        replies: list[Reply] = []
        expired = 0
        async with self._pool.acquire() as connection:
            async with connection.transaction():
                if await connection.fetchval(
                    "SELECT EXISTS (SELECT FROM defaults WHERE expires_at <= clock_timestamp())"
                ):
                    told = await forget_expired_defaults(connection)
                    await outbox.insert(connection, told)
                    expired = len(told)
            metrics.limit_changes.inc(expired, kind="expired")
            due = [row["tenant"] for row in await connection.fetch(QUERIES["tenants_to_sweep"], BITE)]
            if not due:
                return 0
            async with connection.transaction():
                unit = await open_unit(connection, due, self._cache, self._policy, idle=True, instance=self._instance)
                messages.extend(await forget_expired(connection, unit))
                expired = len(messages)
                for tenant in unit.tenants:
                    state = unit.state(tenant)
                    unit.absorb(expire(state, unit.now, self._policy, (TENANT,), unit.nodes, wake=True))
                    unit.judged_by_present_defaults(tenant)
                await unit.write(messages.append, replies.append)
                await connection.execute(QUERIES["note_waiters_tried"], list(unit.tenants), unit.now)
                await outbox.insert(connection, messages)
        unit.committed()
        metrics.limit_changes.inc(expired, kind="expired")
        metrics.swept.inc(len(due))
        if messages:
            self._wake_relay()
        if replies:
            self._send(replies)
        return len(due)

    async def upkeep(self) -> None:
        """Make the partitions of days to come, drop those past keeping, and forget holds and keys long done with."""
        await self._pool.fetchval("SELECT maintain_partitions($1, $2)", PARTITIONS_AHEAD_DAYS, self._retention_days)
        await self._pool.execute(QUERIES["forget_closed_holds"], self._retention_days, FORGET_BITE)
        await self._pool.execute(QUERIES["forget_keys"], KEPT_HOURS)
