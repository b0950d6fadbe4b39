"""What is asked of anything that enforces, and how its messages, replies and rows are read as the model says them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from tests.model.model import GAUGES, PLACES, Body, Gauge, Hold, Model, Place, Verdict

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.nodes import NodeReport
from plimsoll_contracts.usage import UsageDelta
from plimsoll_quota_enforcer.domain.model import Ask, Fact, Node
from plimsoll_quota_enforcer.domain.state import Policy, Settlement, Threshold
from plimsoll_quota_enforcer.requests import Asked, Decoder, entitlement_of, report_of
from plimsoll_streams.records import Record

Wish = tuple[int | None, str] | None

ORDER = (0, 1, 2, 3, 4, 6, 7, 8, 5)
"""Where each of the model's gauges stands in the rows of usage."""


@dataclass(frozen=True)
class Told:
    """What came of one transaction, and when it was by the clock that decided."""

    now: datetime
    replies: Sequence[EnforcementReply] = ()
    """Neither allowed nor a code where there is no answer yet."""
    facts: Sequence[str] = ()
    woken: Sequence[EnforcementReply] = ()


@dataclass(frozen=True)
class Rows:
    """What is kept of the tenant."""

    charges: dict[str, tuple[int, Body | None]]
    holds: dict[str, tuple[str, str]]
    usage: dict[Place, dict[Gauge, tuple[int, int]]]
    over: set[tuple[Place, Gauge, str]]
    changes: list[Body]
    seq: int
    nodes: dict[str, tuple[int, int]]
    measured: dict[Place, int]
    waiters: list[str]


class System(Protocol):
    """One tenant, worked on by two processes; ``lost`` ends a transaction without a commit."""

    tenant: str

    def now(self) -> datetime: ...
    def advance(self, seconds: float) -> None: ...
    def restart(self, process: int) -> None: ...
    def batch(self, bodies: list[Body], facts: list[Body], process: int, *, lost: bool = False) -> Told: ...
    def entitle(self, snapshots: list[Body], process: int) -> Told: ...
    def relimit(self, place: Place, wanted: Mapping[str, Wish], process: int, *, force: bool) -> datetime | None: ...
    def set_default(self, dimension: str, value: int | None) -> None: ...
    def sweep(self, process: int) -> datetime: ...
    def look(self, process: int) -> Told: ...
    def measure(self, place: Place, bytes_: int, order: tuple[int, int], process: int, *, complete: bool) -> Told: ...
    def report(self, body: Body, process: int) -> None: ...
    def rows(self) -> Rows: ...
    def close(self) -> None: ...


POLICY = Policy(thresholds=(Threshold("80%", percent=80), Threshold("vapps=2", None, Dimension.VAPPS, 2)))


def reported(body: Body, known: Node) -> Node:
    """Take in a report as the service does."""
    report = NodeReport.model_validate(body)
    return report_of(report, known) if report.version > known.version else known


def decoded(body: Body, policy: Policy = POLICY) -> tuple[Ask, str]:
    """Read a request as the service does."""
    headers = (("reply_to", b"quota.replies.model"),)
    record = Record("quota.requests", 0, 0, body["tenant"].encode(), json.dumps(body).encode(), headers)
    asked = Decoder(policy).request(record)
    assert isinstance(asked, Asked), asked
    return asked.ask, asked.body


def facts_of(bodies: list[Body]) -> list[Fact]:
    """Read usage deltas as the service does."""
    return [Decoder(Policy()).fact(UsageDelta.model_validate_json(json.dumps(body))) for body in bodies]


def became(settlement: Settlement) -> str:
    return settlement.outcome.value if settlement.outcome is not None else "conflict"


def snapshot_of(body: Body) -> Any:
    snapshot = EntitlementSnapshot.model_validate_json(json.dumps(body))
    return entitlement_of(snapshot, snapshot.model_dump_json())


def gauge_of(number: int) -> Gauge:
    return GAUGES[ORDER.index(number)]


def amounts_of(value: Any) -> tuple[int, ...]:
    f = value.content.footprint
    return (f.cpu_reserved, f.cpu_limit, f.memory_reserved, f.memory_limit, f.disk, f.vapps)


def what_is(place: Place, app: str, amounts: tuple[int, ...]) -> Body:
    cpu, cpu_limit, memory, memory_limit, disk, vapps = amounts
    assert (cpu, memory) == (cpu_limit, memory_limit), "plain amounts count on both bases"
    return {"place": place, "app": app, "cpu": cpu, "memory": memory, "disk": disk, "vapps": vapps}


def replayed(changes: list[Body]) -> Model:
    """Play a tenant's history from zero."""
    model = Model()
    for change in changes:
        if change["kind"] == "settled":
            model.charges[change["deployment"]] = (0, change["what"])
        elif change["kind"] == "hold_opened":
            bound = (tuple(change["replaces"]), change["surge"])
            never = datetime.max.replace(tzinfo=UTC)
            model.holds[change["hold"]] = Hold(change["deployment"], change["what"], never, "open", None, *bound)
        elif change["kind"] == "measured":
            model.measured[change["what"]["place"]] = ((0, 0), change["what"]["disk"])
        else:
            model.holds.pop(change["hold"], None)
    return model


def answer(reply: EnforcementReply) -> Verdict:
    """What a reply says, apart from words and moments, as the model says it."""
    places = {_rendered(reply.tenant, place): place for place in PLACES}
    violations = [
        {
            "place": places[v.scope],
            "dimension": v.dimension.value,
            "basis": v.basis.value if v.basis is not None else None,
            "shadow": v.shadow,
            **{
                name: getattr(v, name)
                for name in ("limit", "limit_source", "used", "held", "asked", "headroom", "would_fit")
            },
        }
        for v in reply.violations
    ]
    settled = reply.settled
    return {
        "allowed": reply.allowed,
        "code": reply.code,
        "violations": violations,
        "would_deny": reply.would_deny,
        "fail_open": [gate.value for gate in reply.fail_open],
        "denied_gates": [gate.value for gate in reply.denied_gates],
        "hold": (reply.hold.id, reply.hold.state.value) if reply.hold is not None else None,
        "settled": (settled.deployment, settled.revision, settled.outcome.value) if settled is not None else None,
        "over_limit": reply.over_limit,
        "repeated": reply.repeated,
        "capacity": [each.model_dump(mode="json") for each in reply.capacity],
        "replaced": [(each.deployment, each.revision, each.outcome.value) for each in reply.replaced],
        "nodes": set(reply.nodes),
    }


def expected(told: Verdict) -> Verdict:
    """What the model says, as far as a reply does; where it is on nodes is told with a hold."""
    nodes = set(told["there"]) if told["hold"] is not None and told["there"] else set()
    return {name: value for name, value in told.items() if name not in ("lacks", "there", "request_id")} | {
        "nodes": nodes
    }


def _rendered(tenant: str | None, place: Place) -> str:
    environment, stack = place
    if stack:
        return f"{tenant}/{stack}/{environment}"
    return f"{tenant}/env:{environment}" if environment else f"{tenant}"
