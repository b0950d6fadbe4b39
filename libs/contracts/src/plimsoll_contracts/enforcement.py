"""What are flows told: the vocabulary of verdicts, the reply, and the events for whoever watches."""

from enum import StrEnum

from plimsoll_contracts.dimensions import Basis, Dimension
from plimsoll_contracts.fields import Event, Instant, LimitValue
from plimsoll_contracts.problems import code_of as code_of  # noqa: PLC0414 - the client imports it from here
from plimsoll_contracts.problems import explain as explain  # noqa: PLC0414 - as code_of


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


class CapacityShortfall(Event):
    """A node or pool that cannot take what was asked, beside any limit (DESIGN 5.5)."""

    code: str
    node: str | None = None
    pool: str | None = None
    dimension: Dimension
    capacity: int
    """Of the node, or of all eligible nodes of the pool together, in base units."""
    allocated: int
    """What holds and charges have there already; what the same deployment has is not counted against it."""
    asked: int
    """What the whole deployment asks there; for one replica too many, what that replica asks."""
    largest_free: int
    """The most that is free on any one eligible node."""
    eligible: int
    """How many nodes were looked at: with a known capacity, in the pool, with all labels, taking new work."""


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


class CountedFootprint(Event):
    """What was counted of a request: raw, before any multiplier; reservations and limits apart."""

    cpu_reserved: int = 0
    cpu_limit: int = 0
    memory_reserved: int = 0
    memory_limit: int = 0
    disk: int = 0
    vapps: int = 0


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
    capacity: tuple[CapacityShortfall, ...] = ()
    """Where there is no room on nodes."""
    nodes: tuple[str, ...] = ()
    """The nodes on which room is held."""
    counted: CountedFootprint | None = None
    """What a check was judged on: where a compose file was sent, what was read from it."""
    notes: tuple[str, ...] = ()
    """What was read differently than may be expected, such as a service without resources."""
    hold: HoldView | None = None
    settled: Settled | None = None
    replaced: tuple[Settled, ...] = ()
    """What a commit did to the deployments that it replaces."""
    waited_ms: int | None = None
    """How long the request waited for room; None if it did not wait."""
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


class ThresholdReached(Event):
    """A scope has reached a threshold of a limit, or has come back below it."""

    tenant: str
    scope: str
    dimension: Dimension
    basis: Basis | None = None
    threshold: str
    """As configured: ``80%``, ``100%``, or an amount in base units such as ``stacks=9``."""
    limit: int | None
    usage: int
    since: Instant
    cause: str
    seq: int


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
