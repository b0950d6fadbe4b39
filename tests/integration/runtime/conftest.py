import pytest

from plimsoll_devkit.stack.database import Database


@pytest.fixture
def owner_dsn(database: Database) -> str:
    return database.owner_dsn


@pytest.fixture
def service_dsn(database: Database) -> str:
    return database.dsn("quota_enforcer")
