"""One enforcer on a broker and a database of its own, which anything is thrown at."""

from collections.abc import AsyncIterator

import pytest

from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, platform


@pytest.fixture(scope="session")
async def running() -> AsyncIterator[Platform]:
    async with platform() as made:
        await made.enforcer().start()
        await made.enforcer().ready(PARTITIONS)
        yield made
        assert made.enforcer().runs
        assert "request failed" not in made.enforcer().said(), "an error of ours"
        await made.audit()
