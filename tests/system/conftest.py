"""One enforcer on a broker and a database of its own, for what is tried from outside."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, platform

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(scope="session")
async def running() -> AsyncIterator[Platform]:
    async with platform() as made:
        await made.enforcer(PLIMSOLL_ENTITLEMENTS="expected").start()
        await made.enforcer().ready(PARTITIONS)
        yield made
