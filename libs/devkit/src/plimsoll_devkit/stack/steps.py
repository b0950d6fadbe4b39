"""Which step of a set-up is running, how far is it, and how long has it taken?"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Note = Callable[[str], None]
_QUIET_SECONDS = 2.0


class Steps:
    """Prints one line per step with its elapsed time; on a terminal the line is live."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out if out is not None else sys.stderr
        self._live = self._out.isatty()
        self._began = time.monotonic()
        self._lock = threading.Lock()

    @contextmanager
    def step(self, title: str) -> Iterator[Note]:
        """Run the body as one step; the yielded function says how far it is."""
        began = time.monotonic()
        said, said_at, printed = "...", began, "..."

        def note(text: str) -> None:
            nonlocal said, said_at, printed
            said, now = text, time.monotonic()
            if self._live:
                self._write(f"\r\033[K  {now - began:5.1f} s  {title}  {text}")
            elif now - said_at > _QUIET_SECONDS:
                said_at, printed = now, text
                self._write(f"  {now - began:5.1f} s  {title}  {text}\n")

        note("...")
        try:
            yield note
        except BaseException:
            self._write(f"{self._clear()}  {time.monotonic() - began:5.1f} s  {title}  FAILED\n")
            raise
        text = "" if said in ("...", printed) else f"  {said}"
        self._write(f"{self._clear()}  {time.monotonic() - began:5.1f} s  {title}{text}\n")

    def say(self, text: str) -> None:
        """Print a line that is no step."""
        self._write(f"{self._clear()}{text}\n")

    @property
    def elapsed(self) -> float:
        """Seconds since this object was made."""
        return time.monotonic() - self._began

    def _clear(self) -> str:
        return "\r\033[K" if self._live else ""

    def _write(self, text: str) -> None:
        with self._lock:
            self._out.write(text)
            self._out.flush()
