"""What is known of one tenant: charges, holds, limits and entitlement, as plain frozen values."""

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from enum import IntEnum

from plimsoll_contracts.dimensions import Basis, Dimension
from plimsoll_contracts.enforcement import HoldState, Mode, Verb
from plimsoll_contracts.quantities import scale_up
from plimsoll_quota_enforcer.domain.values import value

Place = tuple[str, str]
"""Where inside a tenant: (environment, stack), empty where absent. ``("", "")`` is the tenant itself."""

TENANT: Place = ("", "")

Amounts = tuple[int, int, int, int, int, int]
"""What is charged, by additive gauge: the first six of ``Gauge``."""

NOTHING: Amounts = (0, 0, 0, 0, 0, 0)


def chain(place: Place) -> tuple[Place, ...]:
    """Return the places whose limits are checked for something here, most specific first."""
    environment, stack = place
    if stack:
        return (place, (environment, ""), TENANT)
    return (place, TENANT) if environment else (TENANT,)


class Gauge(IntEnum):
    """The figures kept for each scope. The first six add up over deployments, the last three count members."""

    CPU_RESERVED = 0
    CPU_BURST = 1
    MEMORY_RESERVED = 2
    MEMORY_BURST = 3
    DISK = 4
    VAPPS = 5
    STACKS = 6
    ENVIRONMENTS = 7
    APPS = 8


@value
class GaugeInfo:
    """Which limit a gauge is held against."""

    gauge: Gauge
    dimension: Dimension
    basis: Basis | None = None


GAUGES: tuple[GaugeInfo, ...] = (
    GaugeInfo(Gauge.CPU_RESERVED, Dimension.CPU, Basis.RESERVED),
    GaugeInfo(Gauge.CPU_BURST, Dimension.CPU, Basis.BURST),
    GaugeInfo(Gauge.MEMORY_RESERVED, Dimension.MEMORY, Basis.RESERVED),
    GaugeInfo(Gauge.MEMORY_BURST, Dimension.MEMORY, Basis.BURST),
    GaugeInfo(Gauge.DISK, Dimension.DISK),
    GaugeInfo(Gauge.STACKS, Dimension.STACKS),
    GaugeInfo(Gauge.ENVIRONMENTS, Dimension.ENVIRONMENTS),
    GaugeInfo(Gauge.APPS, Dimension.APPS),
    GaugeInfo(Gauge.VAPPS, Dimension.VAPPS),
)
"""Every gauge, in the order in which violations are reported (DESIGN 5.3 rule 2)."""

GAUGE_INFO: Mapping[Gauge, GaugeInfo] = {info.gauge: info for info in GAUGES}


@value
class Multipliers:
    """How compose amounts are held against limits, in thousandths (DESIGN 5.4)."""

    reservation_milli: int = 1000
    limit_milli: int = 1500


BUILT_IN = Multipliers()
"""What holds where nobody says otherwise."""


@value
class Footprint:
    """What one deployment takes, raw: before any multiplier. Millicores, bytes, instances."""

    cpu_reserved: int = 0
    cpu_limit: int = 0
    memory_reserved: int = 0
    memory_limit: int = 0
    disk: int = 0
    vapps: int = 0

    @classmethod
    def plain(cls, *, cpu: int = 0, memory: int = 0, disk: int = 0, vapps: int = 0) -> "Footprint":
        """Build from plain amounts, which count on both bases."""
        return cls(cpu, cpu, memory, memory, disk, vapps)

    def charged(self, multipliers: Multipliers) -> Amounts:
        """Return what counts: reservations scaled up and rounded up, limits as they are."""
        milli = multipliers.reservation_milli
        if milli == 1000:  # noqa: PLR2004 - the common case: nothing to scale
            return (self.cpu_reserved, self.cpu_limit, self.memory_reserved, self.memory_limit, self.disk, self.vapps)
        return (
            scale_up(self.cpu_reserved, milli),
            self.cpu_limit,
            scale_up(self.memory_reserved, milli),
            self.memory_limit,
            self.disk,
            self.vapps,
        )


@value
class Replica:
    """One service of a deployment: how many replicas, and what each reserves, raw. Millicores, bytes."""

    service: str
    count: int
    cpu: int
    memory: int


NodeShare = tuple[str, int, int]
"""What a deployment has on one node, raw: (node, millicores, bytes)."""


@value
class Content:
    """What a deployment is, apart from its revision: where it lies, of which app, how large, and on which nodes."""

    place: Place
    app: str
    footprint: Footprint
    multipliers: Multipliers = BUILT_IN
    nodes: tuple[NodeShare, ...] = ()


@value
class Node:
    """One node: what its agent last told, and what holds and charges have there."""

    name: str
    pool: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: tuple[int, int] | None = None
    """Millicores and bytes; None is not known, and no gate."""
    allocated: tuple[int, int] = (0, 0)
    schedulable: bool = True
    version: int = 0
    """Of its report; 0 before the first one."""

    def allocating(self, cpu: int, memory: int) -> "Node":
        """Return it with this much more allocated."""
        return replace(self, allocated=(self.allocated[0] + cpu, self.allocated[1] + memory))


@value
class Placing:
    """Where a deployment shall run: one node, or any of a pool with these labels; and what has to be placed."""

    node: str = ""
    pool: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    replicas: tuple[Replica, ...] = ()


@value
class Measured:
    """What one scope was found to take on disk. Of two measurements the later by ``order`` holds."""

    bytes: int
    order: tuple[int, int]
    """(term, scan): no clock is compared."""
    at: datetime
    method: str
    complete: bool


@value
class Charge:
    """What one deployment is known to hold, at a revision. A gone charge is a tombstone that keeps the revision."""

    deployment: str
    revision: int
    content: Content
    gone: bool = False
    changed_seq: int = 0


@value
class Hold:
    """A reservation: a target for one deployment, open until it is closed or expires."""

    id: str
    deployment: str
    target: Content
    expires_at: datetime
    state: HoldState = HoldState.OPEN
    settled_revision: int | None = None
    """At which revision its commit was settled or found stale; None before any commit."""
    settled_outcome: str | None = None
    replaces: tuple[str, ...] = ()
    """Deployments that end with its commit; until then the group counts as one (DESIGN 5.3 rule 4)."""
    surge: bool = False
    """The target counts on top of what it replaces."""

    @property
    def members(self) -> tuple[str, ...]:
        """The deployments that this hold binds: its own and those it replaces."""
        return (self.deployment, *self.replaces)


@value
class Limit:
    """One limit as it was set. ``value`` None is ``unlimited``: explicitly unenforced."""

    value: int | None
    mode: Mode = Mode.ENFORCE
    version: int = 1
    expires_at: datetime | None = None
    set_by: str = ""
    set_at: datetime | None = None
    reason: str = ""


LimitKey = tuple[Place, Dimension]


@value
class Entitlement:
    """The projected snapshot of what a plan gives the tenant."""

    version: int
    plan: str
    limits: Mapping[Dimension, int | None] = field(default_factory=dict)
    """By dimension; None is ``unlimited``."""
    deployments: bool = True
    blocked: frozenset[Dimension] = frozenset()
    ended: bool = False
    at: datetime | None = None
    """When it was projected, by the database's clock."""
    fingerprint: bytes = b""
    """Of the snapshot's content: an equal version with another content is a conflict."""


@value
class StoredDecision:
    """An earlier answer: the fingerprint of its request, and the reply as it was sent."""

    fingerprint: bytes
    reply: bytes
    hold: str | None = None
    """The hold that the decision opened, whose present state is told on a repeat."""


Lack = tuple[str, str, str]
"""What there was too little of: (environment, stack, gauge) of a limit, ("", "node", name) or ("", "pool", name)."""


@value
class ReplyTo:
    """Where an answer goes, as the request's headers say."""

    topic: str
    partition: int | None
    correlation_id: bytes | None


@value
class Patience:
    """How long a request would rather wait than be refused, and what a later answer needs."""

    seconds: int
    reply_to: ReplyTo
    body: str
    """The request in canonical form, from which it is read again."""


@value
class Ask:
    """One request, as the engine decides it: the five verbs in one shape."""

    verb: Verb
    request_id: str
    tenant: str
    issued_at: datetime
    fingerprint: bytes
    deployment: str = ""
    target: Content | None = None
    """None for commit and release, and for an adjust to gone."""
    place: Place = TENANT
    app: str = ""
    mode: Mode = Mode.ENFORCE
    ttl_seconds: int = 600
    supersedes: str | None = None
    hold: str = ""
    revision: int | None = None
    deadline: datetime | None = None
    replaces: tuple[str, ...] = ()
    surge: bool = False
    placing: Placing | None = None
    patience: Patience | None = None
    replaced: Mapping[str, int] = field(default_factory=dict)
    """At which revisions replaced deployments ended, as a commit says."""
    nodes: tuple[NodeShare, ...] | None = None
    """Where it really runs, as a commit or adjust says; None says nothing of it."""
    notes: tuple[str, ...] = ()
    """What was read differently than may be expected."""


@value
class Waiter:
    """A reserve that waits for room, and what it lacked when it was last judged."""

    ask: Ask
    since: datetime
    until: datetime
    lacks: frozenset[Lack]
    seq: int = 0
    """Of the tenant when it came, by which waiters are in order."""


@value
class Fact:
    """One settle told as an event."""

    tenant: str
    deployment: str
    revision: int
    content: Content
    gone: bool
    id: str = ""
