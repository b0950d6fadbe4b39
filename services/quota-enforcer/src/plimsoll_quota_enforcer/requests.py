"""How does a record become a request: its reply address, its body, and what is wrong with either."""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Verb
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.envelope import EnvelopeError, text_header
from plimsoll_contracts.requests import (
    AdjustRequest,
    AnyRequest,
    CheckRequest,
    CommitRequest,
    Footprint,
    ReleaseRequest,
    RequestInvalid,
    ReserveRequest,
    parse_request,
)
from plimsoll_contracts.topics import REPLY_PREFIX
from plimsoll_contracts.usage import FootprintFact, UsageDelta
from plimsoll_quota_enforcer.domain.model import Ask, Content, Entitlement, Fact, Multipliers, Place
from plimsoll_quota_enforcer.domain.model import Footprint as Raw
from plimsoll_streams.failures import Invalid
from plimsoll_streams.records import Headers, Record

_OURS = frozenset(Dimension)
_MAX_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Address:
    """Where the reply goes, as the request's headers say."""

    topic: str
    partition: int | None
    correlation_id: bytes | None


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and where its answer goes."""

    address: Address
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

    address: Address
    code: Code
    detail: str
    tenant: str = ""
    """Empty: there is nothing to guard."""


class Decoder:
    """Reads requests under the platform's multipliers."""

    def __init__(self, multipliers: Multipliers) -> None:
        """Resolve multipliers once, where a request comes in (DESIGN 5.4)."""
        self._multipliers = multipliers

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
        except (EnvelopeError, RequestInvalid) as error:
            return Refused(address, error.code, error.detail)
        if record.key != request.tenant.encode():
            detail = f"the key is {_shown(record.key)}, the body's tenant is {request.tenant}"
            return Refused(address, codes.KEY_MISMATCH, detail)
        body = request.model_dump_json(exclude_defaults=True)
        trace = (("traceparent", traceparent.encode()),) if traceparent is not None else ()
        return Asked(address, self._ask(request, body, deadline), body, trace)

    def fact(self, delta: UsageDelta) -> Fact:
        """Read a usage delta as the settle that it is."""
        place = _place(delta.environment, delta.stack)
        content = Content(place, delta.app or "", _raw(delta.after), self._multipliers)
        return Fact(delta.tenant, delta.deployment, delta.revision, content, gone=delta.after is None)

    def _ask(self, request: AnyRequest, body: str, deadline: datetime | None) -> Ask:
        fingerprint = blake2b(body.encode(), digest_size=16).digest()
        known = (request.request_id, request.tenant, request.issued_at, fingerprint)
        if isinstance(request, CommitRequest):
            return Ask(Verb.COMMIT, *known, hold=request.hold, revision=request.revision)
        if isinstance(request, ReleaseRequest):
            return Ask(Verb.RELEASE, *known, hold=request.hold)
        place, app = _place(request.environment, request.stack), request.app or ""
        target = (
            Content(place, app, _raw(request.footprint), self._multipliers) if request.footprint is not None else None
        )
        if isinstance(request, AdjustRequest):
            return Ask(Verb.ADJUST, *known, request.deployment, target, place, app, revision=request.revision)
        if isinstance(request, CheckRequest):
            return Ask(Verb.CHECK, *known, request.deployment, target, place, app, request.mode, deadline=deadline)
        return self._reserve(request, known, target, deadline)

    @staticmethod
    def _reserve(
        request: ReserveRequest,
        known: tuple[str, str, datetime, bytes],
        target: Content | None,
        deadline: datetime | None,
    ) -> Ask:
        return Ask(
            Verb.RESERVE,
            *known,
            request.deployment,
            target,
            _place(request.environment, request.stack),
            request.app or "",
            request.mode,
            ttl_seconds=request.ttl_seconds,
            supersedes=request.supersedes,
            deadline=deadline,
        )


def _place(environment: str | None, stack: str | None) -> Place:
    return (environment or "", stack or "")


def _raw(amounts: Footprint | FootprintFact | None) -> Raw:
    if amounts is None:
        return Raw()
    return Raw.plain(cpu=amounts.cpu, memory=amounts.memory, disk=amounts.disk, vapps=amounts.vapps)


def _address(record: Record) -> Address:
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
    return Address(topic, number, correlation)


def _deadline(record: Record) -> datetime | None:
    text = text_header(record.headers, "deadline")
    if text is None:
        return None
    try:
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
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
