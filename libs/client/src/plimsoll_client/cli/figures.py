"""How is one figure written for people: amounts, ages, bars, and text from elsewhere made safe to print. All pure."""

import re
import unicodedata
from datetime import UTC, datetime, timedelta

from plimsoll_contracts.dimensions import Basis, Dimension, Unit
from plimsoll_contracts.quantities import render

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that move the cursor, hide, reorder or break lines."""

_SPANS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_DURATION_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_EIGHTHS = " ▏▎▍▌▋▊▉"


def clean(text: object) -> str:
    r"""Make text from elsewhere safe for a terminal: control and invisible characters are written as ``\x1b``."""
    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in str(text))


def _escaped(character: str) -> str:
    point = ord(character)
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"  # noqa: PLR2004  the sizes of Python's escapes


def amount(unit: Unit, value: int | str | None) -> str:
    """Write an amount, ``unlimited``, or ``-`` for none."""
    return "-" if value is None else render(unit, value) if isinstance(value, int) else clean(value)


def short(unit: Unit, value: int | str) -> str:
    """Write an amount as people write it in files, so that it reads back exactly: ``4``, ``500m``, ``8GiB``."""
    if unit is Unit.MILLICORES and isinstance(value, int) and value % 1000 == 0:
        return str(value // 1000)
    return amount(unit, value)


def named(dimension: Dimension, basis: Basis | None) -> str:
    """Write a dimension with its basis: ``cpu (reserved)``."""
    return f"{dimension} ({basis})" if basis else str(dimension)


def span(seconds: float) -> str:
    """Write a length of time in its largest whole unit: ``2h``."""
    for size, letter in _SPANS:
        if seconds >= size:
            return f"{int(seconds // size)}{letter}"
    return "0s"


def age(then: datetime | None, now: datetime) -> str:
    """Write how long ago something was: ``38s ago``, ``in 3d``, or ``never``."""
    if then is None:
        return "never"
    seconds = (now - then).total_seconds()
    return f"{span(seconds)} ago" if seconds > -1 else f"in {span(-seconds)}"


def percent(value: int, ceiling: int | None) -> str:
    """Write a share; ``-`` where there is nothing to share."""
    if ceiling is None:
        return "-"
    if ceiling == 0:
        return "0 %" if value <= 0 else "over"
    return f"{value * 100 // ceiling} %"


def bar(used: int, held: int, ceiling: int | None, *, width: int = 16, fine: bool = True) -> str:
    """Draw used, held and free room. ``fine`` is for terminals that have block characters."""
    if ceiling is None:
        return " " * width
    cells = [
        min(width * 8, max(0, part) * width * 8 // ceiling) if ceiling else width * 8 for part in (used, used + held)
    ]
    if not ceiling and used + held <= 0:
        cells = [0, 0]
    solid, taken = cells
    if not fine:
        return "".join("#" if i * 8 < solid else "+" if i * 8 < taken else "." for i in range(width))
    full, part = divmod(solid, 8)
    drawn = "█" * full + (_EIGHTHS[part] if part and taken - solid < 8 - part else "")
    drawn += "▒" * (-(-taken // 8) - len(drawn))
    return drawn + "░" * (width - len(drawn))


def parse_until(text: str, now: datetime) -> datetime:
    """Read when something ends: a length of time from now (``2h``, ``3d``), a date, or a date and time.

    A date or time without an offset is in local time.

    Raises:
        ValueError: it is none of these, or not in the future.
    """
    if match := _DURATION.fullmatch(text):
        return now + timedelta(seconds=int(match[1]) * _DURATION_SECONDS[match[2]])
    try:
        ends = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 2h, 3d, 2026-12-24 or 2026-12-24T18:00") from None
    if ends <= now:
        raise ValueError(f"{text} is in the past")
    return ends


def parse_since(text: str, now: datetime) -> datetime:
    """Read when something was: a length of time before now (``2h``, ``3d``), a date, or a date and time.

    A date or time without an offset is in local time.

    Raises:
        ValueError: it is none of these, or in the future.
    """
    if match := _DURATION.fullmatch(text):
        return now - timedelta(seconds=int(match[1]) * _DURATION_SECONDS[match[2]])
    try:
        then = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time: write 2h (ago), 3d, 2026-11-30 or 2026-11-30T12:00") from None
    if then > now:
        raise ValueError(f"{text} is in the future")
    return then


def moment(when: datetime) -> str:
    """Write an instant for people, to the second."""
    return f"{when:%Y-%m-%d %H:%M:%S %Z}"
