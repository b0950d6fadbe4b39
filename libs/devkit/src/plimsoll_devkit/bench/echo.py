"""How fast could any answer over these topics be: a server that decides nothing and answers every request the same."""

import asyncio
import signal
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.topics import QUOTA_REQUESTS

ANSWER = EnforcementReply(request_id=None, verb=None, tenant=None, allowed=True).model_dump_json().encode()


async def serve(bootstrap: str) -> None:
    """Answer until SIGTERM; replies go out as they come in, nothing is stored."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = AIOKafkaConsumer(
        QUOTA_REQUESTS.name,
        bootstrap_servers=bootstrap,
        group_id="bench-echo",
        enable_auto_commit=False,
        auto_offset_reset="latest",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=0, acks=1, max_batch_size=256 * 1024)
    await consumer.start()
    await producer.start()
    print("ready", flush=True)  # noqa: T201 - whoever started it waits for this
    while not stopping.is_set():
        for records in (await consumer.getmany(timeout_ms=200, max_records=500)).values():
            for record in records:
                headers = dict(record.headers)
                await producer.send(
                    headers["reply_to"].decode(),
                    value=ANSWER,
                    key=record.key,
                    partition=int(headers["reply_partition"]),
                    headers=[("correlation_id", headers["correlation_id"])],
                )
    await consumer.stop()
    await producer.stop()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
