"""Where is the service? The address given, or the one that ``make up`` and operators leave in a context file."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from plimsoll_client.cli.failures import CommandFailed, Exit

_HINT = "start one with `make up`, or give --url http://HOST:PORT"


def candidates(environ: Mapping[str, str], here: Path, home: Path) -> Iterator[Path]:
    """Name the context files that count, the first that exists first; one that is named counts alone."""
    if named := environ.get("PLIMSOLL_CONTEXT"):
        yield Path(named)
        return
    for folder in (here, *here.parents):
        yield folder / ".local" / "context.json"
    yield home / ".config" / "plimsoll" / "context.json"


def find_context() -> Path:
    """Find the context file.

    Raises:
        CommandFailed: there is none.
    """
    named = os.environ.get("PLIMSOLL_CONTEXT")
    found = next((path for path in candidates(os.environ, Path.cwd(), Path.home()) if path.is_file()), None)
    if found is None:
        where = f"PLIMSOLL_CONTEXT names {named}, which is no file" if named else "no running Plimsoll is known here"
        raise CommandFailed(Exit.UNREACHABLE, where, _HINT)
    return found


def read_context() -> Mapping[str, str]:
    """Read the context file.

    Raises:
        CommandFailed: there is none, or it cannot be read.
    """
    found = find_context()
    try:
        read = json.loads(found.read_text())
    except (OSError, ValueError) as error:
        raise CommandFailed(Exit.ERROR, f"{found} cannot be read: {error}", _HINT) from None
    if not isinstance(read, dict):
        raise CommandFailed(Exit.ERROR, f"{found} cannot be read: it is no JSON object", _HINT)
    return {str(name): str(value) for name, value in read.items()}


def service_url(given: str | None) -> str:
    """Return the address of the HTTP API.

    Raises:
        CommandFailed: none is known.
    """
    url = given or read_context().get("http")
    if not url:
        raise CommandFailed(Exit.UNREACHABLE, "the context file names no service ('http')", _HINT)
    return url if "://" in url else f"http://{url}"
