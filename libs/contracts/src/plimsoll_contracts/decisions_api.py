"""What does HTTP carry about the past and its reasons: usage then, decisions, explanations, gates, simulations?"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from plimsoll_contracts.api import GateStatus, LimitView
from plimsoll_contracts.dimensions import Basis, Dimension, Unit
from plimsoll_contracts.enforcement import EnforcementReply, Gate, HoldView, Verb
from plimsoll_contracts.fields import Event, Instant, Request
from plimsoll_contracts.limits_api import MAX_DECLARED, Declared, ScopeText


class UsageThen(Event):
    """One figure of a scope at an instant, in the dimension's base unit."""

    dimension: Dimension
    basis: Basis | None = None
    unit: Unit
    used: int
    held: int


class UsageAt(Event):
    """Usage of one scope at an instant."""

    scope: str
    tenant: str
    at: Instant
    dimensions: tuple[UsageThen, ...]
    deployments: int
    open_holds: int
    kept_from: Instant
    """The earliest instant that can be asked for."""


class DecisionLine(Event):
    """One stored decision in a list."""

    tenant: str
    request_id: str
    verb: Verb
    scope: str
    deployment: str | None = None
    allowed: bool
    would_deny: bool = False
    """In shadow mode: let through although it would have been refused."""
    code: str | None = None
    fail_open: tuple[Gate, ...] = ()
    message: str = ""
    decided_at: Instant


class DecisionList(Event):
    """One page of decisions, in the order asked for."""

    decisions: tuple[DecisionLine, ...]
    next: str | None = None
    """Give it as ``after`` for the next page; None at the end. A page with a filter may be empty before the end."""


class DecisionDetail(DecisionLine):
    """One stored decision: what was asked, what was answered, and what it was decided on."""

    request: Mapping[str, Any]
    reply: EnforcementReply
    seq: int
    """The tenant's sequence number after it: names the charges, holds and limits that it rests on."""
    entitlement_version: int | None = None
    """The snapshot that it rests on; None: nothing was known."""
    present_entitlement_version: int | None = None
    defaults_version: int
    """The global defaults that it rests on."""
    present_defaults_version: int
    hold_now: HoldView | None = None
    """The hold that it opened, as it stands now."""


class GateTotal(Event):
    """How often one gate let a decision through because nothing was known of the tenant's entitlement."""

    gate: Gate
    failed_open: int
    last_at: Instant | None = None
    """None where it never did."""


class TenantWithoutEntitlement(Event):
    """A tenant for whom every gate fails open: it has charges or decisions, and no entitlement."""

    tenant: str
    deployments: int
    last_decision_at: Instant | None = None


class GatesOverview(Event):
    """How the gates stand over all tenants."""

    expected: bool
    """Whether entitlements are expected here; where they are not, there are no gates."""
    gates: tuple[GateTotal, ...]
    without_entitlement: tuple[TenantWithoutEntitlement, ...] = ()
    next: str | None = None
    """Give it as ``after`` for more of these tenants."""


class TenantGates(Event):
    """How each gate stands for one tenant, and what that rests on."""

    tenant: str
    gates: tuple[GateStatus, ...]
    plan: str | None = None
    entitlement_version: int | None = None
    entitlement_at: Instant | None = None
    last_fail_open_at: Instant | None = None
    """When a gate last let a decision of this tenant through unjudged, among decisions that are kept."""


class Exceeded(Event):
    """One figure above a limit, in the dimension's base unit."""

    scope: str
    dimension: Dimension
    basis: Basis | None = None
    limit: int
    used: int
    held: int
    asked: int = 0
    over_by: int


class SimulateBody(Request):
    """Limits to try on the log of decisions; nothing is changed. Null inherits; what is not named is as it was."""

    defaults: Declared = Field(default={}, max_length=16)
    scopes: Mapping[ScopeText, Declared] = Field(default={}, max_length=MAX_DECLARED)
    since: Instant


class Fared(Event):
    """One request that would have fared otherwise."""

    decided_at: Instant
    tenant: str
    request_id: str
    scope: str
    deployment: str
    code: str | None = None
    """Of the refusal: under the proposal, or then."""
    over: tuple[Exceeded, ...] = ()
    """Which limits, and by how much."""


class Simulated(Event):
    """What the proposed limits would have done to the requests since then."""

    since: Instant
    as_of: Instant
    tenants: int
    replayed: int
    """Decisions that were decided again."""
    facts: int
    """Settles and measurements between them."""
    refused_then: int
    refused_proposed: int
    newly_refused: int
    newly_allowed: int
    refusals: tuple[Fared, ...] = ()
    """At most 1,000 for each tenant, the first ones."""
    admissions: tuple[Fared, ...] = ()
    left_out: int
    """What would not have happened: commits, releases, adjusts and facts of what would have been refused."""
    not_replayed: int
    """Refused for gates, nodes or a queue, and so in both."""
    differs: Mapping[str, int] = {}
    """Decisions that even the limits of then did not come to again, by why; they are in neither list."""
    cut: bool = False
    """There are more decisions, or tenants, than are replayed at once: only the first were."""
    replayed_until: Instant | None = None
    """Where it was cut."""
    over_now: tuple[Exceeded, ...] = ()
    """What would be over its limit now."""


class LimitLevel(Event):
    """What one level says about a limit; of several levels the first that says anything holds."""

    level: str
    """``override``, ``plan`` or ``default``."""
    holds: bool
    """Whether this is the one that holds."""
    limit: LimitView
    """Its value is None where nothing is set at this level."""


class ChargeShare(Event):
    """What one deployment counts for in a figure."""

    deployment: str
    revision: int
    scope: str
    counts: int
    raw: int
    """Before the multiplier."""
    multiplier_milli: int
    since: Instant


class HoldShare(Event):
    """What one open hold adds to a figure."""

    hold: str
    deployment: str
    scope: str
    adds: int
    since: Instant
    expires_at: Instant


class FigureAbove(Event):
    """The same figure at a scope that this one lies in, whose limit binds too."""

    scope: str
    limit: LimitView
    ceiling: int | None
    used: int
    held: int
    headroom: int | None


class FigureExplained(Event):
    """One figure of a scope with every input."""

    dimension: Dimension
    basis: Basis | None = None
    unit: Unit
    ceiling: int | None
    used: int
    held: int
    headroom: int | None
    levels: tuple[LimitLevel, ...]
    charges: tuple[ChargeShare, ...] = ()
    """The largest, at most ten; none for what is counted by members."""
    charges_in_all: int = 0
    holds: tuple[HoldShare, ...] = ()
    """Those that add most, at most ten."""
    holds_in_all: int = 0
    members: tuple[str, ...] = ()
    """Which stacks, environments or apps are counted, at most ten."""
    above: tuple[FigureAbove, ...] = ()


class Measurement(Event):
    """What one scope was found to have on disk."""

    scope: str
    bytes: int
    method: str
    complete: bool
    measured_at: Instant


class Waiting(Event):
    """A request that waits for room."""

    request_id: str
    deployment: str
    scope: str
    since: Instant
    until: Instant


class Explanation(Event):
    """Why one scope's figures are what they are: each input with its source and age."""

    scope: str
    tenant: str
    as_of: Instant
    figures: tuple[FigureExplained, ...]
    gates: TenantGates
    measurements: tuple[Measurement, ...] = ()
    waiting: tuple[Waiting, ...] = ()
