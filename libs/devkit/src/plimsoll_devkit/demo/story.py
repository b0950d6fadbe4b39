"""What does the demo say, and does what was seen match what was expected?"""

import json
import os
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from plimsoll_client import Allowed, Denied

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table at the end. `holds` is None for what could not be looked at here."""

    what: str
    expected: str
    seen: str
    holds: bool | None


class Story:
    """Prints chapters as they happen and keeps what was expected and seen."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._bold = out.isatty() and "NO_COLOR" not in os.environ
        self._began = time.monotonic()
        self._chapters = 0
        self.rows: list[Row] = []

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    @property
    def failed(self) -> bool:
        """Whether anything seen differs from what was expected."""
        return not self.rows or any(row.holds is False for row in self.rows)

    def line(self, text: str = "") -> None:
        """Print one line as it is."""
        print(text, file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Say a sentence or two."""
        self.line(textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent="    "))

    def chapter(self, title: str, text: str) -> None:
        """Begin the next chapter."""
        self._chapters += 1
        heading = f"{self._chapters}. {title}"
        self.line()
        self.line(f"{self.elapsed:5.1f} s  {f'{chr(27)}[1m{heading}{chr(27)}[0m' if self._bold else heading}")
        self.say(text)

    def ran(self, command: str, output: str) -> None:
        """Show a command and what it printed."""
        self.line(f"    $ {command}")
        self.printed(output)

    def printed(self, output: str) -> None:
        """Show lines as they came."""
        for line in output.rstrip().splitlines():
            self.line(f"      {line}".rstrip())

    def sent(self, where: str, body: Mapping[str, object] | str) -> None:
        """Show what was put on a topic or asked of a server."""
        self._shown(f"--> {where}", body)

    def came(self, where: str, body: Mapping[str, object] | str) -> None:
        """Show what came back."""
        self._shown(f"<-- {where}", body)

    def expect(self, what: str, expected: object, seen: object, *, holds: bool | None = None) -> None:
        """Keep a line for the table; equal is what holds, unless `holds` says."""
        self.rows.append(Row(what, shown(expected), shown(seen), expected == seen if holds is None else holds))

    def skip(self, what: str, expected: object, why: str) -> None:
        """Keep a line for what could not be looked at here."""
        self.rows.append(Row(what, shown(expected), why, None))

    def table(self) -> str:
        """What was expected and seen, line by line."""
        marks = {True: "ok", False: "DIFFERS", None: "skipped"}
        heads = Row("", "expected", "seen", holds=None)
        widths = [max(len(getattr(row, name)) for row in (heads, *self.rows)) for name in ("what", "expected", "seen")]
        lines = [f"{'':<{widths[0]}}  {'expected':<{widths[1]}}  {'seen':<{widths[2]}}".rstrip()]
        lines += [
            f"{row.what:<{widths[0]}}  {row.expected:<{widths[1]}}  {row.seen:<{widths[2]}}  {marks[row.holds]}"
            for row in self.rows
        ]
        return "\n".join(lines)

    def _shown(self, prefix: str, body: Mapping[str, object] | str) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        indent = " " * (4 + len("--> "))
        self.line(textwrap.fill(f"    {prefix}  {text}", _WIDTH, subsequent_indent=indent, break_on_hyphens=False))


def shown(value: object) -> str:
    """A value as the table prints it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, set | frozenset | list | tuple):
        return ", ".join(sorted(map(str, value))) or "none"
    return str(value)


def verdict(outcome: object) -> str:
    """An answer in one word: allowed, or the code of the refusal."""
    match outcome:
        case Allowed():
            return "allowed"
        case Denied(code=code):
            return code
        case _:
            return str(outcome)
