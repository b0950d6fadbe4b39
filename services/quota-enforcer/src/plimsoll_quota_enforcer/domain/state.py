"""What does a decision start from and lead to: one tenant's state, the policy of the platform, and the outcome."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from enum import StrEnum

from plimsoll_contracts.codes import Code
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Gate, HoldState, SettleOutcome
from plimsoll_quota_enforcer.domain.model import (
    BUILT_IN,
    Ask,
    Charge,
    Content,
    Entitlement,
    Gauge,
    GaugeInfo,
    Hold,
    Limit,
    Measured,
    Multipliers,
    Place,
    StoredDecision,
    Waiter,
)
from plimsoll_quota_enforcer.domain.multipliers import Bounds
from plimsoll_quota_enforcer.domain.tally import Tally
from plimsoll_quota_enforcer.domain.values import value

OVER = "over"
"""The threshold that stands for the limit itself: usage above it."""

OverKey = tuple[Place, Gauge, str]
"""What was reached: a place, a gauge, and which threshold of its limit."""


@value
class Threshold:
    """A mark below or at a limit that is told when usage reaches it: a share of the limit, or an amount."""

    name: str
    percent: int | None = None
    dimension: Dimension | None = None
    """With an amount: which dimension it is of."""
    amount: int = 0

    def reached(self, dimension: Dimension, total: int, ceiling: int) -> bool:
        """Tell whether usage is at or above the mark, where a limit holds at all."""
        if self.percent is not None:
            return total * 100 >= ceiling * self.percent
        return dimension is self.dimension and total >= self.amount


_NO_WIDENING = Bounds(BUILT_IN.reservation_milli, BUILT_IN.limit_milli)


@value
class Policy:
    """What is the same for every tenant."""

    multipliers: Multipliers = BUILT_IN
    entitlements_expected: bool = True
    """Without billing there are no gates, and nothing is counted."""
    window: timedelta = timedelta(hours=24)
    """How far back a request may have been issued, and so how long a repeat is recognised."""
    clock_skew: timedelta = timedelta(minutes=5)
    """How far ahead of the database's clock a caller's may run."""
    bounds: Bounds = _NO_WIDENING
    """How far a request's own multipliers may widen."""
    require_resources: bool = False
    """Whether a service without resources is refused, not just named."""
    thresholds: tuple[Threshold, ...] = ()
    wait_seconds_max: int = 300
    """Nobody waits longer for room, whatever is asked."""
    waiters_max: int = 100
    """How many requests of one tenant may wait at once; one more is refused as if it did not ask to wait."""


@value
class TenantState:
    """Everything that a decision about one tenant rests on, as of ``seq``.

    ``charges`` has every live charge, and the tombstones that the batch names. ``holds`` (by id) has every open
    hold, and the closed ones that the batch names; ``open_holds`` finds the open one that a deployment is in, as its
    target or as replaced.
    """

    tenant: str
    seq: int = 0
    charges: Mapping[str, Charge] = field(default_factory=dict)
    holds: Mapping[str, Hold] = field(default_factory=dict)
    open_holds: Mapping[str, str] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    limits: Mapping[Place, Mapping[Dimension, Limit]] = field(default_factory=dict)
    defaults: Mapping[Dimension, Limit] = field(default_factory=dict)
    entitlement: Entitlement | None = None
    over: Mapping[OverKey, datetime] = field(default_factory=dict)
    """Since when each gauge is over its limit, as last told."""
    next_expiry: datetime | None = None
    """No open hold expires before this; None where none is open."""
    decisions: Mapping[str, StoredDecision] = field(default_factory=dict)
    """Earlier answers to the request ids of the batch."""
    measured: Mapping[Place, Measured] = field(default_factory=dict)
    waiters: tuple[Waiter, ...] = ()
    """In the order in which they came."""


def fold(
    tenant: str,
    seq: int,
    *,
    charges: Mapping[str, Charge],
    holds: Mapping[str, Hold],
    limits: Mapping[Place, Mapping[Dimension, Limit]],
    defaults: Mapping[Dimension, Limit],
    entitlement: Entitlement | None,
    over: Mapping[OverKey, datetime],
    measured: Mapping[Place, Measured] | None = None,
    waiters: tuple[Waiter, ...] = (),
) -> TenantState:
    """Build a state from the truth: usage is folded from charges and open holds, never trusted from a cache."""
    still_open = [hold for hold in holds.values() if hold.state is HoldState.OPEN]
    open_holds = {member: hold.id for hold in still_open for member in hold.members}
    tally = Tally.fold(charges, still_open, {place: each.bytes for place, each in (measured or {}).items()})
    return TenantState(
        tenant,
        seq,
        charges,
        holds,
        open_holds,
        tally.branch(),
        limits,
        defaults,
        entitlement,
        over,
        min((hold.expires_at for hold in still_open), default=None),
        measured=measured or {},
        waiters=waiters,
    )


class ChangeKind(StrEnum):
    """What moved a tenant's sequence number."""

    SETTLED = "settled"
    HOLD_OPENED = "hold_opened"
    HOLD_CLOSED = "hold_closed"
    MEASURED = "measured"


@value
class Change:
    """One step of a tenant's history, enough to compute usage at any instant."""

    seq: int
    kind: ChangeKind
    deployment: str
    content: Content
    hold: str = ""
    hold_state: HoldState | None = None
    revision: int | None = None
    gone: bool = False
    replaces: tuple[str, ...] = ()
    surge: bool = False
    request_id: str = ""
    """Which request caused it; empty for facts, expiries and measurements."""


@value
class Resolved:
    """The limit that holds for one dimension at one place, and where it comes from."""

    value: int | None
    """None is unlimited."""
    source: str
    limit: Limit | None = None
    """As it was set, where a person set it."""


@value
class Violation:
    """One gauge over its ceiling at one place. All figures in the gauge's base unit."""

    place: Place
    info: GaugeInfo
    ceiling: int
    resolved: Resolved
    used: int
    held: int
    asked: int
    headroom: int
    shadow: bool

    @property
    def would_fit(self) -> int:
        """The largest rise that would have been allowed here."""
        return max(0, self.headroom)


@value
class Shortfall:
    """A node or pool without room, in one dimension. All figures raw, in base units."""

    code: Code
    node: str
    pool: str
    dimension: Dimension
    capacity: int
    allocated: int
    asked: int
    largest_free: int
    eligible: int


class Passage(StrEnum):
    """What a gate said."""

    PASS = "pass"  # noqa: S105 - a verdict, not a secret
    DENY = "deny"
    FAIL_OPEN = "fail_open"


@value
class GateVerdict:
    """What one gate said, and the code if it denied."""

    gate: Gate
    passage: Passage
    code: Code | None = None
    detail: str = ""


@value
class Settlement:
    """What a settle did to a charge: an outcome, or the code for which it was kept out."""

    deployment: str
    revision: int
    outcome: SettleOutcome | None
    code: Code | None = None


@value
class Decision:
    """The answer to one request and what it rests on."""

    ask: Ask
    allowed: bool
    code: Code | None = None
    message: str = ""
    violations: tuple[Violation, ...] = ()
    would_deny: bool = False
    gates: tuple[GateVerdict, ...] = ()
    hold: Hold | None = None
    settlement: Settlement | None = None
    over_limit: bool = False
    seq: int = 0
    entitlement_version: int | None = None
    stored: bool = False
    """Whether the answer must be kept, so that a repeat gets it again."""
    repeats: "StoredDecision | Decision | None" = None
    """The earlier answer, when this is a repeat."""
    shortfalls: tuple[Shortfall, ...] = ()
    replaced: tuple[Settlement, ...] = ()
    notes: tuple[str, ...] = ()
    waits: bool = False
    """There is no answer yet: the request waits for room."""
    waited: timedelta | None = None


class Edge(StrEnum):
    """Which way a limit was crossed."""

    STARTED = "started"
    ENDED = "ended"


@value
class Crossing:
    """A gauge went over its ceiling, or came back under it."""

    place: Place
    info: GaugeInfo
    edge: Edge
    ceiling: int | None
    usage: int
    since: datetime
    cause: str
    threshold: str = OVER
    seq: int = 0


@value
class Outcome:
    """The state after a batch, and what of it is new."""

    state: TenantState
    decisions: tuple[Decision, ...] = ()
    settlements: tuple[Settlement, ...] = ()
    changes: tuple[Change, ...] = ()
    charges: frozenset[str] = frozenset()
    """Deployments whose charge was written."""
    holds: frozenset[str] = frozenset()
    """Holds that were written."""
    places: frozenset[Place] = frozenset()
    """Places whose usage was written."""
    crossings: tuple[Crossing, ...] = ()
    woken: tuple[Decision, ...] = ()
    """Answers to requests that waited, whose ``patience`` says where they go."""
    scans: frozenset[Place] = frozenset()
    """Leaves that gave disk back, whose figure stands until they are measured."""
    measured: frozenset[Place] = frozenset()
    """Places whose measurement was written."""
    nodes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By how much the allocation of nodes moved: what other tenants move there meanwhile adds up with it."""
