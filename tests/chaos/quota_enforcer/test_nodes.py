"""Many tenants on a few nodes, everything at once from two processes, one of them killed: no deadlock, right sums."""

import asyncio
import random
import time

from plimsoll_contracts.topics import NODE_REPORTS, USAGE_DELTAS
from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import asking, unique

SECONDS = 20.0
TENANTS, NODES = 24, 6
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


class Load:
    """Requests, deltas, reports and limits of the same tenants and nodes, for as long as it is told."""

    def __init__(self, quota: Platform, seed: int) -> None:
        """Name the tenants, and nodes of one pool."""
        self.quota, self.chance = quota, random.Random(seed)
        self.tenants = [unique() for _ in range(TENANTS)]
        self.pool, self.nodes = unique("p"), [unique("n") for _ in range(NODES)]
        self.until = time.monotonic() + SECONDS
        self.holds: list[tuple[str, str]] = []
        self.sent: list[bytes] = []

    async def run(self) -> None:
        """Go on until the time is over."""
        await asyncio.gather(self._ask(), self._tell(), self._report(), self._limit())

    async def _ask(self) -> None:
        chance = self.chance
        while time.monotonic() < self.until:
            tenant = chance.choice(self.tenants)
            if self.holds and chance.random() < 0.4:
                of, hold = self.holds.pop(chance.randrange(len(self.holds)))
                await self.quota.wire.post(asking(chance.choice(["commit", "release"]), of, hold=hold))
                continue
            place = {"node": chance.choice(self.nodes)} if chance.random() < 0.5 else {"pool": self.pool}
            replaces = [f"d{chance.randrange(10, 20)}"] if chance.random() < 0.3 else []
            wait, ttl = chance.choice([0, 0, 2, 5]), chance.choice([1, 3, 600])
            much = {"cpu": chance.randrange(50, 400)}
            fields = {"deployment": f"d{chance.randrange(10)}", "footprint": much, "placement": place}
            more = {"replaces": replaces, "wait_seconds": wait, "ttl_seconds": ttl}
            body = asking("reserve", tenant, **fields, **more)
            self.sent.append(await self.quota.wire.post(body))
            self.holds.append((tenant, body["request_id"]))
            await asyncio.sleep(0.004)

    async def _tell(self) -> None:
        revision = 1000
        while time.monotonic() < self.until:
            revision += 1
            place = {"environment": "prod", "stack": "blog", "deployment": f"d{self.chance.randrange(20)}"}
            after = {"cpu": self.chance.randrange(300)} if self.chance.random() < 0.8 else None
            body = {"tenant": self.chance.choice(self.tenants), **place, "revision": revision, "after": after}
            await self.quota.wire.tell_soon(USAGE_DELTAS, body)
            await asyncio.sleep(0.005)

    async def _report(self) -> None:
        version = 0
        while time.monotonic() < self.until:
            version += 1
            for node in self.nodes:
                capacity = {"cpu": self.chance.randrange(500, 4000), "memory": "64g"}
                body = {"node": node, "version": version, "pool": self.pool, "capacity": capacity}
                await self.quota.wire.tell_soon(NODE_REPORTS, body, key=node)
            await asyncio.sleep(0.05)

    async def _limit(self) -> None:
        while time.monotonic() < self.until:
            await self.quota.set_limits(
                self.chance.choice(self.tenants), {"cpu": self.chance.randrange(500, 3000)}, force=True
            )
            await asyncio.sleep(0.02)


async def test_everything_at_once_on_a_few_nodes_never_deadlocks(quota: Platform) -> None:
    first, second = quota.enforcer(0), quota.enforcer(1)
    await first.start()
    await second.start()
    await first.ready(PARTITIONS // 2)
    await second.ready(PARTITIONS // 2)
    before = await quota.database.fetchval(DEADLOCKS)
    load = Load(quota, 7)

    running = asyncio.create_task(load.run())
    try:
        for pause in (6.0, 4.0):
            await asyncio.sleep(pause)
            await second.kill()
            await second.start()
        await running
    finally:
        running.cancel()
    await second.ready(PARTITIONS // 2)

    async def nobody_waits() -> bool:
        return bool(await quota.database.fetchval("SELECT count(*) = 0 FROM waiters"))

    await eventually(nobody_waits, seconds=20, what="every wait has ended")
    for correlation in load.sent[-50:]:
        await quota.wire.replies(correlation)
    assert await quota.database.fetchval(DEADLOCKS) == before
    for enforcer in (first, second):
        found = await enforcer.metrics()
        bugs = {name for name in found if name.startswith("streams_dead_letters_total") and found[name]}
        assert not {name for name in bugs if 'reason="bug"' in name}
    sql = "SELECT count(*) FROM holds WHERE tenant = ANY($1)"
    assert await quota.database.fetchval(sql, load.tenants) > 50
