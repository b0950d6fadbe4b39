"""Which multipliers hold for a request? Request, app file, config, built-in: the first that says so, within bounds."""

from dataclasses import dataclass
from typing import Protocol

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_quota_enforcer.domain.model import BUILT_IN, Multipliers


class Terms(Protocol):
    """What one of the four says, in thousandths; None leaves it to the next."""

    @property
    def reservation_milli(self) -> int | None:
        """What reservations charge."""

    @property
    def limit_milli(self) -> int | None:
        """How far compose limits together may over-subscribe a limit."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a request or an app file may widen: charge less for reservations, over-subscribe limits more."""

    reservation_min_milli: int
    limit_max_milli: int


WIDEST = Bounds(1, 1_000_000)
"""Wider than anything that a request can name."""


class MultiplierOutOfBounds(ValueError):
    """What is asked for widens further than the platform allows."""

    code: Code = codes.MULTIPLIER_OUT_OF_BOUNDS

    def __init__(self, detail: str) -> None:
        """Keep what the caller is told."""
        super().__init__(detail)
        self.detail = detail


def resolve_multipliers(
    request: Terms | None, app_file: Terms | None, config: Terms | None, bounds: Bounds
) -> Multipliers:
    """Resolve each multiplier by itself (DESIGN 5.4).

    Only what is resolved is judged: an app file's multiplier that the request overrides does no harm. What the
    platform itself holds by is never out of bounds, and narrowing always is allowed.

    Raises:
        MultiplierOutOfBounds: the request or the app file widens beyond the bounds.
    """
    ours = Multipliers(
        _first(BUILT_IN.reservation_milli, config.reservation_milli if config else None),
        _first(BUILT_IN.limit_milli, config.limit_milli if config else None),
    )
    theirs = [terms for terms in (request, app_file) if terms is not None]
    found = Multipliers(
        _first(ours.reservation_milli, *(terms.reservation_milli for terms in theirs)),
        _first(ours.limit_milli, *(terms.limit_milli for terms in theirs)),
    )
    least, most = (
        min(bounds.reservation_min_milli, ours.reservation_milli),
        max(bounds.limit_max_milli, ours.limit_milli),
    )
    if found.reservation_milli < least:
        raise MultiplierOutOfBounds(f"reservation_milli is {found.reservation_milli}, at least {least} is charged here")
    if found.limit_milli > most:
        raise MultiplierOutOfBounds(f"limit_milli is {found.limit_milli}, at most {most} is allowed here")
    return found


def _first(otherwise: int, *told: int | None) -> int:
    return next((one for one in told if one is not None), otherwise)
