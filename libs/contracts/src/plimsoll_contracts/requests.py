"""What do flows ask: the five verbs of enforcement, and how their bodies are read."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    SerializerFunctionWrapHandler,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from plimsoll_contracts.codes import INVALID_REQUEST, TOO_LARGE, UNDECODABLE, Code
from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.fields import (
    NO_ROLL_UP,
    TEXT_PATTERN,
    Bytes,
    Count,
    Flag,
    Id,
    Instant,
    Millicores,
    Name,
    Request,
    Revision,
    refuse_roll_up,
)
from plimsoll_contracts.problems import code_of, explain
from plimsoll_contracts.scopes import Scope

MAX_REQUEST_BYTES = 384 * 1024
"""Largest request body that is read; larger ones are refused unread."""

MAX_COMPOSE_CHARACTERS = 256 * 1024
"""Largest rendered compose file."""

MIN_TTL_SECONDS, DEFAULT_TTL_SECONDS, MAX_TTL_SECONDS = 1, 600, 86_400
MAX_WAIT_SECONDS = 3600
MAX_REPLACES, MAX_NODES, MAX_LABELS = 32, 256, 16

_Milli = Annotated[int, Field(strict=True, ge=100, le=100_000)]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=TEXT_PATTERN)]


def _one_size(footprint: JsonValue) -> dict[str, JsonValue]:
    """Tell readers of the published schemas that amounts come from a footprint or from a compose file."""
    plain: JsonValue = {
        "required": ["footprint"],
        "properties": {"footprint": footprint, "compose": {"type": "null"}},
    }
    rendered: JsonValue = {
        "required": ["compose"],
        "properties": {"compose": {"type": "string"}, "footprint": {"type": "null"}},
    }
    return {**NO_ROLL_UP, "oneOf": [plain, rendered]}


class Footprint(Request):
    """What one deployment takes, in absolute amounts. Plain amounts count on both bases (DESIGN 5.4)."""

    cpu: Millicores = 0
    memory: Bytes = 0
    disk: Bytes = 0
    vapps: Count = 0


class MultiplierTerms(Request):
    """How amounts are held against limits, in thousandths; what is absent is resolved further down (DESIGN 5.4)."""

    reservation_milli: _Milli | None = None
    """What reservations charge: 1000 is as they are."""
    limit_milli: _Milli | None = None
    """How far compose limits together may over-subscribe a limit."""


class Placement(Request):
    """Where it shall run: on one node, or anywhere in a pool. Capacity is judged beside quota (DESIGN 5.5)."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {
                    "required": ["node"],
                    "properties": {
                        "node": {"type": "string"},
                        "pool": {"type": "null"},
                        "labels": {"maxProperties": 0},
                    },
                },
                {"required": ["pool"], "properties": {"pool": {"type": "string"}, "node": {"type": "null"}}},
            ]
        }
    )

    node: Name | None = None
    pool: Name | None = None
    labels: Mapping[Name, LabelValue] = Field(default_factory=dict, max_length=MAX_LABELS)
    """A node of the pool is eligible only if it has all of these."""

    @model_validator(mode="after")
    def _names_one(self) -> "Placement":
        if (self.node is None) == (self.pool is None) or (self.labels and self.pool is None):
            raise PydanticCustomError("placement", "name a node, or a pool and perhaps labels")
        return self


class NodeAmounts(Request):
    """What a deployment reserves on one node, raw: before any multiplier."""

    cpu: Millicores = 0
    memory: Bytes = 0


NodeShares = Annotated[Mapping[Name, NodeAmounts], Field(max_length=MAX_NODES)]
"""What a deployment really has where, by node."""


class _Request(Request):
    request_id: Id
    issued_at: Instant
    """When the caller first asked; kept on retries."""
    tenant: Name


class _Placed(_Request):
    model_config = ConfigDict(json_schema_extra=_one_size({"type": "object"}))

    environment: Name | None = None
    stack: Name | None = None
    deployment: Id
    app: Name | None = None
    footprint: Footprint | None = None
    """Plain amounts; either these or ``compose``."""
    compose: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MAX_COMPOSE_CHARACTERS)] | None = (
        None
    )
    """The rendered compose file, from which the footprint is read: exactly what Docker will be asked to honour."""
    multipliers: MultiplierTerms | None = None
    """The request's own, within the platform's bounds."""
    app_multipliers: MultiplierTerms | None = None
    """Those of the app's file, which the request's come before."""

    @model_validator(mode="after")
    def _is_well_formed(self) -> "_Placed":
        refuse_roll_up(self.environment, self.stack)
        told = "footprint" in self.model_fields_set if self._may_be_gone else self.footprint is not None
        if (self.compose is None and not told) or (self.compose is not None and self.footprint is not None):
            raise PydanticCustomError("footprint", "give a footprint, or a compose file: one of the two")
        return self

    @property
    def _may_be_gone(self) -> bool:
        return False

    @property
    def scope(self) -> Scope:
        """Where the deployment lies."""
        return Scope(self.tenant, self.environment or "", self.stack or "")


class _Growth(_Placed):
    mode: Mode = Mode.ENFORCE
    replaces: Annotated[tuple[Id, ...], Field(max_length=MAX_REPLACES)] = ()
    """Deployments that end when this one is committed: it is judged on the difference (DESIGN 5.3 rule 4)."""
    surge: Flag = False
    """The new one starts before the replaced ones stop: it is judged on top of them."""
    placement: Placement | None = None

    @model_validator(mode="after")
    def _replaces_others(self) -> "_Growth":
        if self.replaces and (len(set(self.replaces)) < len(self.replaces) or self.deployment in self.replaces):
            raise PydanticCustomError("replaces", "name each replaced deployment once, and not the new one")
        return self


class CheckRequest(_Growth):
    """Would this be allowed now? Advisory: nothing is stored and nothing is held."""

    verb: Literal["check"]


class ReserveRequest(_Growth):
    """Check and hold in one step, at every scope or none."""

    verb: Literal["reserve"]
    ttl_seconds: Annotated[int, Field(strict=True, ge=MIN_TTL_SECONDS, le=MAX_TTL_SECONDS)] = DEFAULT_TTL_SECONDS
    supersedes: Id | None = None
    """The open hold of the same deployment that this one takes the place of."""
    wait_seconds: Annotated[int, Field(strict=True, ge=0, le=MAX_WAIT_SECONDS)] = 0
    """Wait this long for room instead of being refused at once; the platform may bound it lower."""


class CommitRequest(_Request):
    """Settle a hold's target: the deployment runs as reserved, and what it replaces has ended."""

    verb: Literal["commit"]
    hold: Id
    revision: Revision | None = None
    """The deployment's own version; None is its present revision + 1, taken under the guard."""
    replaced: Annotated[Mapping[Id, Revision], Field(max_length=MAX_REPLACES)] = Field(default_factory=dict)
    """At which revision each replaced deployment ended; those not named end at their present one + 1."""
    nodes: NodeShares | None = None
    """Where it really runs; None keeps what was reserved."""


class ReleaseRequest(_Request):
    """Close a hold without settling anything."""

    verb: Literal["release"]
    hold: Id


class AdjustRequest(_Placed):
    """Settle a fact; it may go over a limit. A footprint of null means that the deployment is gone."""

    model_config = ConfigDict(json_schema_extra=_one_size({}))

    verb: Literal["adjust"]
    revision: Revision | None = None
    nodes: NodeShares | None = None
    """Where it runs; None leaves it where it was."""

    @property
    def _may_be_gone(self) -> bool:
        return True

    @model_serializer(mode="wrap")
    def _say_gone(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Being gone is always written, also where what is as by default is left out."""
        written: dict[str, Any] = write(self)
        if self.footprint is None and self.compose is None:
            written["footprint"] = None
        return written


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
_NESTED = frozenset({"compose", "multipliers", "app_multipliers", "placement", "replaced", "nodes"})


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
    if _NESTED.isdisjoint(request.model_fields_set):
        repeated = len(_KEY.findall(body)) != _count_keys(request)
    else:
        repeated = _repeats_a_key(body)
    if repeated:
        raise RequestInvalid(INVALID_REQUEST, "a key is written twice: which one counts is anybody's guess")
    return request


def _count_keys(request: AnyRequest) -> int:
    """Count the keys that made a flat request; more of them in its body means that one was repeated.

    No text of such a request can hold a quotation mark or begin with a colon, so each ``":`` of a body ends a key.
    """
    footprint = getattr(request, "footprint", None)
    return len(request.model_fields_set) + (len(footprint.model_fields_set) if footprint is not None else 0)


def _repeats_a_key(body: bytes) -> bool:
    """Look at every object of a body, which costs more than counting."""
    repeated = False

    def once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        nonlocal repeated
        members = dict(pairs)
        repeated |= len(members) < len(pairs)
        return members

    json.loads(body, object_pairs_hook=once)
    return repeated
