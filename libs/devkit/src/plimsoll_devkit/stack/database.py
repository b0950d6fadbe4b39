"""How does a test get an empty database of its own, with every role of Plimsoll?"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from plimsoll_devkit.stack import table
from plimsoll_devkit.stack.postgres import create_database

SERVICE_ROLE = "quota_enforcer"


@dataclass(frozen=True, slots=True)
class Database:
    """One database on a running server. `admin_dsn` is the superuser's connection to it."""

    name: str
    admin_dsn: str

    @property
    def owner_dsn(self) -> str:
        """Connection of the role that owns the schemas and runs migrations."""
        return self.dsn(table.OWNER)

    def dsn(self, role: str = SERVICE_ROLE) -> str:
        """Connection of a login role; it has the superuser's password where that has one."""
        parts = urlsplit(self.admin_dsn)
        password = f":{parts.password}" if parts.password else ""
        return urlunsplit(parts._replace(netloc=f"{role}{password}@{parts.hostname}:{parts.port}"))


def on_server(admin_dsn: str, name: str) -> Database:
    """Database `name` on the server of `admin_dsn`."""
    return Database(name, urlunsplit(urlsplit(admin_dsn)._replace(path=f"/{name}")))


@asynccontextmanager
async def template(admin_dsn: str) -> AsyncIterator[str]:
    """The name of a template database that lives as long as the context; the roles stay on the server."""
    name = f"plimsoll_template_{secrets.token_hex(4)}"
    await create_database(admin_dsn, name)
    try:
        yield name
    finally:
        await drop(admin_dsn, name)


async def make(admin_dsn: str, template_name: str) -> Database:
    """A fresh database, a copy of the template, owned by the owner role."""
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(admin_dsn)
    try:
        await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template_name}" OWNER {table.OWNER}')
    finally:
        await admin.close()
    return on_server(admin_dsn, name)


async def drop(admin_dsn: str, name: str) -> None:
    """Drop a database, whoever is still connected to it."""
    admin = await asyncpg.connect(admin_dsn)
    try:
        await admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    finally:
        await admin.close()
