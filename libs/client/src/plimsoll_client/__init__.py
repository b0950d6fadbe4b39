"""How callers speak to Plimsoll: the enforcement client, its outcomes, and the ``plimsoll`` command (extra ``cli``)."""

from plimsoll_client.channel import ClientStartError, Counters
from plimsoll_client.client import EnforcementClient
from plimsoll_client.outcomes import (
    Allowed,
    Denied,
    OnUnknown,
    Outcome,
    QuotaDenied,
    QuotaUnknown,
    Unknown,
    UnknownReason,
)
from plimsoll_client.reservation import Reservation

__all__ = [
    "Allowed",
    "ClientStartError",
    "Counters",
    "Denied",
    "EnforcementClient",
    "OnUnknown",
    "Outcome",
    "QuotaDenied",
    "QuotaUnknown",
    "Reservation",
    "Unknown",
    "UnknownReason",
]
