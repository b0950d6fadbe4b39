"""What may a call say: the keyword arguments of the five verbs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.requests import Footprint, MultiplierTerms, NodeAmounts, Placement

AnyNodes = Mapping[str, NodeAmounts | Mapping[str, int | str]]
"""Amounts by node: ``{"node-1": {"cpu": "500m", "memory": "1g"}}``."""

AnyFootprint = Footprint | Mapping[str, int | str]
"""Amounts by dimension (``cpu``, ``memory``, ``disk``, ``vapps``), in base units or as texts: ``{"cpu": "500m"}``."""


class CallFields(TypedDict, total=False):
    """What every verb takes."""

    request_id: str
    """Chosen here where absent. Give the first try's, and its ``issued_at``, to repeat a call after a crash."""
    issued_at: datetime
    timeout: float
    """Seconds until the outcome is Unknown; the client's default where absent."""


class PlacedFields(CallFields, total=False):
    """Where a deployment lies and what it belongs to."""

    environment: str | None
    stack: str | None
    app: str | None


class SizedFields(PlacedFields, total=False):
    """How large a deployment is where it is not told in plain amounts, and how that is held against limits."""

    compose: str
    """The rendered compose file, instead of a footprint."""
    multipliers: MultiplierTerms | Mapping[str, int]
    app_multipliers: MultiplierTerms | Mapping[str, int]


class CheckFields(SizedFields, total=False):
    """What a check takes."""

    mode: Mode
    replaces: Sequence[str]
    """Deployments that end when this one is committed: it is judged on the difference."""
    surge: bool
    """The new one starts before the replaced ones stop: it is judged on top of them."""
    placement: Placement | Mapping[str, Any]
    """``{"node": ...}``, or ``{"pool": ..., "labels": {...}}``."""


class ReserveFields(CheckFields, total=False):
    """What a reserve takes besides."""

    ttl_seconds: int
    supersedes: str | None
    wait_seconds: int
    """Wait this long for room; the call's timeout comes on top."""


class AdjustFields(SizedFields, total=False):
    """What an adjust takes besides."""

    nodes: AnyNodes


class CommitFields(CallFields, total=False):
    """What a commit takes besides."""

    replaced: Mapping[str, int]
    """At which revision each replaced deployment ended; the others end at their present one + 1."""
    nodes: AnyNodes
    """Where it really runs, where that is not as reserved."""
