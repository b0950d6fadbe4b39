"""How are amounts written: the one strict parser and the one formatter of cpu, bytes and counts. No floats."""

import re

from plimsoll_contracts.dimensions import Unit

MAX_AMOUNT = 2**53 - 1
"""Largest amount in base units: every JSON reader keeps it exact (9 PB, 9 trillion cores)."""

MULTIPLIER_SCALE = 1000
"""Multipliers are kept as thousandths, so that 1.5 is exactly 1500."""

_CORES = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,3}))?")
_MILLICORES = re.compile(r"([0-9]{1,16})m")
_BYTES = re.compile(r"([0-9]{1,16})(?:([kmgtp])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"[0-9]{1,16}")
_POWERS = "kmgtp"

AMOUNT_PATTERNS = {
    Unit.MILLICORES: r"^[0-9]{1,16}(m|\.[0-9]{1,3})?$",
    Unit.BYTES: r"^[0-9]{1,16}([kKmMgGtTpP]([iI]?[bB])?|[bB])?$",
    Unit.COUNT: r"^[0-9]{1,16}$",
}
"""The same grammar for readers of the published schemas."""


_MAX_SHOWN_BITS = 128


def _shown(value: object) -> str:
    """Name what was written, but never much of it: Python refuses to print integers of thousands of digits."""
    if isinstance(value, str):
        return repr(value[:60])
    if isinstance(value, int) and value.bit_length() <= _MAX_SHOWN_BITS:
        return repr(value)
    return f"a value of type {type(value).__name__}"


class QuantityError(ValueError):
    """An amount is written in a way its unit does not have, is negative, or is too large."""

    def __init__(self, unit: Unit, text: object, why: str) -> None:
        """Keep the unit, so that the edge can choose the code of the error."""
        super().__init__(f"{_shown(text)} is not an amount of {unit}: {why}")
        self.unit = unit


def parse(unit: Unit, value: object) -> int:
    """Read an amount into base units.

    An integer is taken as base units (millicores, bytes, a count). A text is read by its unit: cpu in cores
    (``"0.5"`` is 500) or millicores (``"500m"``), bytes with binary suffixes in any case and no decimals
    (``"512m"``, ``"8g"``, ``"8GiB"``), counts as plain digits.

    Raises:
        QuantityError: it is neither, is negative, or exceeds ``MAX_AMOUNT``.
    """
    if type(value) is int:
        amount = value
    elif isinstance(value, str):
        amount = _read(unit, value)
    else:
        raise QuantityError(unit, value, "write an integer in base units or a text")
    if amount < 0:
        raise QuantityError(unit, value, "it is negative")
    if amount > MAX_AMOUNT:
        raise QuantityError(unit, value, f"it is above {MAX_AMOUNT} in base units")
    return amount


def _read(unit: Unit, text: str) -> int:
    if unit is Unit.MILLICORES:
        if match := _MILLICORES.fullmatch(text):
            return int(match[1])
        if match := _CORES.fullmatch(text):
            return int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0"))
        raise QuantityError(unit, text, 'write cores ("0.5", at most three decimals) or millicores ("500m")')
    if unit is Unit.BYTES:
        if match := _BYTES.fullmatch(text):
            return int(match[1]) << 10 * (_POWERS.index(match[2].lower()) + 1 if match[2] else 0)
        raise QuantityError(unit, text, 'write whole bytes with a binary suffix ("512m", "8g", "8GiB")')
    if _COUNT.fullmatch(text):
        return int(text)
    raise QuantityError(unit, text, "write a whole number")


def render(unit: Unit, amount: int) -> str:
    """Write an amount so that ``parse`` gives it back exactly: ``4000m``, ``8GiB``, ``12``."""
    if unit is Unit.MILLICORES:
        return f"{amount}m"
    if unit is Unit.BYTES:
        power = 0
        while amount and amount % 1024 == 0 and power < len(_POWERS):
            amount //= 1024
            power += 1
        return f"{amount}{_POWERS[power - 1].upper()}iB" if power else f"{amount}B"
    return str(amount)


def scale_up(amount: int, multiplier_milli: int) -> int:
    """Scale what is charged, rounding up: a charge is never smaller than its share."""
    return -(-amount * multiplier_milli // MULTIPLIER_SCALE)


def scale_down(amount: int, multiplier_milli: int) -> int:
    """Scale a limit, rounding down: a limit is never larger than what was set."""
    return amount * multiplier_milli // MULTIPLIER_SCALE
