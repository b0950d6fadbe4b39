"""The fixtures that every test on real parts stands on."""

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from plimsoll_devkit.stack.database import Database
from plimsoll_devkit.stack.private import PrivateStack


async def test_a_record_goes_through_the_broker(kafka_bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("fixture-echo", 1, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)
    await producer.start()
    await producer.send_and_wait("fixture-echo", b"hello")
    await producer.stop()
    consumer = AIOKafkaConsumer(
        "fixture-echo", bootstrap_servers=kafka_bootstrap, group_id="fixture", auto_offset_reset="earliest"
    )
    await consumer.start()
    assert (await consumer.getone()).value == b"hello"
    await consumer.stop()


async def test_the_broker_creates_no_topic_by_itself(kafka_bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap, request_timeout_ms=1000)
    await producer.start()
    with pytest.raises(KafkaError):
        await producer.send_and_wait("nobody-made-this", b"x")
    await producer.stop()


async def test_each_test_has_a_database_of_its_own_with_the_roles(database: Database) -> None:
    owner = await asyncpg.connect(database.owner_dsn)
    await owner.execute("CREATE SCHEMA quota; GRANT USAGE ON SCHEMA quota TO quota_enforcer")
    assert await owner.fetchval("SHOW fsync") == "on"
    assert await owner.fetchval("SHOW synchronous_commit") == "on"
    await owner.close()
    service = await asyncpg.connect(database.dsn())
    assert await service.fetchval("SELECT current_user") == "quota_enforcer"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await service.execute("CREATE TABLE public.t (x int)")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await service.execute("CREATE SCHEMA mine")
    await service.close()


async def test_the_next_database_is_empty(database: Database) -> None:
    connection = await asyncpg.connect(database.admin_dsn)
    assert await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'quota'") == 0
    await connection.close()


async def _query(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM kept"))
    finally:
        await connection.close()


@pytest.mark.parametrize("way", ["kill", "stop"])
async def test_a_private_stack_is_killed_and_started_again_and_keeps_its_data(
    private_stack: PrivateStack, way: str
) -> None:
    dsn = private_stack.database.owner_dsn
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE SCHEMA s; SET search_path TO s; CREATE TABLE kept AS SELECT 1")
    await connection.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=private_stack.kafka_bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("kept", 1, 1)])
    await admin.close()
    for part in ("postgres", "kafka"):
        getattr(private_stack, way)(part)
        with pytest.raises(LookupError):
            private_stack.pid(part)
    with pytest.raises(ConnectionRefusedError):
        await asyncpg.connect(dsn)
    private_stack.start("postgres")
    private_stack.start("kafka")
    assert await _query(f"{dsn}?options=-csearch_path%3Ds") == 1
    admin = AIOKafkaAdminClient(bootstrap_servers=private_stack.kafka_bootstrap)
    await admin.start()
    assert "kept" in await admin.list_topics()
    await admin.close()
