"""A broker that stops, crashes or freezes under a client costs verdicts, never an error of the transport."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from plimsoll_client import Allowed, EnforcementClient, Unknown, UnknownReason
from plimsoll_contracts.topics import QUOTA_REQUESTS, replies_topic
from plimsoll_devkit.responder import Asked, Responder
from plimsoll_devkit.stack.private import PrivateStack


@pytest.fixture(scope="module")
def broker() -> Iterator[PrivateStack]:
    with PrivateStack(["kafka"]) as own:
        yield own


@pytest.fixture(scope="module")
async def answering(broker: PrivateStack) -> AsyncIterator[Responder]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.kafka_bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 2, 1) for name in (QUOTA_REQUESTS.name, replies_topic("flows").name)])
    await admin.close()
    async with Responder(broker.kafka_bootstrap) as responder:
        yield responder


async def yes(asked: Asked) -> None:
    await asked.reply({})


async def _check(client: EnforcementClient, tenant: str, seconds: float = 1) -> Allowed | Unknown:
    outcome = await client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="closed", timeout=seconds)
    assert isinstance(outcome, Allowed | Unknown)
    return outcome


async def _until_answered(client: EnforcementClient, tenant: str) -> None:
    async with asyncio.timeout(30):
        while not isinstance(await _check(client, tenant), Allowed):
            pass


@pytest.mark.parametrize("way", ["stop", "kill", "freeze"])
async def test_an_outage_gives_unknown_in_time_and_the_same_client_goes_on_after_it(
    broker: PrivateStack, answering: Responder, tenant: str, way: str
) -> None:
    answering.behaviours[tenant] = yes
    async with EnforcementClient(broker.kafka_bootstrap) as client:
        await _until_answered(client, tenant)
        await asyncio.to_thread(getattr(broker, way), "kafka")
        began = time.monotonic()
        outcomes = await asyncio.gather(*(_check(client, tenant) for _ in range(200)))
        assert time.monotonic() - began < 3
        assert {outcome.reason for outcome in outcomes if isinstance(outcome, Unknown)} == {UnknownReason.UNREACHABLE}
        assert not any(isinstance(outcome, Allowed) for outcome in outcomes)
        await asyncio.to_thread(broker.thaw if way == "freeze" else broker.start, "kafka")
        await _until_answered(client, tenant)
        assert client.counters.unknown_closed >= 200


async def test_stopping_in_an_outage_is_bounded_and_quiet(
    broker: PrivateStack, answering: Responder, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    answering.behaviours[tenant] = yes
    client = EnforcementClient(broker.kafka_bootstrap)
    async with client:
        await _until_answered(client, tenant)
        await asyncio.to_thread(broker.kill, "kafka")
        calls = [asyncio.create_task(_check(client, tenant, seconds=60)) for _ in range(20)]
        await asyncio.sleep(0.5)
        began = time.monotonic()
    lasted = time.monotonic() - began
    await asyncio.to_thread(broker.start, "kafka")
    assert lasted < 8
    outcomes = [await call for call in calls]
    assert {outcome.reason for outcome in outcomes if isinstance(outcome, Unknown)} == {UnknownReason.STOPPED}
    assert not [record for record in caplog.records if record.name == "asyncio" and record.levelno >= logging.ERROR]
    mine = {"plimsoll-replies", *(task.get_name() for task in calls)}
    assert not [task for task in asyncio.all_tasks() if task.get_name() in mine and not task.done()]
