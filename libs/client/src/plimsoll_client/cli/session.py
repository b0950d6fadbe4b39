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
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.text import Text

from plimsoll_client.cli.api import Api
from plimsoll_client.cli.context import bearer_token, service_url
from plimsoll_client.cli.figures import clean

_WIDE = 240
"""Columns where neither a terminal nor ``COLUMNS`` sets them."""


class Output(StrEnum):
    """How data is written to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def _print(what: RenderableType, *, stderr: bool, style: str = "") -> None:
    console = _console(stderr=stderr)
    # Lines of text are for the next program as they are, however narrow; only a table fits itself to a width.
    console.print(what, style=style, soft_wrap=isinstance(what, str | Text) and not console.is_terminal)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDE
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


@dataclass
class Session:
    """One run of the command."""

    output: Output = Output.TABLE
    url: str | None = None
    token_file: Path | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

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

    @cached_property
    def fine(self) -> bool:
        """Whether stdout can show block characters."""
        return "utf" in (sys.stdout.encoding or "").lower()

    @cached_property
    def width(self) -> int:
        """Columns that stdout has."""
        return _console(stderr=False).width

    def show(self, data: object, table: Callable[[], RenderableType], rows: Iterable[Mapping[str, object]]) -> None:
        """Write data to stdout in the format asked for.

        Args:
            data: The model, or plain value, for JSON: amounts are integers in base units.
            table: Makes what people read.
            rows: Flat lines for CSV, all with the same columns.
        """
        match self.output:
            case Output.TABLE:
                _print(table(), stderr=False)
            case Output.JSON:
                # Escaped to ASCII, so that no text from elsewhere can act on a terminal.
                print(json.dumps(_plain(data), indent=2, ensure_ascii=True))  # noqa: T201  data goes to stdout
            case Output.CSV:
                print(_csv(list(rows)), end="")  # noqa: T201  data goes to stdout

    def say(self, text: str, style: str = "") -> None:
        """Write a remark to stderr."""
        _print(text, stderr=True, style=style)


In = Annotated[Session, Parameter(parse=False)]
"""How a command takes its session: not from the command line."""

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
    writer.writerows({name: "" if v is None else clean(v) for name, v in row.items()} for row in rows)
    return text.getvalue()
