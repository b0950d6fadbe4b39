"""What do callers do to the platform: a process that keeps calls in flight, or makes them at a steady rate."""

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import count

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from plimsoll_client import EnforcementClient
from plimsoll_client.outcomes import Allowed, Denied, Outcome
from plimsoll_contracts.topics import QUOTA_REQUESTS, REPLIES_FLOWS
from plimsoll_devkit.bench import effort

STACKS = 10
FOOTPRINT = {"cpu": 500, "memory": 1 << 29, "vapps": 1}
WARM_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of callers saw. Latencies in milliseconds."""

    calls: int
    seconds: float
    allowed: int
    denied: int
    unknown: int
    p50: float = 0.0
    p99: float = 0.0
    effort: Mapping[str, float] = field(default_factory=dict)
    """Microseconds of processor time for each call, by who took them."""

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.calls / self.seconds


class Flood:
    """The lightest caller there is, so that what is measured is the other side: JSON, four headers, no waiting tasks.

    Reserve and release in turn, over tenants of ten stacks; every answer makes the next question.
    """

    def __init__(self, tenants: int, watched: Mapping[str, int]) -> None:
        """Name the tenants that are asked about, and the processes whose effort is counted."""
        self._tenants = [f"tenant-{number}" for number in range(tenants)]
        self._watched = {**watched, "callers": os.getpid()}
        self._chance = random.Random(1)
        self._numbers = count()
        self._open: dict[bytes, tuple[str, str]] = {}
        self.answered = 0
        self.allowed = 0

    async def run(self, bootstrap: str, many: int, seconds: float) -> Load:
        """Keep so many calls in flight for so long, after warming up."""
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=0, acks=1, max_batch_size=256 * 1024)
        await consumer.start()
        await producer.start()
        try:
            pinned = TopicPartition(REPLIES_FLOWS.name, 0)
            consumer.assign([pinned])
            await consumer.seek_to_end(pinned)
            await consumer.position(pinned)
            for _ in range(many):
                await self._ask(producer, None)
            await self._pump(consumer, producer, time.perf_counter() + WARM_SECONDS)
            self.answered = self.allowed = 0
            before, started = effort.spent(self._watched), time.perf_counter()
            await self._pump(consumer, producer, started + seconds)
            took, after = time.perf_counter() - started, effort.spent(self._watched)
            each = {who: round((after[who] - before[who]) / self.answered * 1e6) for who in after}
            return Load(self.answered, took, self.allowed, self.answered - self.allowed, 0, effort=each)
        finally:
            await producer.stop()
            await consumer.stop()

    async def _pump(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, until: float) -> None:
        while time.perf_counter() < until:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    held = self._open.pop(dict(record.headers)["correlation_id"], None)
                    self.answered += 1
                    self.allowed += b'"allowed":true' in record.value
                    await self._ask(producer, held)

    async def _ask(self, producer: AIOKafkaProducer, held: tuple[str, str] | None) -> None:
        number = next(self._numbers)
        name = f"flood-{id(self):x}-{number}"
        now = datetime.now(UTC).isoformat()
        if held is None:
            tenant = self._chance.choice(self._tenants)
            place = {"environment": "prod", "stack": f"stack-{number % STACKS}", "app": "app"}
            about = {"verb": "reserve", "deployment": f"deployment-{number}", "footprint": FOOTPRINT, **place}
            self._open[name.encode()] = (tenant, name)
        else:
            tenant, hold = held
            about = {"verb": "release", "hold": hold}
        body = {"request_id": name, "issued_at": now, "tenant": tenant, **about}
        headers = [
            ("reply_to", REPLIES_FLOWS.name.encode()),
            ("reply_partition", b"0"),
            ("correlation_id", name.encode()),
        ]
        await producer.send(QUOTA_REQUESTS.name, value=json.dumps(body).encode(), key=tenant.encode(), headers=headers)


class Steady:
    """Callers with the client library, beginning at a steady rate whether or not earlier ones were answered."""

    def __init__(self, client: EnforcementClient, tenants: int) -> None:
        """Name the tenants that are asked about."""
        self._client = client
        self._tenants = [f"tenant-{number}" for number in range(tenants)]
        self._numbers = count()
        self._chance = random.Random(1)
        self.outcomes = {"allowed": 0, "denied": 0, "unknown": 0}
        self.latencies: list[float] = []

    async def pair(self) -> None:
        """Reserve and release once."""
        number = next(self._numbers)
        tenant = self._chance.choice(self._tenants)
        reserved = await self._timed(
            self._client.reserve(
                tenant=tenant,
                environment="prod",
                stack=f"stack-{number % STACKS}",
                app="app",
                deployment=f"steady-{number}",
                footprint=FOOTPRINT,
                on_unknown="closed",
            )
        )
        await self._timed(self._client.release(tenant=tenant, hold=reserved.request_id))

    async def _timed(self, call: Awaitable[Outcome]) -> Outcome:
        started = time.perf_counter()
        outcome = await call
        self.latencies.append((time.perf_counter() - started) * 1000)
        kind = "allowed" if isinstance(outcome, Allowed) else "denied" if isinstance(outcome, Denied) else "unknown"
        self.outcomes[kind] += 1
        return outcome


async def at_rate(bootstrap: str, tenants: int, rate: float, seconds: float) -> Load:
    """Make so many calls a second for so long."""
    async with EnforcementClient(bootstrap, caller="flows", timeout=30) as client:
        callers = Steady(client, tenants)
        for _ in range(50):
            await callers.pair()
        callers.latencies.clear()
        started = time.perf_counter()
        tasks = []
        for number in range(int(rate * seconds / 2)):
            due = started + number * 2 / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(callers.pair()))
        await asyncio.gather(*tasks)
        took = time.perf_counter() - started
    ordered = sorted(callers.latencies)
    p50, p99 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    return Load(len(ordered), took, **callers.outcomes, p50=p50, p99=p99, effort={})


def main() -> None:
    """Run one load and print it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m plimsoll_devkit.bench.load", description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--in-flight", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--watch", action="append", default=[], help="name=pid of a process to count the effort of")
    asked = parser.parse_args()
    if asked.rate:
        load = asyncio.run(at_rate(asked.bootstrap, asked.tenants, asked.rate, asked.seconds))
    else:
        watched = {name: int(pid) for name, _, pid in (each.partition("=") for each in asked.watch)}
        load = asyncio.run(Flood(asked.tenants, watched).run(asked.bootstrap, asked.in_flight, asked.seconds))
    print(json.dumps(asdict(load)))  # noqa: T201 - a command prints


if __name__ == "__main__":
    main()
