"""Fresh topics and a fresh schema for each test of the engine."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaProducer

from plimsoll_devkit import sums
from plimsoll_devkit.stack.database import Database
from plimsoll_devkit.workbench import Bench
from plimsoll_runtime import pool
from plimsoll_streams import kafka

_numbers = itertools.count()


@pytest.fixture
async def bench(kafka_bootstrap: str, database: Database) -> AsyncIterator[Bench]:
    """Fresh topics, a fresh schema, a producer."""
    name = f"t{os.getpid()}x{next(_numbers)}"
    await sums.migrate(database.owner_dsn)
    assert not await kafka.create_topics(kafka_bootstrap, sums.with_dead_letters(*sums.topics(name)))
    async with AsyncExitStack() as cleanup:
        made = await pool.create(database.owner_dsn, application_name=name, schema=sums.SCHEMA, max_size=12)
        cleanup.push_async_callback(made.close)
        producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)
        await producer.start()
        cleanup.push_async_callback(producer.stop)
        yield Bench(name, kafka_bootstrap, made, database.owner_dsn, producer, cleanup)
