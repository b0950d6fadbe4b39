"""What do the files of ``plimsoll quota check`` say: a compose file as it is, an app file's multipliers."""

import re
import sys
from pathlib import Path

import yaml

from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.figures import clean
from plimsoll_contracts.requests import MAX_COMPOSE_CHARACTERS, MultiplierTerms

STDIN = Path("-")
_APP_FILE_BYTES = 65_536
_MULTIPLIERS = {"reservation_multiplier": "reservation_milli", "limit_multiplier": "limit_milli"}
_FACTOR = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?")
_RENDER = "send what `docker compose config` prints: `docker compose config | plimsoll quota check SCOPE -f -`"


def read_compose_file(file: Path) -> str:
    """Read a rendered compose file; the service is who understands it.

    Raises:
        CommandFailed: it cannot be read, is no text, empty, or too large.
    """
    text = _read(file, MAX_COMPOSE_CHARACTERS * 4)
    if not text.strip():
        raise CommandFailed(Exit.USAGE, f"{clean(file)} is empty", _RENDER)
    if len(text) > MAX_COMPOSE_CHARACTERS:
        told = f"{clean(file)} has {len(text):,} characters, and {MAX_COMPOSE_CHARACTERS:,} is the most that is taken"
        raise CommandFailed(Exit.USAGE, told, "leave out what has nothing to do with services")
    return text


def read_app_file(file: Path) -> MultiplierTerms | None:
    """Read the multipliers of an app file, in which ``quota`` may name them as ``1.25``; None where it names none.

    Raises:
        CommandFailed: it cannot be read, or a multiplier is none.
    """
    try:
        # Every scalar stays the text that it is: nobody has to know what YAML thinks of it.
        read = yaml.load(_read(file, _APP_FILE_BYTES), Loader=yaml.BaseLoader)  # noqa: S506 - BaseLoader makes text, lists and mappings only
    except (yaml.YAMLError, RecursionError):
        raise CommandFailed(Exit.USAGE, f"{clean(file)} is no YAML", "") from None
    quota = read.get("quota") if isinstance(read, dict) else None
    if not isinstance(quota, dict):
        return None
    terms = {field: _milli(file, name, quota[name]) for name, field in _MULTIPLIERS.items() if name in quota}
    return MultiplierTerms(**terms) if terms else None


def _milli(file: Path, name: str, value: object) -> int:
    found = _FACTOR.fullmatch(value) if isinstance(value, str) else None
    milli = int(found[1]) * 1000 + int((found[2] or "").ljust(3, "0")) if found else 0
    if not 100 <= milli <= 100_000:  # noqa: PLR2004 - the contract's own bounds, said in the file's words
        told = f"{clean(file)}: quota.{name} is {clean(repr(value)[:80])}"
        raise CommandFailed(Exit.USAGE, told, "write a number from 0.1 to 100, such as 1.25")
    return milli


def _read(file: Path, bytes_max: int) -> str:
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with file.open("rb") as opened:
                content = opened.read(bytes_max + 1)
        if len(content) > bytes_max:
            raise CommandFailed(Exit.USAGE, f"{clean(file)} has more than {bytes_max // 1024} KiB", "")
        return content.decode()
    except UnicodeDecodeError:
        raise CommandFailed(Exit.USAGE, f"{clean(file)} is no text in UTF-8", "") from None
    except OSError as error:
        raise CommandFailed(Exit.USAGE, f"{clean(file)} cannot be read: {error.strerror}", "") from None
