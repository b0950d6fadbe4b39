"""How is a decision told: the reply to its caller, and the events for whoever watches."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from plimsoll_contracts.codes import EXCEEDED, Code
from plimsoll_contracts.dimensions import unit_of
from plimsoll_contracts.disk import DiskScanRequested
from plimsoll_contracts.enforcement import (
    CapacityShortfall,
    CountedFootprint,
    EnforcementReply,
    Gate,
    HoldView,
    OverLimit,
    Settled,
    ThresholdReached,
    Verb,
    Violation,
)
from plimsoll_contracts.envelope import Envelope
from plimsoll_contracts.quantities import render
from plimsoll_contracts.scopes import Scope
from plimsoll_contracts.topics import DISK_SCAN_REQUESTS, QUOTA_DECISIONS, QUOTA_LIMITS, Topic
from plimsoll_quota_enforcer.domain import state as domain
from plimsoll_quota_enforcer.domain.model import Ask, Hold, Place, ReplyTo, StoredDecision
from plimsoll_quota_enforcer.domain.state import OVER, Crossing, Decision, Edge, Passage
from plimsoll_streams.records import Headers, OutboxMessage, Reply

_JSON: Headers = (("content-type", b"application/json"),)

SOURCE = "plimsoll/quota-enforcer"


def scope_of(tenant: str, place: Place) -> Scope:
    """Return a place inside a tenant as the scope it is."""
    return Scope(tenant, *place)


def reply(decision: Decision, decided_at: datetime) -> EnforcementReply:
    """Tell a decision to its caller."""
    if decision.repeats is not None:
        return _repeated(decision, decided_at)
    ask = decision.ask
    return EnforcementReply(
        request_id=ask.request_id,
        verb=ask.verb,
        tenant=ask.tenant,
        allowed=decision.allowed,
        code=decision.code.code if decision.code is not None else None,
        status=decision.code.status if decision.code is not None else 200,
        message=_words(decision),
        violations=tuple(_violation(ask.tenant, violation) for violation in decision.violations),
        would_deny=decision.would_deny,
        fail_open=failed_open(decision),
        denied_gates=tuple(verdict.gate for verdict in decision.gates if verdict.passage is Passage.DENY),
        capacity=tuple(map(_shortfall, decision.shortfalls)),
        nodes=tuple(node for node, _, _ in decision.hold.target.nodes) if decision.hold is not None else (),
        counted=_counted(ask),
        notes=decision.notes,
        hold=_hold(decision.hold),
        replaced=tuple(told for each in decision.replaced if (told := _settled(each)) is not None),
        waited_ms=int(decision.waited / timedelta(milliseconds=1)) if decision.waited is not None else None,
        settled=_settled(decision.settlement) if decision.settlement is not None else None,
        over_limit=decision.over_limit,
        seq=decision.seq,
        entitlement_version=decision.entitlement_version,
        decided_at=decided_at,
    )


def _counted(ask: Ask) -> CountedFootprint | None:
    return CountedFootprint(**asdict(ask.target.footprint)) if ask.verb is Verb.CHECK and ask.target else None


def told(decision: Decision, decided_at: datetime) -> str:
    """Tell a decision to its caller as JSON: what ``reply`` comes to, which a plain yes needs no model for."""
    ask, hold = decision.ask, decision.hold
    if not _is_plain_yes(decision):
        return reply(decision, decided_at).model_dump_json(exclude_defaults=True)
    body: dict[str, object] = {"request_id": ask.request_id, "verb": ask.verb, "tenant": ask.tenant, "allowed": True}
    if fail_open := failed_open(decision):
        body["fail_open"] = fail_open
    if hold is not None:
        expires_at = hold.expires_at
        body["hold"] = {"id": hold.id, "deployment": hold.deployment, "state": hold.state, "expires_at": expires_at}
    body["seq"] = decision.seq
    if decision.entitlement_version is not None:
        body["entitlement_version"] = decision.entitlement_version
    body["decided_at"] = decided_at
    return to_json(body).decode()


def _is_plain_yes(decision: Decision) -> bool:
    hold = decision.hold
    return (
        decision.allowed
        and decision.ask.verb is not Verb.CHECK
        and decision.repeats is None
        and not decision.message
        and not decision.violations
        and not decision.would_deny
        and not decision.notes
        and decision.settlement is None
        and not decision.replaced
        and decision.waited is None
        and not decision.over_limit
        and not decision.shortfalls
        and (hold is None or not hold.target.nodes)
    )


def failed_open(decision: Decision) -> tuple[Gate, ...]:
    """Name the gates that let a decision through because nothing is known of the entitlement."""
    return tuple(verdict.gate for verdict in decision.gates if verdict.passage is Passage.FAIL_OPEN)


def refusal(code: Code, detail: str) -> EnforcementReply:
    """Tell a caller why its message was not taken as a request at all."""
    return EnforcementReply(
        request_id=None, verb=None, tenant=None, allowed=False, code=code.code, status=code.status, message=detail
    )


def event(decision: Decision, told: str) -> str:
    """Tell a decision to whoever watches: the reply's JSON, and what was asked about (a ``DecisionEvent``)."""
    ask = decision.ask
    environment, stack = ask.place
    about = {
        "environment": environment,
        "stack": stack,
        "deployment": ask.deployment or (decision.hold.deployment if decision.hold is not None else ""),
        "app": ask.app,
    }
    known = {name: value for name, value in about.items() if value}
    # Put together as text: every decision is told twice, and the second time should cost next to nothing.
    return f"{told[:-1]},{to_json(known | {'mode': ask.mode}).decode()[1:]}"


def addressed(to: ReplyTo, key: bytes | None, body: str) -> Reply:
    """Put an answer into the form in which it is sent."""
    headers = _JSON if to.correlation_id is None else (("correlation_id", to.correlation_id), *_JSON)
    return Reply(to.topic, to.partition, key, body.encode(), headers)


def decision_message(decision: Decision, body: str, wrapping: Headers, trace: Headers = ()) -> OutboxMessage:
    """Publish a decision for whoever watches."""
    ask = decision.ask
    headers = (*wrapping, ("ce_id", f"{ask.tenant}:{ask.request_id}".encode()), *trace)
    return OutboxMessage(QUOTA_DECISIONS.name, ask.tenant.encode(), event(decision, body).encode(), headers)


def crossing_message(tenant: str, crossing: Crossing, now: datetime) -> OutboxMessage:
    """Tell that a scope has crossed a limit or a threshold of one, or has come back under it."""
    scope, info = scope_of(tenant, crossing.place).render(), crossing.info
    name = f"{tenant}:{crossing.seq}:{scope}:{info.gauge}:{crossing.threshold}:{crossing.edge}"
    known: dict[str, Any] = {
        "tenant": tenant,
        "scope": scope,
        "dimension": info.dimension,
        "basis": info.basis,
        "limit": crossing.ceiling,
        "usage": crossing.usage,
        "since": crossing.since,
        "cause": crossing.cause,
        "seq": crossing.seq,
    }
    told: BaseModel
    if crossing.threshold == OVER:
        kind = _OVER_LIMIT_TYPES[crossing.edge]
        over_by = max(0, crossing.usage - crossing.ceiling) if crossing.ceiling is not None else 0
        told = OverLimit(**known, over_by=over_by)
    else:
        kind = _THRESHOLD_TYPES[crossing.edge]
        told = ThresholdReached(**known, threshold=crossing.threshold)
    return message(QUOTA_LIMITS, tenant, kind, told, name=name, at=now)


def scan_message(tenant: str, place: Place, seq: int, now: datetime) -> OutboxMessage:
    """Ask for a scope's disk to be measured: it gave some back, and its old figure stands until then (rule 9)."""
    environment, stack = place
    told = DiskScanRequested(
        tenant=tenant,
        environment=environment or None,
        stack=stack or None,
        reason="a deployment there has shrunk or is gone",
        requested_at=now,
    )
    name = f"{tenant}:{seq}:{scope_of(tenant, place).render()}"
    return message(DISK_SCAN_REQUESTS, tenant, "disk.scan_requested.v1", told, name=name, at=now)


def message(topic: Topic, key: str, kind: str, body: BaseModel, *, name: str, at: datetime) -> OutboxMessage:
    """Wrap an event of ours; the same cause always gives the same name, so that a reader can drop repeats."""
    headers = tuple(Envelope(name, kind, SOURCE, at).headers())
    return OutboxMessage(topic.name, key.encode(), body.model_dump_json().encode(), headers)


_OVER_LIMIT_TYPES = {Edge.STARTED: "quota.over_limit_started.v1", Edge.ENDED: "quota.over_limit_ended.v1"}
_THRESHOLD_TYPES = {Edge.STARTED: "quota.threshold_reached.v1", Edge.ENDED: "quota.threshold_cleared.v1"}


def wrapping(event_type: str, at: datetime) -> Headers:
    """Return the headers that all events of one type share at one instant: an envelope's, without its id."""
    return tuple((name, value) for name, value in Envelope("-", event_type, SOURCE, at).headers() if name != "ce_id")


def _repeated(decision: Decision, now: datetime) -> EnforcementReply:
    """Give the stored answer again, with the present state of the hold."""
    earlier = decision.repeats
    if isinstance(earlier, StoredDecision):
        told = EnforcementReply.model_validate_json(earlier.reply)
    elif earlier is not None:
        told = reply(earlier, now)
    else:
        raise ValueError("not a repeat")
    return told.model_copy(update={"repeated": True, "hold": _hold(decision.hold) or told.hold})


def _words(decision: Decision) -> str:
    if decision.message or decision.code is None:
        return decision.message
    enforced = [violation for violation in decision.violations if not violation.shadow]
    first = next((v for v in enforced if EXCEEDED[v.info.dimension] is decision.code), None)
    if first is not None:
        return _sentence(decision.ask, first)
    short = next((each for each in decision.shortfalls if each.code is decision.code), None)
    return _shortage(short) if short is not None else decision.code.title


def _shortage(short: domain.Shortfall) -> str:
    unit = unit_of(short.dimension)
    where = f"node {short.node}" if short.node else f"pool {short.pool}, {short.eligible} eligible nodes"
    figures = (
        ("capacity", short.capacity),
        ("allocated", short.allocated),
        ("asked", short.asked),
        ("largest free", short.largest_free),
    )
    return f"{where} {short.dimension}: {'  '.join(f'{name} {render(unit, amount)}' for name, amount in figures)}"


def _sentence(ask: Ask, violation: domain.Violation) -> str:
    unit = unit_of(violation.info.dimension)
    basis = f" ({violation.info.basis})" if violation.info.basis is not None else ""
    figures = "  ".join(
        f"{name} {render(unit, amount)}"
        for name, amount in (
            ("limit", violation.ceiling),
            ("used", violation.used),
            ("held", violation.held),
            ("asked", violation.asked),
            ("would fit", violation.would_fit),
        )
    )
    return f"{scope_of(ask.tenant, violation.place)} {violation.info.dimension}{basis}: {figures}"


def _violation(tenant: str, violation: domain.Violation) -> Violation:
    limit = violation.resolved.limit
    return Violation(
        code=EXCEEDED[violation.info.dimension].code,
        scope=scope_of(tenant, violation.place).render(),
        dimension=violation.info.dimension,
        basis=violation.info.basis,
        limit=violation.ceiling,
        limit_source=violation.resolved.source,
        limit_set_by=limit.set_by if limit is not None else None,
        limit_set_at=limit.set_at if limit is not None else None,
        used=violation.used,
        held=violation.held,
        asked=violation.asked,
        headroom=violation.headroom,
        would_fit=violation.would_fit,
        shadow=violation.shadow,
    )


def _shortfall(short: domain.Shortfall) -> CapacityShortfall:
    return CapacityShortfall(
        code=short.code.code,
        node=short.node or None,
        pool=short.pool or None,
        dimension=short.dimension,
        capacity=short.capacity,
        allocated=short.allocated,
        asked=short.asked,
        largest_free=short.largest_free,
        eligible=short.eligible,
    )


def _settled(settlement: domain.Settlement) -> Settled | None:
    if settlement.outcome is None:
        return None
    return Settled(deployment=settlement.deployment, revision=settlement.revision, outcome=settlement.outcome)


def _hold(hold: Hold | None) -> HoldView | None:
    if hold is None:
        return None
    return HoldView(id=hold.id, deployment=hold.deployment, state=hold.state, expires_at=hold.expires_at)
