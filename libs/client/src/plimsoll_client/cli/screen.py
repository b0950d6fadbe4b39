"""How does text reach a terminal: nothing that others wrote can act on it, and a watch redraws it without flicker."""

import io
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.figures import clean

_WIDE = 240
"""Columns where neither a terminal nor ``COLUMNS`` sets them."""
_WRAPPED_MIN = 16
"""The least that a column of sentences is given beside others."""
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


@dataclass(frozen=True, slots=True)
class Guarded:
    """What is drawn, with every character that could act on a terminal written out: the last wall, for every command.

    Cells are made safe where they are filled, so that columns stay straight; what was forgotten there ends here.
    """

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        inner = Text(self.inner) if isinstance(self.inner, str) else self.inner
        for text, style, control in console.render(inner, options):
            safe = "\n".join(clean(line) for line in text.split("\n"))
            yield Segment(text, style, control) if control else Segment(safe, style)


class Fitted(Table):
    """A table that is a paragraph a row where its columns have no room side by side: no figure is ever cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it in the room there is."""
        if self._needed() <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            parts = [
                Text.assemble((f"{column.header} ".lstrip(), "bold"), cell if isinstance(cell, Text) else str(cell))
                for column, cell in zip(self.columns, cells, strict=True)
                if str(cell).strip()
            ]
            if parts:
                yield parts[0]
                yield Padding(Text("  ").join(parts[1:]), (0, 0, 0, 2))

    def _needed(self) -> int:
        """Columns without which something would be cut; a column that may be wrapped takes what is left."""
        needed = 0
        for column in self.columns:
            widest = max(cell_len(getattr(cell, "plain", str(cell))) for cell in (column.header, *column.cells))
            needed += (widest if column.no_wrap else min(widest, _WRAPPED_MIN)) + 2
        return needed


def console(*, stderr: bool, frame: io.StringIO | None = None) -> Console:
    """Return a console on stdout, on stderr, or on the frame that a watch is about to draw."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDE
    more = {"file": frame, "force_terminal": True} if frame is not None else {"stderr": stderr}
    return Console(width=width, markup=False, emoji=False, highlight=False, **more)


def write(what: RenderableType, *, stderr: bool, style: str = "", frame: io.StringIO | None = None) -> None:
    """Write what people read."""
    on = console(stderr=stderr, frame=frame)
    # Lines of text are for the next program as they are, however narrow; only a table fits itself to a width.
    on.print(Guarded(what), style=style, soft_wrap=isinstance(what, str | Text) and not on.is_terminal)


def can_redraw() -> bool:
    """Tell whether stdout is a terminal on which the cursor can be moved."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def watch(once: Callable[[io.StringIO | None], Exit], seconds: float, now: Callable[[], datetime]) -> Exit:
    """Run a command again and again until Ctrl-C, which is how a watch ends well.

    Args:
        once: runs it, into the frame that it is given, or to stdout where that is None.
        seconds: between two runs.
        now: the time, for the head line.

    Raises:
        CommandFailed: the first run failed, or a later one for another reason than that nobody answered.
    """
    redraws, last = can_redraw(), ""
    try:
        while True:
            frame = io.StringIO() if redraws else None
            try:
                once(frame)
                last, trouble = frame.getvalue() if frame is not None else "-", ""
            except CommandFailed as failure:
                if failure.code is not Exit.UNREACHABLE or not last:
                    raise
                trouble = f"{failure.message}; trying again every {seconds:g} s, the figures are the last ones known"
            if redraws:
                _redraw(f"every {seconds:g} s, {now().astimezone():%H:%M:%S}, Ctrl-C ends", last, trouble)
            elif trouble:
                write(f"{now():%H:%M:%SZ}  {trouble}", stderr=True)
            else:
                sys.stdout.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        return Exit.OK
    finally:
        if redraws:
            sys.stdout.write(_SHOW_CURSOR)
            sys.stdout.flush()


def _redraw(head: str, body: str, trouble: str) -> None:
    """Write the whole screen in one piece over what was there: nothing is cleared before it is written anew."""
    room = console(stderr=False).height - 2
    lines = [head, *([f"! {clean(trouble)}"] if trouble else []), "", *body.rstrip("\n").split("\n")]
    if len(lines) > room:
        lines = [*lines[: room - 1], f"... and {len(lines) - room + 1} more lines: make the window larger"]
    sys.stdout.write(_HIDE_CURSOR + _HOME + f"{_REST_OF_LINE}\n".join(lines) + _REST_OF_LINE + "\n" + _REST)
    sys.stdout.flush()
