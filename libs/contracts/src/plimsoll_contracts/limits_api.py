"""What does HTTP carry about limits beyond one scope's: lists, history, files that declare many, and requests."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from plimsoll_contracts.api import DimensionName, LimitInput, LimitView
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.fields import (
    NO_ROLL_UP,
    Event,
    Flag,
    Instant,
    LimitValue,
    Name,
    Request,
    Text,
    refuse_roll_up,
)
from plimsoll_contracts.limit_requests import RequestState
from plimsoll_contracts.scopes import Scope

MAX_DECLARED = 5000
"""Limits that one application may name: they are changed in one transaction, under the guards of all their tenants."""

ScopeText = Annotated[str, Field(max_length=200)]


class SetLimit(Event):
    """A limit as it is set at one scope, apart from who did it."""

    value: LimitValue
    """An amount in base units, or ``unlimited``."""
    mode: Mode = Mode.ENFORCE
    expires_at: Instant | None = None
    reason: str | None = None


class LimitEntry(Event):
    """One override, in a list."""

    scope: str
    dimension: Dimension
    limit: LimitView


class LimitList(Event):
    """One page of overrides, by tenant, environment, stack and dimension."""

    limits: tuple[LimitEntry, ...]
    next: str | None = None
    """Give it as ``after`` for the next page; None at the end."""


class LimitVersion(Event):
    """One change of one limit."""

    id: int
    scope: str
    """``defaults`` for a global default."""
    dimension: Dimension
    version: int
    before: SetLimit | None
    """What was set here until then; None where it inherited."""
    after: SetLimit | None
    changed_by: str
    reason: str
    changed_at: Instant
    seq: int | None = None


class LimitHistory(Event):
    """One page of changes of limits, newest first."""

    versions: tuple[LimitVersion, ...]
    next: int | None = None


class DeclaredLimit(Request):
    """A limit as a file declares it, with what goes beyond an amount."""

    value: LimitInput
    mode: Mode = Mode.ENFORCE
    expires_at: Instant | None = None
    """A limit whose time has passed counts as none."""
    reason: Text | None = None
    """Why this one, where the reason of the whole does not say it."""


Declared = Mapping[DimensionName, LimitInput | DeclaredLimit | None]
"""What is declared at one scope, by dimension; None inherits."""


class ApplyBody(Request):
    """Set every limit that is named to what is declared, over all tenants, all or none.

    Null inherits; amounts are integers in base units or texts. What is not named stays as it is.
    """

    defaults: Declared = Field(default={}, max_length=16)
    scopes: Mapping[ScopeText, Declared] = Field(default={}, max_length=MAX_DECLARED)
    reason: Text
    by: Text | None = None
    """Who does it, where authentication is off; else the token says it, and this is refused."""
    dry_run: Flag = False
    force: Flag = False
    """Also set what lies below present usage."""
    plan: Annotated[str, Field(max_length=64)] | None = None
    """The tag of an earlier dry run: nothing is applied if the plan is no longer the same."""


class PlannedChange(Event):
    """What an application changes on one dimension of one scope."""

    scope: str
    dimension: Dimension
    before: SetLimit | None
    """None inherits."""
    after: SetLimit | None
    holds: LimitView
    """What holds from then on; where nothing is set any more, what the scope falls back to."""
    below_usage: bool = False
    """It lies below what is used and held now, and takes ``force``."""
    warnings: tuple[str, ...] = ()


class DeclaredLimits(Event):
    """Limits by scope and dimension, as an application takes them."""

    defaults: Mapping[Dimension, SetLimit | None] = {}
    scopes: Mapping[str, Mapping[Dimension, SetLimit | None]] = {}


class Applied(Event):
    """What an application did, or on a dry run would do."""

    applied: bool
    """Whether it was done: not on a dry run, and not where there was nothing to change."""
    plan: str
    """The tag of this plan."""
    changes: tuple[PlannedChange, ...]
    unchanged: int
    """Limits that were named and are as declared already."""
    inverse: DeclaredLimits
    """What undoes exactly these changes."""


class LimitAsk(Request):
    """Ask for another limit at one scope."""

    model_config = ConfigDict(json_schema_extra=NO_ROLL_UP)

    tenant: Name
    environment: Name | None = None
    stack: Name | None = None
    dimension: DimensionName
    value: LimitInput
    reason: Text
    by: Text | None = None
    """Who asks, where authentication is off; else the token says it, and this is refused."""

    @model_validator(mode="after")
    def _is_no_roll_up(self) -> "LimitAsk":
        refuse_roll_up(self.environment, self.stack)
        return self

    @property
    def scope(self) -> Scope:
        """Where the limit would be set."""
        return Scope(self.tenant, self.environment or "", self.stack or "")


class Rejection(Request):
    """Say no to a request for a limit."""

    reason: Text
    by: Text | None = None
    """Who decides, where authentication is off; else the token says it, and this is refused."""


class Approval(Rejection):
    """Say yes to a request for a limit, and set it."""

    value: LimitInput | None = None
    """Another amount than was asked for."""
    mode: Mode = Mode.ENFORCE
    expires_at: Instant | None = None
    force: Flag = False
    """Also set what lies below present usage."""


class LimitRequestView(Event):
    """One request for a limit."""

    id: int
    scope: str
    tenant: str
    dimension: Dimension
    value: LimitValue
    state: RequestState
    asked_by: str
    asked_reason: str
    asked_at: Instant
    decided_by: str | None = None
    decided_reason: str | None = None
    decided_at: Instant | None = None
    granted: LimitValue | None = None
    """What was set; None where nothing was."""
    expires_at: Instant | None = None
    version: int | None = None
    """Of the limit that was set."""


class LimitRequestList(Event):
    """One page of requests for limits, newest first."""

    requests: tuple[LimitRequestView, ...]
    next: int | None = None
