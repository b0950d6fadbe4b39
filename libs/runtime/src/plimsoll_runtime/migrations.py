"""Is the database's schema the one this code was written for, and how does it become so.

Plain SQL files `NNNN_name.sql`, numbered from 0001 without gaps per component. Several components may share
one schema (the engine's tables live beside a service's own); each is versioned by itself. A file that was
applied never changes. One transaction a file, so what cannot run in one (CREATE INDEX CONCURRENTLY) cannot
be a migration.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg

Database = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy | asyncpg.Pool

Source = tuple[str, Path]
"""A component's name and the directory of its files."""

LOCK_MS = 10_000
"""A migration that waits longer for a table's lock gives up rather than hold up live traffic behind it."""

_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_SCHEMA = re.compile(r"^[a-z_][a-z0-9_]{0,62}$")


class WrongSchemaError(Exception):
    """The database's schema is not the one this code needs; `problems` says each difference."""

    def __init__(self, schema: str, problems: Sequence[str]) -> None:
        super().__init__(f"schema {schema}: " + "; ".join(problems))
        self.schema = schema
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    component: str
    version: int
    name: str
    sql: str
    checksum: str

    def __str__(self) -> str:
        return f"{self.component}/{self.version:04}_{self.name}"


@dataclass(frozen=True, slots=True)
class Applied:
    """One row of the table of migrations."""

    name: str
    checksum: str


Ledger = Mapping[tuple[str, int], Applied]


def check_schema_name(schema: str) -> str:
    """Return the name if it may stand unquoted in SQL.

    Raises:
        ValueError: otherwise.
    """
    if not _SCHEMA.match(schema):
        raise ValueError(f"not a schema name: {schema!r}")
    return schema


def read(sources: Iterable[Source]) -> tuple[Migration, ...]:
    """Read the files of all components, in the order they are applied: component by component.

    Raises:
        ValueError: when a file's name has another form, or the numbers are not 1, 2, 3, ...
    """
    found: list[Migration] = []
    for component, directory in sources:
        paths = sorted(directory.glob("*.sql"))
        if not paths:
            raise ValueError(f"{component}: no migrations in {directory}")
        for expected, path in enumerate(paths, start=1):
            match = _FILE.match(path.name)
            if match is None or int(match[1]) != expected:
                raise ValueError(f"{component}: {path.name} should be named {expected:04}_<name>.sql")
            content = path.read_bytes()
            checksum = hashlib.sha256(content).hexdigest()
            found.append(Migration(component, expected, match[2], content.decode(), checksum))
    return tuple(found)


def pending(schema: str, wanted: Sequence[Migration], applied: Ledger) -> tuple[Migration, ...]:
    """Return what is still to be applied.

    Raises:
        WrongSchemaError: when an applied file has changed since, or the database is ahead of this code.
    """
    known = {(migration.component, migration.version): migration for migration in wanted}
    components = {migration.component for migration in wanted}
    problems = [
        f"{migration} has changed since it was applied"
        for key, migration in known.items()
        if key in applied and applied[key].checksum != migration.checksum
    ]
    problems += [
        f"{component}/{version:04}_{row.name} is applied but unknown here: the database is newer than this code"
        for (component, version), row in applied.items()
        if component in components and (component, version) not in known
    ]
    if problems:
        raise WrongSchemaError(schema, problems)
    return tuple(migration for key, migration in known.items() if key not in applied)


async def migrate(dsn: str, *, schema: str, sources: Sequence[Source]) -> tuple[Migration, ...]:
    """Bring the schema up to date as its owner, and return what was applied; safe to run side by side.

    Raises:
        WrongSchemaError: when files have changed or the database is newer; nothing was applied then.
        asyncpg.PostgresError: when a file fails; the files before it stay applied, itself not at all.
    """
    wanted = read(sources)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": check_schema_name(schema)})
    try:
        # Held by the session, so that it spans the files' transactions; it ends with the connection.
        await connection.execute("SELECT pg_advisory_lock(hashtextextended('migrate ' || $1, 0))", schema)
        await connection.execute(f"SET lock_timeout = {LOCK_MS}")
        await _prepare(connection, schema)
        todo = pending(schema, wanted, await _ledger(connection, schema))
        for migration in todo:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(
                    f"INSERT INTO {schema}.migrations (component, version, name, checksum) VALUES ($1, $2, $3, $4)",  # noqa: S608 - a checked name
                    migration.component,
                    migration.version,
                    migration.name,
                    migration.checksum,
                )
        return todo
    finally:
        await connection.close()


async def verify(database: Database, *, schema: str, sources: Sequence[Source]) -> None:
    """Check that exactly this code's migrations are applied; any login role of the schema may.

    Raises:
        WrongSchemaError: naming what is missing, changed or newer.
    """
    check_schema_name(schema)
    try:
        applied = await _ledger(database, schema)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        applied = {}
    missing = pending(schema, read(sources), applied)
    if missing:
        raise WrongSchemaError(schema, [f"{migration} is missing (run `migrate`)" for migration in missing])


async def _prepare(connection: asyncpg.Connection, schema: str) -> None:
    # IF NOT EXISTS would still need the right to create schemas in the database where one exists.
    if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema):
        await connection.execute(f"CREATE SCHEMA {schema}")
    await connection.execute(
        f"""CREATE TABLE IF NOT EXISTS {schema}.migrations (
            component  text        NOT NULL,
            version    integer     NOT NULL,
            name       text        NOT NULL,
            checksum   text        NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (component, version)
        )"""
    )
    # Whoever may use the schema may check it; who may use it is the service's own migration to say.
    await connection.execute(f"GRANT SELECT ON {schema}.migrations TO PUBLIC")


async def _ledger(database: Database, schema: str) -> Ledger:
    rows = await database.fetch(f"SELECT component, version, name, checksum FROM {schema}.migrations")  # noqa: S608
    return {(row["component"], row["version"]): Applied(row["name"], row["checksum"]) for row in rows}
