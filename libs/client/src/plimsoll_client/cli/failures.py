"""How does the command fail: its exit codes, and an error that says what to try next."""

from collections.abc import Mapping
from enum import IntEnum


class Exit(IntEnum):
    """The exit codes, for scripts."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    DEGRADED = 4
    """The figures were shown, but a gate is failing open."""
    DENIED = 5
    CONFLICT = 6
    AUTH = 7
    UNREACHABLE = 8


EXIT_HELP = """Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 degraded (a gate is failing open, or the doctor found
something to look at), 5 limit exceeded or denied, 6 conflict, 7 not allowed, 8 service not reachable."""

_BY_STATUS: Mapping[int, Exit] = {
    400: Exit.USAGE,
    401: Exit.AUTH,
    403: Exit.AUTH,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    410: Exit.NOT_FOUND,
    412: Exit.CONFLICT,
    413: Exit.USAGE,
    422: Exit.USAGE,
    428: Exit.CONFLICT,
    502: Exit.UNREACHABLE,
    503: Exit.UNREACHABLE,
    504: Exit.UNREACHABLE,
}


def exit_for(status: int) -> Exit:
    """Choose the exit code of an HTTP error."""
    return _BY_STATUS.get(status, Exit.ERROR)


class CommandFailed(Exception):
    """The command cannot do what it was asked; ``hint`` is what to try next."""

    def __init__(self, code: Exit, message: str, hint: str = "") -> None:
        """Keep all three for the one place that prints."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
