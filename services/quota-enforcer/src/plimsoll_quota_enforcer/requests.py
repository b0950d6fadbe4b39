"""How does a record become a request: its reply address, its body, and what is wrong with either."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.disk import DiskMeasured
from plimsoll_contracts.enforcement import Verb
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.envelope import EnvelopeError, text_header
from plimsoll_contracts.nodes import NodeReport
from plimsoll_contracts.requests import (
    DEFAULT_TTL_SECONDS,
    AdjustRequest,
    AnyRequest,
    CheckRequest,
    CommitRequest,
    Footprint,
    NodeAmounts,
    Placement,
    ReleaseRequest,
    RequestInvalid,
    ReserveRequest,
    parse_request,
)
from plimsoll_contracts.topics import REPLY_PREFIX
from plimsoll_contracts.usage import FootprintFact, UsageDelta
from plimsoll_quota_enforcer.domain.compose import ComposeRefused, read_compose
from plimsoll_quota_enforcer.domain.model import (
    Ask,
    Content,
    Entitlement,
    Fact,
    Measured,
    Node,
    NodeShare,
    Patience,
    Place,
    Placing,
    Replica,
    ReplyTo,
)
from plimsoll_quota_enforcer.domain.model import Footprint as Raw
from plimsoll_quota_enforcer.domain.multipliers import MultiplierOutOfBounds, resolve_multipliers
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.domain.values import value
from plimsoll_streams.failures import Invalid
from plimsoll_streams.records import Headers, Record

_OURS = frozenset(Dimension)
_MAX_PARTITION = 2**31 - 1


@value
class Asked:
    """One request, and where its answer goes."""

    address: ReplyTo
    ask: Ask
    body: str
    """The request in canonical form, as it is stored."""
    trace: Headers = ()
    """The caller's ``traceparent``, which events about the decision carry on."""

    @property
    def tenant(self) -> str:
        """The tenant whose guard is needed."""
        return self.ask.tenant


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that is no request, and what its sender is told."""

    address: ReplyTo
    code: Code
    detail: str
    tenant: str = ""
    """Empty: there is nothing to guard."""


class Decoder:
    """Reads requests under the platform's policy."""

    def __init__(self, policy: Policy) -> None:
        """Resolve multipliers and footprints once, where a request comes in (DESIGN 5.4)."""
        self._policy = policy

    def request(self, record: Record) -> Asked | Refused:
        """Read a record of ``quota.requests``.

        Raises:
            Invalid: nobody can be told what is wrong, so that the record becomes a dead letter: it has no
                usable reply address.
        """
        address = _address(record)
        try:
            deadline, traceparent = _deadline(record), text_header(record.headers, "traceparent")
            request = parse_request(record.value)
            if record.key != request.tenant.encode():
                detail = f"the key is {_shown(record.key)}, the body's tenant is {request.tenant}"
                return Refused(address, codes.KEY_MISMATCH, detail)
            body = request.model_dump_json(exclude_defaults=True)
            ask = self._ask(request, body, deadline, address)
        except (EnvelopeError, RequestInvalid, ComposeRefused, MultiplierOutOfBounds) as error:
            return Refused(address, error.code, error.detail)
        trace = (("traceparent", traceparent.encode()),) if traceparent is not None else ()
        return Asked(address, ask, body, trace)

    def again(self, body: str, reply_to: ReplyTo) -> Ask:
        """Read a request that was stored, as one that waits is."""
        return self._ask(parse_request(body.encode()), body, None, reply_to)

    def fact(self, delta: UsageDelta) -> Fact:
        """Read a usage delta as the settle that it is."""
        place = _place(delta.environment, delta.stack)
        content = Content(place, delta.app or "", _raw(delta.after), self._policy.multipliers)
        return Fact(delta.tenant, delta.deployment, delta.revision, content, gone=delta.after is None)

    def _ask(self, request: AnyRequest, body: str, deadline: datetime | None, reply_to: ReplyTo) -> Ask:
        fingerprint = blake2b(body.encode(), digest_size=16).digest()
        known = (request.request_id, request.tenant, request.issued_at, fingerprint)
        if isinstance(request, CommitRequest):
            hold, revision, nodes = request.hold, request.revision, _shares(request.nodes)
            return Ask(Verb.COMMIT, *known, hold=hold, revision=revision, replaced=request.replaced, nodes=nodes)
        if isinstance(request, ReleaseRequest):
            return Ask(Verb.RELEASE, *known, hold=request.hold)
        place, app = _place(request.environment, request.stack), request.app or ""
        target, replicas, notes = self._target(request, place, app)
        if isinstance(request, AdjustRequest):
            revision, nodes = request.revision, _shares(request.nodes)
            about = (request.deployment, target, place, app)
            return Ask(Verb.ADJUST, *known, *about, revision=revision, nodes=nodes, notes=notes)
        reserve = request if isinstance(request, ReserveRequest) else None
        waits = reserve is not None and reserve.wait_seconds > 0
        return Ask(
            Verb.RESERVE if reserve is not None else Verb.CHECK,
            *known,
            request.deployment,
            target,
            place,
            app,
            request.mode,
            ttl_seconds=reserve.ttl_seconds if reserve is not None else DEFAULT_TTL_SECONDS,
            supersedes=reserve.supersedes if reserve is not None else None,
            deadline=deadline,
            replaces=request.replaces,
            surge=request.surge,
            placing=_placing(request.placement, replicas) if request.placement is not None else None,
            patience=Patience(reserve.wait_seconds, reply_to, body) if reserve is not None and waits else None,
            notes=notes,
        )

    def _target(
        self, request: CheckRequest | ReserveRequest | AdjustRequest, place: Place, app: str
    ) -> tuple[Content | None, tuple[Replica, ...], tuple[str, ...]]:
        """Return what is asked for, what of it has to be placed, and what to know about how it was read."""
        multipliers = self._policy.multipliers
        if request.multipliers is not None or request.app_multipliers is not None:
            multipliers = resolve_multipliers(
                request.multipliers, request.app_multipliers, multipliers, self._policy.bounds
            )
        if request.compose is not None:
            # What adjust tells is so already: a fact is taken, also without resources, and noted.
            required = self._policy.require_resources and not isinstance(request, AdjustRequest)
            read = read_compose(request.compose, require_resources=required)
            return Content(place, app, read.footprint, multipliers), read.replicas, read.notes
        if request.footprint is None:
            return None, (), ()
        raw = _raw(request.footprint)
        return Content(place, app, raw, multipliers), (Replica("", 1, raw.cpu_reserved, raw.memory_reserved),), ()


def _placing(placement: Placement, replicas: tuple[Replica, ...]) -> Placing:
    return Placing(placement.node or "", placement.pool or "", placement.labels, replicas)


def _shares(nodes: Mapping[str, NodeAmounts] | None) -> tuple[NodeShare, ...] | None:
    if nodes is None:
        return None
    return tuple((node, amounts.cpu, amounts.memory) for node, amounts in sorted(nodes.items()))


def report_of(report: NodeReport, known: Node) -> Node:
    """Read a report of a node: all but what is allocated there, which is ours to know."""
    capacity = (report.capacity.cpu, report.capacity.memory) if report.capacity is not None else None
    return replace(
        known,
        pool=report.pool,
        labels=report.labels,
        capacity=capacity,
        schedulable=report.schedulable,
        version=report.version,
    )


def measurement_of(told: DiskMeasured) -> tuple[Place, Measured] | None:
    """Read a measurement; None where nothing was measured, which is unknown and never 0."""
    if told.bytes is None:
        return None
    measured = Measured(told.bytes, (told.term, told.scan), told.measured_at, told.method, told.complete)
    return _place(told.environment, told.stack), measured


def _place(environment: str | None, stack: str | None) -> Place:
    return (environment or "", stack or "")


def _raw(amounts: Footprint | FootprintFact | None) -> Raw:
    if amounts is None:
        return Raw()
    return Raw.plain(cpu=amounts.cpu, memory=amounts.memory, disk=amounts.disk, vapps=amounts.vapps)


def _address(record: Record) -> ReplyTo:
    try:
        topic = text_header(record.headers, "reply_to")
        partition = text_header(record.headers, "reply_partition")
    except EnvelopeError as error:
        raise Invalid(codes.NO_REPLY_TO, error.detail) from None
    if topic is None:
        raise Invalid(codes.NO_REPLY_TO, "header reply_to is missing")
    if not topic.startswith(REPLY_PREFIX):
        raise Invalid(codes.REPLY_TO_REFUSED, f"reply_to {topic!r} does not begin with {REPLY_PREFIX}")
    number = None
    if partition is not None:
        if not (partition.isascii() and partition.isdigit() and int(partition) <= _MAX_PARTITION):
            raise Invalid(codes.REPLY_TO_UNKNOWN, f"reply_partition {partition!r} is no partition")
        number = int(partition)
    correlation = next((value for name, value in reversed(record.headers) if name == "correlation_id"), None)
    return ReplyTo(topic, number, correlation)


def _deadline(record: Record) -> datetime | None:
    text = text_header(record.headers, "deadline")
    if text is None:
        return None
    try:
        return datetime.fromtimestamp(int(text.encode("ascii")) / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # digits of other scripts too
        raise EnvelopeError(f"deadline {text[:32]!r} is not milliseconds since 1970") from None


def _shown(key: bytes | None) -> str:
    return "absent" if key is None else repr(key[:80].decode(errors="replace"))


def entitlement_of(snapshot: EntitlementSnapshot, text: str) -> Entitlement:
    """Read a snapshot as what the enforcer projects of it: its own dimensions, its one feature, the verdicts.

    Args:
        snapshot: as it was published.
        text: the same in canonical form, by which two of one version are compared.
    """
    return Entitlement(
        snapshot.entitlement_version,
        snapshot.plan,
        {
            Dimension(name): value if isinstance(value, int) else None
            for name, value in snapshot.limits.items()
            if name in _OURS
        },
        snapshot.features.get("deployments", True),
        frozenset(Dimension(name) for name in snapshot.quota_blocked if name in _OURS),
        snapshot.ended,
        fingerprint=blake2b(text.encode(), digest_size=16).digest(),
    )
