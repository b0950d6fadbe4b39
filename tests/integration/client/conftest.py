"""The request topic, a reply topic, a responder and a client on a real broker."""

import uuid
from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from plimsoll_client import EnforcementClient
from plimsoll_contracts.topics import QUOTA_REQUESTS, replies_topic
from plimsoll_devkit.responder import Responder


async def make_topics(bootstrap: str, caller: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    names = (QUOTA_REQUESTS.name, replies_topic(caller).name)
    await admin.create_topics([NewTopic(name, 4, 1) for name in names])  # an existing one is fine
    await admin.close()


@pytest.fixture(scope="session")
async def caller(kafka_bootstrap: str) -> str:
    name = f"caller-{uuid.uuid4().hex[:8]}"
    await make_topics(kafka_bootstrap, name)
    return name


@pytest.fixture(scope="session")
async def responder(kafka_bootstrap: str, caller: str) -> AsyncIterator[Responder]:
    assert caller  # its topics exist
    async with Responder(kafka_bootstrap) as running:
        yield running


@pytest.fixture
async def client(kafka_bootstrap: str, caller: str) -> AsyncIterator[EnforcementClient]:
    async with EnforcementClient(kafka_bootstrap, caller=caller, instance="one") as started:
        yield started


@pytest.fixture
def tenant() -> str:
    """A tenant of this test's own: the responder behaves by tenant."""
    return f"t-{uuid.uuid4().hex[:12]}"
