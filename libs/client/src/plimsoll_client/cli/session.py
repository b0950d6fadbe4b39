"""With what does a command run: where it writes, in which format, and the service it asks."""

import csv
import getpass
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter
from pydantic import BaseModel
from rich.console import RenderableType
from rich.text import Text

from plimsoll_client.cli.api import Api
from plimsoll_client.cli.context import bearer_token, service_url
from plimsoll_client.cli.failures import Exit
from plimsoll_client.cli.figures import clean
from plimsoll_client.cli.screen import console, write

_FORMULA = ("=", "+", "-", "@")

C = TypeVar("C", bound=Callable[..., Exit])


class Output(StrEnum):
    """How data is written to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass
class Session:
    """One run of the command."""

    output: Output = Output.TABLE
    url: str | None = None
    token_file: Path | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    frame: io.StringIO | None = None
    """Where a watch that redraws collects what is written; None writes at once."""
    is_watch: bool = False

    @cached_property
    def api(self) -> Api:
        """The service, found when first needed."""
        url = service_url(self.url)
        return Api(url, bearer_token(self.token_file, url))

    @cached_property
    def user(self) -> str:
        """Who runs this."""
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return f"uid {os.getuid()}"

    def by(self, given: str | None) -> str | None:
        """Who is written down for what is done: None where a token says it."""
        return given or (None if self.api.says_who else self.user)

    @cached_property
    def fine(self) -> bool:
        """Whether stdout can show block characters."""
        return "utf" in (sys.stdout.encoding or "").lower()

    @cached_property
    def width(self) -> int:
        """Columns that stdout has."""
        return console(stderr=False).width

    def show(self, data: object, table: Callable[[], RenderableType], rows: Iterable[Mapping[str, object]]) -> None:
        """Write data to stdout in the format asked for.

        Args:
            data: The model, or plain value, for JSON: amounts are integers in base units.
            table: Makes what people read.
            rows: Flat lines for CSV, all with the same columns.
        """
        match self.output:
            case Output.TABLE:
                drawn = table()
                if not isinstance(drawn, Text) or drawn.plain:  # nothing is no line
                    write(drawn, stderr=False, frame=self.frame)
                self._out("\n" if self.is_watch else "")
            case Output.JSON:
                # Escaped to ASCII, so that no text from elsewhere can act on a terminal. A watch writes one a line.
                indent = None if self.is_watch else 2
                self._out(json.dumps(_plain(data), indent=indent, ensure_ascii=True) + "\n")
            case Output.CSV:
                self._out(_csv(list(rows)) + ("\n" if self.is_watch else ""))

    def follow(self, data: BaseModel, line: RenderableType, row: Mapping[str, object], *, first: bool) -> None:
        """Write one of many that come one by one: a line of text, JSON or CSV, whose header comes before the first."""
        match self.output:
            case Output.TABLE:
                write(line, stderr=False, frame=self.frame)
            case Output.JSON:
                self._out(json.dumps(_plain(data), ensure_ascii=True) + "\n")
            case Output.CSV:
                self._out(_csv([row]) if first else _csv([row]).partition("\n")[2])
        sys.stdout.flush()

    def say(self, text: str, style: str = "") -> None:
        """Write a remark to stderr."""
        write(text, stderr=True, style=style, frame=self.frame)

    def _out(self, text: str) -> None:
        (self.frame or sys.stdout).write(text)

    def once_more(self, frame: io.StringIO | None) -> None:
        """Make ready for the next run of a watch: it is later now, and the service may be elsewhere."""
        self.now, self.frame, self.is_watch = datetime.now(UTC), frame, True


In = Annotated[Session, Parameter(parse=False)]
"""How a command takes its session: not from the command line."""


def watchable(command: C) -> C:
    """Mark a command that only reads, so that it may be run again and again: ``--watch``."""
    command.is_watchable = True  # type: ignore[attr-defined]
    return command


PLAIN_FLAGS = Parameter(negative="")
"""A flag has no ``--no-`` twin."""


def _plain(data: object) -> Any:
    if isinstance(data, BaseModel):
        return data.model_dump(mode="json")
    if isinstance(data, Mapping):
        return {str(name): _plain(value) for name, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [_plain(value) for value in data]
    return data


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: object) -> str:
    """Write one cell; a text that a spreadsheet would take for a formula is marked as a text."""
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{clean(value)}"
    return clean(value)
