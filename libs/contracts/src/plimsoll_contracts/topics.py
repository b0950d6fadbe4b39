"""Which topics are there: each declared once, with its key, size, keeping, messages and who writes and reads it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from pydantic import BaseModel

from plimsoll_contracts.disk import DiskMeasured, DiskScanRequested
from plimsoll_contracts.enforcement import DecisionEvent, EnforcementReply, LimitChanged, OverLimit, ThresholdReached
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.limit_requests import LimitRequestDecided, LimitRequested
from plimsoll_contracts.nodes import NodeReport
from plimsoll_contracts.requests import EnforcementRequest
from plimsoll_contracts.usage import UsageDelta

PARTITIONS = 16
"""One count for every topic keyed by tenant, so that a tenant's topics meet in one process. It never changes:
keys would move to other partitions."""

REPLY_PREFIX = "quota.replies."
"""The only topics that the enforcer writes replies to."""

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the catalogue."""

    name: str
    key: str
    messages: Mapping[str, type[BaseModel]]
    """Message models by ``ce_type``."""
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    observers: str = ""
    """Who looks at it where no service of ours consumes it."""
    partitions: int = PARTITIONS
    retention: timedelta | None = timedelta(days=7)
    """How long records are kept; None keeps them for ever (compacted topics)."""
    compacted: bool = False
    max_message_bytes: int = _MIB
    dead_lettered: bool = False

    @property
    def dlq(self) -> "Topic | None":
        """The topic of this one's dead letters, where it has any."""
        if not self.dead_lettered:
            return None
        return Topic(
            name=f"{self.name}.dlq",
            key=self.key,
            messages={},
            producers=self.consumers,
            consumers=(),
            observers="operators, through plimsoll dlq",
            retention=timedelta(days=30),
            max_message_bytes=self.max_message_bytes + 64 * 1024,
        )


QUOTA_REQUESTS = Topic(
    name="quota.requests",
    key="tenant",
    messages={"quota.request.v1": EnforcementRequest},
    producers=("flows", "quota-enforcer"),
    consumers=("quota-enforcer",),
    dead_lettered=True,
)
USAGE_DELTAS = Topic(
    name="usage.deltas",
    key="tenant",
    messages={"usage.delta.v1": UsageDelta},
    producers=("platform",),
    consumers=("quota-enforcer",),
    dead_lettered=True,
)
ENTITLEMENT_EVENTS = Topic(
    name="entitlement.events",
    key="tenant",
    messages={"entitlement.snapshot.v1": EntitlementSnapshot},
    producers=("billing",),
    consumers=("quota-enforcer",),
    retention=None,
    compacted=True,
    dead_lettered=True,
)
NODE_REPORTS = Topic(
    name="node.reports",
    key="node",
    messages={"node.report.v1": NodeReport},
    producers=("node agents",),
    consumers=("quota-enforcer",),
    dead_lettered=True,
)
DISK_MEASUREMENTS = Topic(
    name="disk.measurements",
    key="tenant",
    messages={"disk.measured.v1": DiskMeasured},
    producers=("disk-scanner",),
    consumers=("quota-enforcer",),
    dead_lettered=True,
)
DISK_SCAN_REQUESTS = Topic(
    name="disk.scan.requests",
    key="tenant",
    messages={"disk.scan_requested.v1": DiskScanRequested},
    producers=("quota-enforcer",),
    consumers=(),
    observers="whoever measures disks; disk-scanner, once it is there",
)
QUOTA_DECISIONS = Topic(
    name="quota.decisions",
    key="tenant",
    messages={"quota.decision.v1": DecisionEvent},
    producers=("quota-enforcer",),
    consumers=(),
    observers="audit, analytics, whoever asks why",
)
QUOTA_LIMITS = Topic(
    name="quota.limits",
    key="tenant",
    messages={
        "quota.limit_changed.v1": LimitChanged,
        "quota.limit_requested.v1": LimitRequested,
        "quota.limit_request_decided.v1": LimitRequestDecided,
        "quota.over_limit_started.v1": OverLimit,
        "quota.over_limit_ended.v1": OverLimit,
        "quota.threshold_reached.v1": ThresholdReached,
        "quota.threshold_cleared.v1": ThresholdReached,
    },
    producers=("quota-enforcer",),
    consumers=(),
    observers="notifications to tenants and operators",
)


def replies_topic(caller: str) -> Topic:
    """Declare the reply topic of one kind of caller; each running caller reads one partition of it."""
    return Topic(
        name=f"{REPLY_PREFIX}{caller}",
        key="tenant",
        messages={"quota.reply.v1": EnforcementReply},
        producers=("quota-enforcer",),
        consumers=(caller,),
        retention=timedelta(minutes=5),
    )


REPLIES_FLOWS = replies_topic("flows")
REPLIES_HTTP = replies_topic("http")

_DECLARED = (
    QUOTA_REQUESTS,
    USAGE_DELTAS,
    ENTITLEMENT_EVENTS,
    NODE_REPORTS,
    DISK_MEASUREMENTS,
    DISK_SCAN_REQUESTS,
    QUOTA_DECISIONS,
    QUOTA_LIMITS,
    REPLIES_FLOWS,
    REPLIES_HTTP,
)

CATALOGUE: tuple[Topic, ...] = _DECLARED + tuple(topic.dlq for topic in _DECLARED if topic.dlq is not None)
"""Every topic of the platform, dead letters included."""
