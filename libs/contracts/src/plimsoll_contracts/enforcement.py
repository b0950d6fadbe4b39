"""What do flows ask and what are they told: the five verbs of enforcement, the reply and the stored decision."""

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, RootModel, TypeAdapter, ValidationError, model_validator

from plimsoll_contracts.codes import INVALID_REQUEST, TOO_LARGE, UNDECODABLE, Code
from plimsoll_contracts.dimensions import Basis, Dimension
from plimsoll_contracts.fields import (
    NO_ROLL_UP,
    Bytes,
    Count,
    Event,
    Id,
    Instant,
    LimitValue,
    Millicores,
    Name,
    Request,
    Revision,
    refuse_roll_up,
)
from plimsoll_contracts.problems import code_of as code_of  # noqa: PLC0414 - the client imports it from here
from plimsoll_contracts.problems import explain as explain  # noqa: PLC0414 - as code_of
from plimsoll_contracts.scopes import Scope

MAX_REQUEST_BYTES = 384 * 1024
"""Largest request body that is read; larger ones are refused unread."""

MIN_TTL_SECONDS, DEFAULT_TTL_SECONDS, MAX_TTL_SECONDS = 1, 600, 86_400


class Verb(StrEnum):
    """What a request asks for (DESIGN 5.2)."""

    CHECK = "check"
    RESERVE = "reserve"
    COMMIT = "commit"
    RELEASE = "release"
    ADJUST = "adjust"


class Mode(StrEnum):
    """Whether a refusal refuses, or is only counted and told."""

    ENFORCE = "enforce"
    SHADOW = "shadow"


class HoldState(StrEnum):
    """Where a hold stands; all but ``open`` are final."""

    OPEN = "open"
    COMMITTED = "committed"
    RELEASED = "released"
    EXPIRED = "expired"


class Gate(StrEnum):
    """The named checks of an entitlement that fail open when a tenant's projection row is missing."""

    DEPLOYMENTS = "deployments"
    """The feature: may this tenant deploy at all."""
    QUOTA_BLOCKED = "quota_blocked"
    """Billing's verdict on one of our dimensions."""
    PLAN_LIMITS = "plan_limits"
    """The limits that the plan gives."""


class SettleOutcome(StrEnum):
    """What became of a settle (DESIGN 5.2)."""

    SETTLED = "settled"
    STALE = "stale"
    UNCHANGED = "unchanged"
    """The same revision with the same content came again."""


class Footprint(Request):
    """What one deployment takes, in absolute amounts. Plain amounts count on both bases (DESIGN 5.4)."""

    cpu: Millicores = 0
    memory: Bytes = 0
    disk: Bytes = 0
    vapps: Count = 0


class _Request(Request):
    request_id: Id
    issued_at: Instant
    """When the caller first asked; kept on retries."""
    tenant: Name


class _Placed(_Request):
    model_config = ConfigDict(json_schema_extra=NO_ROLL_UP)

    environment: Name | None = None
    stack: Name | None = None
    deployment: Id
    app: Name | None = None

    @model_validator(mode="after")
    def _is_no_roll_up(self) -> "_Placed":
        refuse_roll_up(self.environment, self.stack)
        return self

    @property
    def scope(self) -> Scope:
        """Where the deployment lies."""
        return Scope(self.tenant, self.environment or "", self.stack or "")


class CheckRequest(_Placed):
    """Would this be allowed now? Advisory: nothing is stored and nothing is held."""

    verb: Literal["check"]
    footprint: Footprint
    mode: Mode = Mode.ENFORCE


class ReserveRequest(_Placed):
    """Check and hold in one step, at every scope or none."""

    verb: Literal["reserve"]
    footprint: Footprint
    mode: Mode = Mode.ENFORCE
    ttl_seconds: Annotated[int, Field(strict=True, ge=MIN_TTL_SECONDS, le=MAX_TTL_SECONDS)] = DEFAULT_TTL_SECONDS
    supersedes: Id | None = None
    """The open hold of the same deployment that this one takes the place of."""


class CommitRequest(_Request):
    """Settle a hold's target: the deployment runs as reserved."""

    verb: Literal["commit"]
    hold: Id
    revision: Revision | None = None
    """The deployment's own version; None is its present revision + 1, taken under the guard."""


class ReleaseRequest(_Request):
    """Close a hold without settling anything."""

    verb: Literal["release"]
    hold: Id


class AdjustRequest(_Placed):
    """Settle a fact; it may go over a limit. No footprint means that the deployment is gone."""

    verb: Literal["adjust"]
    footprint: Footprint | None
    revision: Revision | None = None


AnyRequest = CheckRequest | ReserveRequest | CommitRequest | ReleaseRequest | AdjustRequest


class EnforcementRequest(RootModel[Annotated[AnyRequest, Field(discriminator="verb")]]):
    """Any of the five requests; ``verb`` tells which."""


class RequestInvalid(ValueError):
    """A body on ``quota.requests`` cannot be taken as a request."""

    def __init__(self, code: Code, detail: str) -> None:
        """Keep the code that the caller is told."""
        super().__init__(detail)
        self.code = code
        self.detail = detail


_KEY = re.compile(rb'"[ \t\n\r]*:')
_ADAPTER: TypeAdapter[AnyRequest] = TypeAdapter(Annotated[AnyRequest, Field(discriminator="verb")])


def parse_request(body: bytes | None) -> AnyRequest:
    """Read the body of a request.

    Raises:
        RequestInvalid: with the code of the first thing wrong, and a detail that names every field.
    """
    if not body:
        raise RequestInvalid(UNDECODABLE, "the body is empty")
    if len(body) > MAX_REQUEST_BYTES:
        raise RequestInvalid(TOO_LARGE, f"the body has {len(body)} bytes, {MAX_REQUEST_BYTES} are allowed")
    try:
        request = _ADAPTER.validate_json(body)
    except ValidationError as error:
        raise RequestInvalid(code_of(error), explain(error)) from None
    if len(_KEY.findall(body)) != _count_keys(request):
        raise RequestInvalid(INVALID_REQUEST, "a key is written twice: which one counts is anybody's guess")
    return request


def _count_keys(request: AnyRequest) -> int:
    """Count the keys that made a request; more of them in its body means that one was repeated.

    No text of a valid request can hold a quotation mark or begin with a colon, so each ``":`` of a body ends a key.
    """
    footprint = getattr(request, "footprint", None)
    return len(request.model_fields_set) + (len(footprint.model_fields_set) if footprint is not None else 0)


class Violation(Event):
    """One dimension over its limit at one scope, with everything needed to understand it."""

    code: str
    scope: str
    dimension: Dimension
    basis: Basis | None = None
    limit: int
    """What the figure is held against; on the burst basis the limit times the multiplier."""
    limit_source: str
    """``override``, ``plan`` or ``default``."""
    limit_set_by: str | None = None
    limit_set_at: Instant | None = None
    used: int
    held: int
    asked: int
    """By how much the request would raise the figure."""
    headroom: int
    would_fit: int
    """The largest rise that would have been allowed at this scope."""
    shadow: bool = False
    """The limit itself is in shadow mode: told, not enforced."""


class HoldView(Event):
    """A hold as it stands now."""

    id: str
    deployment: str
    state: HoldState
    expires_at: Instant


class Settled(Event):
    """What a commit, an adjust or a delta did to a deployment's charge."""

    deployment: str
    revision: int
    outcome: SettleOutcome


class EnforcementReply(Event):
    """The answer to one request: the verdict and everything behind it."""

    request_id: str | None
    verb: Verb | None
    tenant: str | None
    allowed: bool
    code: str | None = None
    status: int = 200
    message: str = ""
    violations: tuple[Violation, ...] = ()
    would_deny: bool = False
    """In shadow mode: the request was let through although it would have been refused."""
    fail_open: tuple[Gate, ...] = ()
    """Gates that let this through because nothing is known of the tenant's entitlement."""
    denied_gates: tuple[Gate, ...] = ()
    """Gates that refused it; the message says why."""
    hold: HoldView | None = None
    settled: Settled | None = None
    over_limit: bool = False
    """A settled fact left a scope above a limit (facts are never refused)."""
    seq: int | None = None
    """The tenant's sequence number after this decision."""
    entitlement_version: int | None = None
    decided_at: Instant | None = None
    repeated: bool = False
    """This is the stored answer to an earlier try."""


class DecisionEvent(EnforcementReply):
    """A decision as published on ``quota.decisions`` for whoever watches."""

    environment: str | None = None
    stack: str | None = None
    deployment: str | None = None
    app: str | None = None
    mode: Mode = Mode.ENFORCE


class LimitChanged(Event):
    """A limit was set or unset."""

    tenant: str | None
    """None for a global default."""
    scope: str
    dimension: Dimension
    before: LimitValue | None
    after: LimitValue | None
    mode: Mode
    version: int
    changed_by: str
    reason: str
    expires_at: Instant | None = None
    changed_at: Instant
    seq: int | None = None


class OverLimit(Event):
    """A scope has crossed a limit, or has come back under it."""

    tenant: str
    scope: str
    dimension: Dimension
    basis: Basis | None = None
    limit: int | None
    usage: int
    over_by: int
    since: Instant
    cause: str
    seq: int
