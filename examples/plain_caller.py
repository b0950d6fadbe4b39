"""A caller without any library of Plimsoll's: a Kafka client, JSON and four headers. Any language can do this.

python examples/plain_caller.py [TENANT CPU]
"""

import asyncio
import json
import os
import sys
import time
import uuid
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

REQUESTS, REPLIES = "quota.requests", "quota.replies.flows"
TIMEOUT_SECONDS = 5.0


def bootstrap() -> str:
    """Find the broker: in the environment, or in the file that ``make up`` writes."""
    if address := os.environ.get("PLIMSOLL_KAFKA_BOOTSTRAP"):
        return address
    context = json.loads(Path(os.environ.get("PLIMSOLL_CONTEXT", ".local/context.json")).read_text())
    return str(context["kafka"])


async def ask(producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, body: dict[str, Any]) -> dict[str, Any]:
    """Send one request and wait for its reply. To repeat it, send the same body: it is never decided twice.

    Who repeats a reserve looks at ``hold.state`` too: where it is ``expired``, the room is no longer held.
    """
    (mine,) = consumer.assignment()
    correlation = uuid.uuid4().hex
    headers = {
        "reply_to": mine.topic,
        "reply_partition": str(mine.partition),
        "correlation_id": correlation,
        "deadline": str(int((time.time() + TIMEOUT_SECONDS) * 1000)),
    }
    await producer.send_and_wait(
        REQUESTS,
        key=body["tenant"].encode(),  # the key must be the tenant
        value=json.dumps(body).encode(),
        headers=[(name, value.encode()) for name, value in headers.items()],
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for record in consumer:
            if dict(record.headers).get("correlation_id") == correlation.encode():
                return dict(json.loads(record.value))
    raise AssertionError("a consumer never ends by itself")


async def main(tenant: str, cpu: str) -> None:
    """Reserve, say what came back, and give the hold back."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap(), linger_ms=0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap(), group_id=None, auto_offset_reset="latest")
    await producer.start()
    await consumer.start()
    try:
        # One partition of the reply topic is ours, and its end is known before anything is asked.
        partitions = await producer.partitions_for(REPLIES)
        mine = TopicPartition(REPLIES, zlib.crc32(uuid.uuid4().bytes) % len(partitions))
        consumer.assign([mine])
        await consumer.seek_to_end(mine)
        await consumer.position(mine)

        named = {"request_id": str(uuid.uuid4()), "issued_at": datetime.now(UTC).isoformat(), "tenant": tenant}
        wanted = {"environment": "prod", "stack": "blog", "deployment": "example-plain", "footprint": {"cpu": cpu}}
        reply = await ask(producer, consumer, {"verb": "reserve", **named, **wanted})
        print("allowed" if reply["allowed"] else f"denied: {reply['code']} {reply['message']}")
        for violation in reply.get("violations", []):
            print(f"  {violation['scope']} {violation['dimension']}: {violation['would_fit']} would fit")
        if reply["allowed"]:
            back = {**named, "request_id": str(uuid.uuid4()), "hold": named["request_id"]}
            await ask(producer, consumer, {"verb": "release", **back})
    finally:
        await consumer.stop()
        await producer.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["acme", "500m"]))
