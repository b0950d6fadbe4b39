"""Lets test files import what lies beside them, and chooses how far the machines go.

``PLIMSOLL_MODEL=ci`` (the default), ``dev`` (a glance) or ``deep`` (an hour);
``PLIMSOLL_MODEL_SEED`` repeats a run, whose seed is in the header and in every failure.
"""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings

from plimsoll_devkit.stack.database import Database
from plimsoll_devkit.stack.private import LoopThread
from plimsoll_quota_enforcer.storage.queries import MIGRATIONS, SCHEMA
from plimsoll_runtime import migrations, pool

sys.path.insert(0, str(Path(__file__).parents[2]))

PROFILE = os.environ.get("PLIMSOLL_MODEL", "ci")
SEED = int(os.environ.get("PLIMSOLL_MODEL_SEED") or random.randrange(2**32))

_PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
for _name, _times in (("dev", 1), ("ci", 3), ("deep", 100)):
    settings.register_profile(
        f"model-{_name}",
        max_examples=50 * _times,
        stateful_step_count=40,
        deadline=None,
        database=None,
        print_blob=True,
        phases=_PHASES,
        suppress_health_check=list(HealthCheck),
    )
settings.load_profile(f"model-{PROFILE}")


def pytest_report_header() -> str:
    """Tell how to run the same again."""
    return f"model: PLIMSOLL_MODEL={PROFILE} PLIMSOLL_MODEL_SEED={SEED}"


@pytest.fixture
def connections(database: Database, stack_thread: LoopThread) -> Iterator[asyncpg.Pool]:
    """The service's own role on a fresh database with its schema."""
    stack_thread.run(migrations.migrate(database.owner_dsn, schema=SCHEMA, sources=MIGRATIONS))
    stack_thread.run(_let_clock_be_moved(database))
    made = stack_thread.run(pool.create(database.dsn(), application_name="model", schema=SCHEMA))
    yield made
    stack_thread.run(made.close())


async def _let_clock_be_moved(database: Database) -> None:
    """Give the service's role the one function that reads the clock, so that ``Stored.advance`` can replace it."""
    connection = await asyncpg.connect(database.admin_dsn)
    await connection.execute(
        f"""GRANT CREATE ON SCHEMA {SCHEMA} TO quota_enforcer; SET search_path = {SCHEMA};
        ALTER FUNCTION lock_tenants OWNER TO quota_enforcer"""
    )
    await connection.close()
