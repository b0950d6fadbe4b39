"""The service's login role can do its work and nothing else: a bug or a leak in it stays inside its schema's rows."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from plimsoll_devkit.platform import Platform

FORBIDDEN = {
    "create a table in its schema": "CREATE TABLE quota.mine (x int)",
    "create a table beside it": "CREATE TABLE public.mine (x int)",
    "create a temporary function": "CREATE FUNCTION quota.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "create a schema": "CREATE SCHEMA mine",
    "create a role": "CREATE ROLE friend",
    "alter a table": "ALTER TABLE quota.charges ADD COLUMN x int",
    "drop a table": "DROP TABLE quota.charges",
    "drop a partition": "DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE quota.' || c.relname FROM pg_inherits i"
    " JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind = 'r' LIMIT 1); END $$",
    "truncate a table": "TRUNCATE quota.charges",
    "make an index": "CREATE INDEX ON quota.charges (app)",
    "switch off a trigger": "ALTER TABLE quota.charges DISABLE TRIGGER ALL",
    "write the migrations": "UPDATE quota.migrations SET checksum = 'x'",
    "forget the migrations": "DELETE FROM quota.migrations",
    "read another schema": "SELECT * FROM other_service.secrets",
    "write another schema": "INSERT INTO other_service.secrets VALUES ('x')",
    "become the owner": "SET ROLE plimsoll_owner",
    "read the passwords": "SELECT * FROM pg_authid",
    "read a file": "SELECT pg_read_file('/etc/passwd')",
    "run a program": "COPY quota.charges TO PROGRAM 'true'",
}


@pytest.fixture(scope="module")
async def service(running: Platform) -> AsyncIterator[asyncpg.Connection]:
    """A session of the service's role, beside the schema of another service."""
    await running.database.execute("CREATE SCHEMA other_service; CREATE TABLE other_service.secrets (word text)")
    connection = await asyncpg.connect(running.stack.database.dsn())
    yield connection
    await connection.close()
    await running.database.execute("DROP SCHEMA other_service CASCADE")


@pytest.mark.parametrize("what", FORBIDDEN)
async def test_the_service_role_cannot(service: asyncpg.Connection, what: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await service.execute(FORBIDDEN[what])


async def test_the_service_role_can_read_and_write_rows(service: asyncpg.Connection) -> None:
    transaction = service.transaction()
    await transaction.start()
    await service.execute("INSERT INTO quota.tenants (tenant) VALUES ('roles')")
    await service.execute("UPDATE quota.tenants SET seq = 1 WHERE tenant = 'roles'")
    await service.execute("DELETE FROM quota.tenants WHERE tenant = 'roles'")
    assert await service.fetchval("SELECT quota.maintain_partitions(14, 35)") == 0
    await transaction.rollback()


async def test_the_service_role_owns_nothing(service: asyncpg.Connection) -> None:
    owned = await service.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE r.rolname = current_user"
    )
    assert owned == []
    role = await service.fetchrow(
        "SELECT rolsuper, rolcreatedb, rolcreaterole, rolbypassrls, rolreplication"
        " FROM pg_roles WHERE rolname = current_user"
    )
    assert role is not None
    assert not any(role.values())


async def test_sessions_bound_their_own_waits(running: Platform) -> None:
    admin = await asyncpg.connect(running.stack.database.admin_dsn)
    try:
        names = await admin.fetch(
            "SELECT DISTINCT split_part(application_name, ' ', 1), usename FROM pg_stat_activity"
            " WHERE usename = 'quota_enforcer' AND application_name LIKE 'quota-enforcer-%'"
        )
    finally:
        await admin.close()
    assert [tuple(row) for row in names] == [("quota-enforcer-0", "quota_enforcer")]
