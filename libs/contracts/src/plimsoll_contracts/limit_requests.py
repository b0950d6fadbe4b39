"""What is told of requests for other limits: somebody asked, and somebody else decided."""

from enum import StrEnum

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.fields import Event, Instant, LimitValue


class RequestState(StrEnum):
    """Where a request for a limit stands; all but ``asked`` are final."""

    ASKED = "asked"
    APPROVED = "approved"
    REJECTED = "rejected"


class LimitRequested(Event):
    """Somebody asked for another limit."""

    id: int
    tenant: str
    scope: str
    dimension: Dimension
    value: LimitValue
    """An amount in base units, or ``unlimited``."""
    asked_by: str
    reason: str
    asked_at: Instant


class LimitRequestDecided(Event):
    """A request for another limit was approved, and the limit set with it, or rejected."""

    id: int
    tenant: str
    scope: str
    dimension: Dimension
    value: LimitValue
    """As it was asked for."""
    state: RequestState
    granted: LimitValue | None = None
    """What was set, which may be another amount; None where it was rejected."""
    expires_at: Instant | None = None
    version: int | None = None
    """Of the limit that was set."""
    decided_by: str
    reason: str
    decided_at: Instant
    seq: int | None = None
    """The tenant's, after the limit was set."""
