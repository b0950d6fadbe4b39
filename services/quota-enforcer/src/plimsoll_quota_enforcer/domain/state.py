"""What does a decision start from and lead to: one tenant's state, the policy of the platform, and the outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    Multipliers,
    Place,
    StoredDecision,
)
from plimsoll_quota_enforcer.domain.tally import Share, Tally

OverKey = tuple[Place, Gauge]


@dataclass(frozen=True, slots=True)
class Policy:
    """What is the same for every tenant."""

    multipliers: Multipliers = BUILT_IN
    entitlements_expected: bool = True
    """Without billing there are no gates, and nothing is counted."""
    window: timedelta = timedelta(hours=24)
    """How far back a request may have been issued, and so how long a repeat is recognised."""
    clock_skew: timedelta = timedelta(minutes=5)
    """How far ahead of the database's clock a caller's may run."""


@dataclass(frozen=True, slots=True)
class TenantState:
    """Everything that a decision about one tenant rests on, as of ``seq``.

    ``charges`` has every live charge, and the tombstones that the batch names. ``holds`` (by id) has every open
    hold, and the closed ones that the batch names; ``open_holds`` finds a deployment's open one.
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

    def share(self, deployment: str) -> Share:
        """Return what one deployment has now."""
        hold = self.open_holds.get(deployment)
        return Share(self.charges.get(deployment), self.holds[hold] if hold is not None else None)


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
) -> TenantState:
    """Build a state from the truth: usage is folded from charges and open holds, never trusted from a cache."""
    still_open = {hold.deployment: hold.id for hold in holds.values() if hold.state is HoldState.OPEN}
    tally = Tally.fold(charges.values(), (holds[hold] for hold in still_open.values()))
    return TenantState(
        tenant,
        seq,
        charges,
        holds,
        still_open,
        tally.branch(),
        limits,
        defaults,
        entitlement,
        over,
        min((holds[hold].expires_at for hold in still_open.values()), default=None),
    )


class ChangeKind(StrEnum):
    """What moved a tenant's sequence number."""

    SETTLED = "settled"
    HOLD_OPENED = "hold_opened"
    HOLD_CLOSED = "hold_closed"


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Resolved:
    """The limit that holds for one dimension at one place, and where it comes from."""

    value: int | None
    """None is unlimited."""
    source: str
    limit: Limit | None = None
    """As it was set, where a person set it."""


@dataclass(frozen=True, slots=True)
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


class Passage(StrEnum):
    """What a gate said."""

    PASS = "pass"  # noqa: S105 - a verdict, not a secret
    DENY = "deny"
    FAIL_OPEN = "fail_open"


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What one gate said, and the code if it denied."""

    gate: Gate
    passage: Passage
    code: Code | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a settle did to a charge: an outcome, or the code for which it was kept out."""

    deployment: str
    revision: int
    outcome: SettleOutcome | None
    code: Code | None = None


@dataclass(frozen=True, slots=True)
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


class Edge(StrEnum):
    """Which way a limit was crossed."""

    STARTED = "started"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Crossing:
    """A gauge went over its ceiling, or came back under it."""

    place: Place
    info: GaugeInfo
    edge: Edge
    ceiling: int | None
    usage: int
    since: datetime
    cause: str
    seq: int = 0


@dataclass(frozen=True, slots=True)
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
