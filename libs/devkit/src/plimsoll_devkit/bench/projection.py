"""How fast are entitlement snapshots projected: a topic full of them, and a service that has yet to read it."""

import asyncio
import json
import time
from datetime import UTC, datetime

import asyncpg
from aiokafka import AIOKafkaProducer

from plimsoll_contracts.envelope import Envelope
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS
from plimsoll_devkit.stack.private import PrivateStack

SERVICE = "quota-enforcer"
TENANTS, VERSIONS = 5_000, 20


def rate(stack: PrivateStack) -> float:
    """Return snapshots a second, over 5,000 tenants with 20 versions each, from the first commit to the last."""
    stack.stop(SERVICE)
    asyncio.run(_fill(stack.kafka_bootstrap))
    stack.start(SERVICE)
    return asyncio.run(_watch(stack.database.dsn()))


async def _fill(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, max_batch_size=256 * 1024)
    await producer.start()
    try:
        for version in range(1, VERSIONS + 1):
            for number in range(TENANTS):
                tenant = f"projected-{number}"
                envelope = Envelope(f"{tenant}-{version}", "entitlement.snapshot.v1", "bench", datetime.now(UTC))
                body = {
                    "tenant": tenant,
                    "entitlement_version": version,
                    "plan": "scale",
                    "limits": {"cpu": 4000, "memory": "8GiB", "stacks": 10},
                    "features": {"deployments": True},
                }
                await producer.send(
                    ENTITLEMENT_EVENTS.name,
                    key=tenant.encode(),
                    value=json.dumps(body).encode(),
                    headers=envelope.headers(),
                )
    finally:
        await producer.stop()


async def _watch(dsn: str) -> float:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "quota"})
    done = f"SELECT sum(next_offset) FROM consumer_offsets WHERE topic = '{ENTITLEMENT_EVENTS.name}'"  # noqa: S608
    first, first_at = await connection.fetchval(done) or 0, time.perf_counter()
    while True:
        now, at = await connection.fetchval(done) or 0, time.perf_counter()
        if now >= TENANTS * VERSIONS:
            await connection.close()
            return float(now - first) / (at - first_at)
        await asyncio.sleep(0.02)
