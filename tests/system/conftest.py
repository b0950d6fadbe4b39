"""One enforcer on a broker and a database of its own, for what is tried from outside."""

from collections.abc import AsyncIterator

import pytest

from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, platform


@pytest.fixture(scope="session")
async def running() -> AsyncIterator[Platform]:
    async with platform() as made:
        await made.enforcer(PLIMSOLL_ENTITLEMENTS="expected").start()
        await made.enforcer().ready(PARTITIONS)
        yield made
