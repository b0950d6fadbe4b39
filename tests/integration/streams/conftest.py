"""Fresh topics and a fresh schema for each test of the engine."""

from collections.abc import AsyncIterator

import pytest

from plimsoll_devkit.stack.database import Database
from plimsoll_devkit.workbench import Bench, open_bench


@pytest.fixture
async def bench(kafka_bootstrap: str, database: Database) -> AsyncIterator[Bench]:
    async with open_bench(kafka_bootstrap, database.owner_dsn) as made:
        yield made
