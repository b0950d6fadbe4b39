"""How do the parts run here that need no preparation of their own: Valkey, and our own jobs and services?"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plimsoll_devkit.stack import containers, table
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
        return self.service.seconds

    async def prepare(self) -> None:
        """Nothing to prepare."""

    def launch(self) -> Launch:
        """The row's command and environment."""
        _, *arguments = table.command(self.service, self.values)
        argv = (str(self.program), *arguments, *self.extra)
        return Launch(argv, environment=table.environment(self.service, self.values))

    async def healthy(self) -> bool:
        """The row's health check, asked from here."""
        if self.service.health is None:
            return True
        return await containers.check(self.name, f"127.0.0.1:{self.values['port']}")()

    async def ready(self) -> None:
        """Nothing more to do."""


def valkey(program: Path, values: Mapping[str, str]) -> Plain:
    """Valkey or Redis, listening on loopback."""
    extra = ("--bind", values["bind"], "--port", values["port"])
    return Plain(table.BY_NAME["valkey"], values, program, extra)


def own(name: str, values: Mapping[str, str]) -> Plain:
    """A job or service of ours, in this environment's Python."""
    return Plain(table.BY_NAME[name], values, Path(sys.executable))
