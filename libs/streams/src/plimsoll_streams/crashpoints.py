"""Where does a process die when a test asks it to: SIGKILL at a named point, nothing when nobody asks."""

import os
import signal
import sys

_name, _, _count = os.environ.get("PLIMSOLL_CRASH_AT", "").partition(":")
_left = int(_count or 1)


def crash_at(name: str) -> None:
    """End this process as `kill -9` would if `PLIMSOLL_CRASH_AT` is `name` (or `name:n`, at the n-th passing)."""
    if name != _name:
        return
    global _left  # noqa: PLW0603 - a countdown of the process
    _left -= 1
    if _left <= 0:
        # Said first, so that a test can tell a hit from a process that died of something else.
        os.write(sys.stderr.fileno(), f"crash point {name}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
