"""What of a declaration of limits is not so yet, and is a plan still the one that was looked at?"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_quota_enforcer.domain.model import Limit


@dataclass(frozen=True, slots=True)
class Declared:
    """A limit as it is declared; ``value`` None is unlimited."""

    value: int | None
    mode: Mode = Mode.ENFORCE
    expires_at: datetime | None = None
    reason: str = ""
    """Why this one; empty where the reason of the whole says it."""


Declaration = Mapping[Dimension, Declared | None]
"""What is declared at one scope; None inherits, and what is not named stays as it is."""

What = tuple[int | None, Mode, datetime | None]


def standing(limit: Limit | Declared | None, now: datetime) -> What | None:
    """Return what a limit says, or None where there is none or its time has passed; why and by whom do not count."""
    if limit is None or (limit.expires_at is not None and limit.expires_at <= now):
        return None
    return limit.value, limit.mode, limit.expires_at


def wishes(present: Mapping[Dimension, Limit], declared: Declaration, now: datetime) -> Declaration:
    """Return what of a declaration is not so yet, in the order of dimensions; what has ended is wished away."""
    return {
        dimension: declared[dimension] if standing(declared[dimension], now) is not None else None
        for dimension in Dimension
        if dimension in declared and standing(declared[dimension], now) != standing(present.get(dimension), now)
    }


def tag(changes: Iterable[tuple[str, Dimension, int, What | None, What | None, bool]]) -> str:
    """Name a plan by everything that whoever looked at it went by.

    Args:
        changes: by scope and dimension: the version until now, what is set until then and from then on, and whether
            that lies below usage.
    """
    told = json.dumps([[scope, dimension, *map(str, rest)] for scope, dimension, *rest in changes])
    return blake2b(told.encode(), digest_size=16).hexdigest()
