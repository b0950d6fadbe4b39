"""How does PostgreSQL run here, with the database and the roles of Plimsoll in it?"""

import asyncio
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, SIGQUIT
from urllib.parse import unquote, urlsplit

import asyncpg

from plimsoll_devkit.stack import health, table
from plimsoll_devkit.stack.context import ROOT, UNPRIVILEGED, Layout, reachable
from plimsoll_devkit.stack.process import Launch, spawn, tail

ROLES = ROOT / "deploy" / "local" / "postgres" / "roles.sql"


@dataclass(frozen=True, slots=True)
class Postgres:
    """The database server as a part of a stack; as root it runs as `nobody`, for it refuses to run as root."""

    layout: Layout
    values: Mapping[str, str]
    bin: Path
    name: str = "postgres"
    after: tuple[str, ...] = ()
    once: bool = False
    seconds: float = 60.0

    @property
    def settings(self) -> dict[str, str]:
        """The environment of the table."""
        return table.environment(table.BY_NAME["postgres"], self.values)

    @property
    def data(self) -> Path:
        """The cluster's folder; elsewhere than the stack's where its user could not reach it."""
        base = self.layout.data / "postgres"
        found = reachable(base)
        return base if found is base else found / "data"

    @property
    def admin_dsn(self) -> str:
        """Connection of the superuser."""
        return f"postgresql://{self.settings['POSTGRES_USER']}@{self.values['postgres']}/postgres"

    async def prepare(self) -> None:
        """Make the cluster the first time."""
        if (self.data / "PG_VERSION").exists():
            return
        self.data.mkdir(parents=True, exist_ok=True)
        if user := _user():
            shutil.chown(self.data, user, None)
        self.data.chmod(0o700)
        argv = (str(self.bin / "initdb"), "--pgdata", str(self.data), "--username", self.settings["POSTGRES_USER"])
        # Without a sync: an empty cluster lost with the machine is made again.
        options = (
            "--auth",
            self.settings["POSTGRES_HOST_AUTH_METHOD"],
            "--encoding",
            "UTF8",
            "--locale",
            "C",
            "--no-sync",
        )
        log = self.layout.logs / "postgres.log"
        if code := await (await spawn(Launch(argv + options, user=_user()), log)).wait():
            raise RuntimeError(f"making the database cluster failed with code {code}:\n{tail(log)}")

    def launch(self) -> Launch:
        """The command of the server. SIGINT ends it without waiting for its clients."""
        program, *options = table.command(table.BY_NAME["postgres"], self.values)
        where = ("-D", str(self.data), "-h", "127.0.0.1", "-p", self.values["port"], "-k", "")
        argv = (str(self.bin / program), *options, *where)
        return Launch(argv, user=_user(), stop_signal=SIGINT, death_signal=SIGQUIT)

    async def healthy(self) -> bool:
        """Whether it takes a query."""
        return await health.postgres(self.admin_dsn)

    async def ready(self) -> None:
        """Make the database and the roles where they are missing."""
        await create_database(self.admin_dsn, self.settings["POSTGRES_DB"])


async def create_database(admin_dsn: str, name: str, *, template: str = "template1") -> None:
    """Make database `name` where it is missing, with every role of Plimsoll."""
    admin = await asyncpg.connect(admin_dsn)
    try:
        if not await admin.fetchval("SELECT true FROM pg_database WHERE datname = $1", name):
            await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    finally:
        await admin.close()
    inside = await asyncpg.connect(admin_dsn, database=name)
    try:
        await inside.execute(await asyncio.to_thread(ROLES.read_text))
        if password := urlsplit(admin_dsn).password:
            # A server with passwords: our roles get the superuser's, so that they can log in.
            for role in table.LOGIN_ROLES:
                await inside.execute(f"ALTER ROLE {role} PASSWORD {_literal(unquote(password))}")
    finally:
        await inside.close()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _user() -> str | None:
    return UNPRIVILEGED if os.geteuid() == 0 else None
