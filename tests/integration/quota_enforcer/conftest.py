"""One broker, one database and one running enforcer for all of these tests; each uses tenants of its own."""

from collections.abc import AsyncIterator

import pytest

from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, platform
from plimsoll_devkit.wire import Wire, unique


@pytest.fixture(scope="session")
async def running() -> AsyncIterator[Platform]:
    """The platform with replica 0 up; a test that stops it starts it again."""
    async with platform() as made:
        await made.enforcer().start()
        await made.enforcer().ready(PARTITIONS)
        made.fresh = await made.enforcer().metrics()
        yield made


@pytest.fixture(scope="session")
async def fresh(running: Platform) -> dict[str, float]:
    """What replica 0 exported before anything was asked of it."""
    return running.fresh


@pytest.fixture
async def quota(running: Platform) -> AsyncIterator[Platform]:
    """The running platform. After each test usage must equal a refold of charges and holds, for every tenant."""
    if not running.enforcer().runs:  # the test before it failed while it was down
        await running.enforcer().start()
        await running.enforcer().ready(PARTITIONS)
    yield running
    await running.audit()


@pytest.fixture
def wire(quota: Platform) -> Wire:
    """A caller that sends what it is told, byte for byte."""
    return quota.wire


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test knows."""
    return unique()
