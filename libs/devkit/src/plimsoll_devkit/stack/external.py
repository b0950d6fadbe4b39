"""Which parts of the stack run already, somewhere else, and are only used here?"""

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from plimsoll_devkit.stack import health, table
from plimsoll_devkit.stack.postgres import create_database

NAMED = {
    "kafka": "PLIMSOLL_USE_KAFKA",  # host:port
    "postgres": "PLIMSOLL_USE_POSTGRES",  # a superuser's connection: postgresql://user:password@host:port/postgres
    "valkey": "PLIMSOLL_USE_VALKEY",  # redis://host:port
}


def endpoint(name: str) -> str | None:
    """What clients connect with, as the part's variable says; None where it is to be started here."""
    variable = NAMED.get(name)
    return (os.environ.get(variable) or None) if variable else None


def address(name: str) -> str | None:
    """`host:port` of a part that runs already."""
    where = endpoint(name)
    return urlsplit(where if "://" in where else f"//{where}").netloc.rpartition("@")[2] if where else None


@dataclass(frozen=True, slots=True)
class External:
    """A part that is checked and prepared, never started or stopped."""

    name: str
    endpoint: str
    after: tuple[str, ...] = ()
    once: bool = False
    seconds: float = 10.0

    async def prepare(self) -> None:
        """Services log in as roles that have the superuser's password: they find it where libpq's clients look."""
        if self.name == "postgres" and (password := urlsplit(self.endpoint).password):
            os.environ["PGPASSWORD"] = password

    def launch(self) -> None:
        """Nothing to run."""

    async def healthy(self) -> bool:
        """Whether it answers."""
        match self.name:
            case "kafka":
                return await health.kafka(self.endpoint)
            case "postgres":
                return await health.postgres(self.endpoint)
            case _:
                return await health.valkey(address(self.name) or "")

    async def ready(self) -> None:
        """Make our database and roles where they are missing."""
        if self.name == "postgres":
            await create_database(self.endpoint, table.DATABASE)
