"""How does Docker read an amount in a compose file? Exactly, or not at all: what it refuses is None here."""

import re

from plimsoll_contracts.quantities import MAX_AMOUNT
from plimsoll_quota_enforcer.domain.document import Scalar

_DECIMAL = r"((?:0|[1-9][0-9]{0,15})(?:\.[0-9]{0,20})?|\.[0-9]{1,20})"
"""Of all that Go reads as a number: no sign, exponent, underscore, nor a leading zero, which may mean octal."""
_CPUS = re.compile(_DECIMAL)
_BYTES = re.compile(_DECIMAL + r" ?(?:([kmgtp])(?:i?b)?|(b))?", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"0|[1-9][0-9]{0,8}")


def read_cpus(value: Scalar) -> int | None:
    """Read cores ("0.5", 0.5, 1) into millicores; what is finer than a millicore is rounded up.

    The decimal is taken as it is written, never through a binary float: 0.1 is 100 millicores.
    """
    match = _CPUS.fullmatch(value.text)
    if match is None:
        return None
    whole, _, fraction = match[1].partition(".")
    millicores = int(whole or 0) * 1000 + int(fraction[:3].ljust(3, "0")) + (1 if fraction[3:].strip("0") else 0)
    return millicores if millicores <= MAX_AMOUNT else None


def read_bytes(value: Scalar) -> int | None:
    """Read an amount of memory: a number, perhaps a space, a suffix b, k, kb, kib, m, ... p, pb, pib in any case.

    Suffixes are binary. Docker multiplies a double and drops what is less than a byte, so this does. A number
    without quotes has no suffix and must be whole: Docker reads 1.5 there as no limit at all.
    """
    match = _BYTES.fullmatch(value.text)
    if match is None or (value.plain and "." in match[1] and not (match[2] or match[3])):
        return None
    power = "kmgtp".index(match[2].lower()) + 1 if match[2] else 0
    amount = int(float(match[1]) * 1024**power)
    return amount if amount <= MAX_AMOUNT else None


def read_count(value: Scalar) -> int | None:
    """Read a whole number from 0."""
    return int(value.text) if _COUNT.fullmatch(value.text) else None
