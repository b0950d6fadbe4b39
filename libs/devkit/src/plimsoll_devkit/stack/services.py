"""How do the parts run here that need no preparation of their own: Valkey, and our own jobs and services?"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plimsoll_devkit.stack import health, table
from plimsoll_devkit.stack.process import Launch


@dataclass(frozen=True, slots=True)
class Plain:
    """A row of the table run as it stands, its program replaced by the one found here."""

    service: table.Service
    values: Mapping[str, str]
    program: Path
    extra: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The row's name."""
        return self.service.name

    @property
    def after(self) -> tuple[str, ...]:
        """What must be ready before."""
        return self.service.after

    @property
    def once(self) -> bool:
        """Whether it is a job that runs and ends."""
        return self.service.kind == "job"

    @property
    def seconds(self) -> float:
        """How long it may take to be ready."""
        return float(self.service.health.seconds if self.service.health else 60)

    async def prepare(self) -> None:
        """Nothing to prepare."""

    def launch(self) -> Launch:
        """The row's command and environment."""
        _, *arguments = table.command(self.service, self.values)
        argv = (str(self.program), *arguments, *self.extra)
        return Launch(argv, environment=table.environment(self.service, self.values))

    async def healthy(self) -> bool:
        """The row's health check, asked from here."""
        address = f"127.0.0.1:{self.values.get('port', '')}"
        match self.service.health:
            case table.Health(probe="http", path=path):
                return await health.http(address, path)
            case table.Health(probe="valkey"):
                return await health.valkey(address)
            case _:
                return True

    async def ready(self) -> None:
        """Nothing more to do."""


def valkey(program: Path, values: Mapping[str, str]) -> Plain:
    """Valkey or Redis, listening on loopback."""
    extra = ("--bind", values["bind"], "--port", values["port"])
    return Plain(table.BY_NAME["valkey"], values, program, extra)


def own(name: str, values: Mapping[str, str]) -> Plain:
    """A job or service of ours, in this environment's Python."""
    return Plain(table.BY_NAME[name], values, Path(sys.executable))
