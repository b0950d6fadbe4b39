"""What does HTTP carry under ``/api/v1/quota``: the bodies that the service writes and the command line reads."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, WithJsonSchema

from plimsoll_contracts.dimensions import Basis, Dimension, Unit
from plimsoll_contracts.enforcement import Gate, Mode
from plimsoll_contracts.fields import Event, Flag, Instant, LimitValue, Request, Text

DimensionName = Annotated[
    str, Field(max_length=64), WithJsonSchema({"type": "string", "enum": [dimension.value for dimension in Dimension]})
]
"""Read as any text, so that an unknown one is answered with its own code."""
LimitInput = Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True, max_length=64)]


class LimitView(Event):
    """The limit that holds for one dimension at one scope, and where it comes from."""

    value: LimitValue | None
    """An amount in base units, ``unlimited``, or None: nothing is set at any level that applies here."""
    source: str
    """``override``, ``plan``, ``default`` or ``none``."""
    mode: Mode = Mode.ENFORCE
    version: int | None = None
    set_by: str | None = None
    set_at: Instant | None = None
    reason: str | None = None
    expires_at: Instant | None = None


class DimensionStatus(Event):
    """One line of a scope's status: a dimension on one basis."""

    dimension: Dimension
    basis: Basis | None = None
    unit: Unit
    limit: LimitView
    ceiling: int | None
    """What usage is held against: the limit, times the multiplier on the burst basis. None is no ceiling."""
    used: int
    held: int
    headroom: int | None
    """None where there is no ceiling; negative where the scope is over it."""
    as_of: Instant | None
    """When the figure last changed; None where nothing was ever charged."""


class GateStatus(Event):
    """How one gate of an entitlement stands for a tenant."""

    gate: Gate
    state: str
    """``pass``, ``deny``, ``fail_open`` (no projection row) or ``off`` (entitlements are not expected here)."""
    detail: str = ""


class ScopeStatus(Event):
    """Limits and usage of one scope, read in one transaction."""

    scope: str
    tenant: str
    known: bool
    """Whether anything was ever recorded of the tenant: limits, usage or an entitlement."""
    dimensions: tuple[DimensionStatus, ...]
    gates: tuple[GateStatus, ...]
    plan: str | None = None
    entitlement_version: int | None = None
    entitlement_at: Instant | None = None
    open_holds: int
    deployments: int
    seq: int
    limits_version: int = 0
    """How often the limits of this scope were changed: the ETag, for ``If-Match``."""
    as_of: Instant


class DefaultLimits(Event):
    """The global defaults."""

    limits: Mapping[Dimension, LimitView]
    limits_version: int = 0
    """How often they were changed: the ETag, for ``If-Match``."""


class ScopeList(Event):
    """One page of scopes of one tenant, or of tenants."""

    scopes: tuple[str, ...]
    next: str | None = None
    """Give it as ``after`` for the next page; None at the end."""


class LimitsPatch(Request):
    """Set and unset limits of one scope, all or none. Null unsets; amounts are integers in base units or texts."""

    limits: Mapping[DimensionName, LimitInput | None] = Field(min_length=1, max_length=16)
    by: Text | None = None
    """Who does it, where authentication is off; else the token says it, and this is refused."""
    reason: Text
    mode: Mode = Mode.ENFORCE
    expires_at: Instant | None = None
    force: Flag = False
    """Also set what lies below present usage."""


class LimitChange(Event):
    """What one call changed on one dimension."""

    dimension: Dimension
    before: LimitView
    after: LimitView
    """What holds from now on; after an unset, what the scope falls back to."""
    warnings: tuple[str, ...] = ()


class LimitsChanged(Event):
    """The outcome of a patch of limits."""

    scope: str
    changes: tuple[LimitChange, ...]
    seq: int | None = None
    limits_version: int = 0
    """How often the limits of this scope were changed, this time included: the ETag, for ``If-Match``."""


class DeadLetterView(Event):
    """One record that was set aside."""

    id: int
    topic: str
    partition: int
    offset: int
    key: str | None
    code: str
    detail: str
    at: Instant
    size: int
    """Bytes of the value."""
    replayed_at: Instant | None = None
    value_base64: str | None = None
    """The value, where one letter is shown."""


class DeadLetterList(Event):
    """One page of dead letters, newest first."""

    dead_letters: tuple[DeadLetterView, ...]
    next: int | None = None


class Problem(Event):
    """An error over HTTP (RFC 9457, ``application/problem+json``)."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    remedy: str = ""
    instance: str | None = None
