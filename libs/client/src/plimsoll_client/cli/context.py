"""Where is the service, and with which token is it asked? What is given, or what the context file names."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from plimsoll_client.cli.failures import CommandFailed, Exit

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MINT_HINT = "make one with `plimsoll token`, or give another --token-file"
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
    known = {str(name): str(value) for name, value in read.items()}
    if _is_only_lying_around(found):
        _check_stranger(found, known)
    return known


def _is_only_lying_around(found: Path) -> bool:
    """Tell whether a context was neither named nor put into the home folder: whoever wrote it may be a stranger."""
    return "PLIMSOLL_CONTEXT" not in os.environ and found.parent != Path.home() / ".config" / "plimsoll"


def _check_stranger(found: Path, known: Mapping[str, str]) -> None:
    """Refuse a found context that would have a secret sent elsewhere: a checkout or an archive may bring one along.

    It may name this machine, and a token file of its own folder; nothing else.
    """
    host = urlsplit(_with_scheme(known.get("http", ""))).hostname
    file = known.get("token_file")
    hint = f"set PLIMSOLL_CONTEXT={found} if you trust it, or give --url"
    if host is not None and host not in _LOOPBACK:
        raise CommandFailed(Exit.ERROR, f"{found} was only found here, and names {host}: no token is sent there", hint)
    if file is not None and not Path(file).resolve().is_relative_to(found.parent.resolve()):
        raise CommandFailed(Exit.ERROR, f"{found} was only found here, and names a token outside its folder", hint)


def service_url(given: str | None) -> str:
    """Return the address of the HTTP API.

    Raises:
        CommandFailed: none is known.
    """
    url = given or read_context().get("http")
    if not url:
        raise CommandFailed(Exit.UNREACHABLE, "the context file names no service ('http')", _HINT)
    return _with_scheme(url)


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"http://{url}"


def bearer_token(given: Path | None, url: str) -> str | None:
    """Return the token to send: of the file given, of ``PLIMSOLL_TOKEN``, else of the file that the context names.

    The context's token is for the context's service: no other address is shown it.

    Raises:
        CommandFailed: the file cannot be read, or what is in it is no token.
    """
    if given is not None:
        return _token(given)
    if named := os.environ.get("PLIMSOLL_TOKEN"):
        return _checked(named, "PLIMSOLL_TOKEN")
    try:
        known = read_context()
    except CommandFailed:
        return None
    file = known.get("token_file")
    return _token(Path(file)) if file and service_url(None) == url else None


def _token(file: Path) -> str:
    try:
        return _checked(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CommandFailed(Exit.AUTH, f"the token in {file} cannot be read: {why}", _MINT_HINT) from None


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or any(character.isspace() for character in token):
        raise CommandFailed(Exit.AUTH, f"{where} holds no token", _MINT_HINT)  # and is not shown: it may be a secret
    return token
