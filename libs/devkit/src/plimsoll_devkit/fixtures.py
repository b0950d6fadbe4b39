"""Which broker, database and cache do the tests run on? A pytest plugin.

In this order: running ones named by PLIMSOLL_TEST_KAFKA (`host:port`), PLIMSOLL_TEST_POSTGRES (a superuser's
connection) and PLIMSOLL_TEST_VALKEY (`redis://host:port`); a Docker engine that answers; local processes.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from plimsoll_devkit.stack import containers, database
from plimsoll_devkit.stack.assembly import INFRASTRUCTURE
from plimsoll_devkit.stack.database import Database
from plimsoll_devkit.stack.private import LoopThread, PrivateStack

_NAMED = {"kafka": "PLIMSOLL_TEST_KAFKA", "postgres": "PLIMSOLL_TEST_POSTGRES", "valkey": "PLIMSOLL_TEST_VALKEY"}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the infrastructure of this test session listens."""

    kafka_bootstrap: str
    postgres_admin_dsn: str
    valkey_url: str


@pytest.fixture(scope="session")
def stack() -> Iterator[Endpoints]:
    """The infrastructure of the whole test session: nothing in it may be killed or stopped by a test."""
    found = {name: os.environ[variable] for name, variable in _NAMED.items() if os.environ.get(variable)}
    missing = [name for name in INFRASTRUCTURE if name not in found]
    with ExitStack() as cleanup:
        if missing and containers.engine_answers():
            found |= cleanup.enter_context(containers.running(missing))
        elif missing:
            local = cleanup.enter_context(PrivateStack(missing))
            found |= {name: local.address(name) for name in missing}
        yield Endpoints(found["kafka"], found["postgres"], found["valkey"])


@pytest.fixture(scope="session")
def kafka_bootstrap(stack: Endpoints) -> str:
    """`host:port` of a broker that creates no topics by itself. Use names of your own for topics and groups."""
    return stack.kafka_bootstrap


@pytest.fixture(scope="session")
def postgres_admin_dsn(stack: Endpoints) -> str:
    """A superuser's connection to the session's database server."""
    return stack.postgres_admin_dsn


@pytest.fixture(scope="session")
def valkey_url(stack: Endpoints) -> str:
    """`redis://host:port` of the session's Valkey or Redis."""
    return stack.valkey_url


@pytest.fixture(scope="session")
def stack_thread() -> Iterator[LoopThread]:
    """An event loop beside the tests' own, for fixtures that are synchronous."""
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def database_template(postgres_admin_dsn: str, stack_thread: LoopThread) -> Iterator[str]:
    """The template that test databases are copied from; it has every role and no schema."""
    context = database.template(postgres_admin_dsn)
    yield stack_thread.run(context.__aenter__())
    stack_thread.run(context.__aexit__(None, None, None))


@pytest.fixture(name="database")
def fresh_database(postgres_admin_dsn: str, database_template: str, stack_thread: LoopThread) -> Iterator[Database]:
    """An empty database of this test's own, dropped after it."""
    made = stack_thread.run(database.make(postgres_admin_dsn, database_template))
    yield made
    stack_thread.run(database.drop(postgres_admin_dsn, made.name))


@pytest.fixture
def private_stack() -> Iterator[PrivateStack]:
    """Local processes of this test's own, which it may kill, stop, freeze and start again."""
    with PrivateStack() as own:
        yield own
