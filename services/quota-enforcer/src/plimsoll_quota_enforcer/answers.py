"""How is a decision told: the reply to its caller, and the events for whoever watches."""

import json
from datetime import datetime

from plimsoll_contracts.codes import EXCEEDED, Code
from plimsoll_contracts.dimensions import unit_of
from plimsoll_contracts.enforcement import EnforcementReply, Gate, HoldView, OverLimit, Settled, Violation
from plimsoll_contracts.envelope import Envelope
from plimsoll_contracts.quantities import render
from plimsoll_contracts.scopes import Scope
from plimsoll_quota_enforcer.domain import state as domain
from plimsoll_quota_enforcer.domain.model import Ask, Hold, Place, StoredDecision
from plimsoll_quota_enforcer.domain.state import Crossing, Decision, Edge, Passage
from plimsoll_streams.records import Headers

SOURCE = "plimsoll/quota-enforcer"


def scope_of(tenant: str, place: Place) -> Scope:
    """Return a place inside a tenant as the scope it is."""
    return Scope(tenant, *place)


def reply(decision: Decision, decided_at: datetime) -> EnforcementReply:
    """Tell a decision to its caller."""
    if decision.repeats is not None:
        return _repeated(decision, decided_at)
    ask = decision.ask
    settlement = decision.settlement
    return EnforcementReply(
        request_id=ask.request_id,
        verb=ask.verb,
        tenant=ask.tenant,
        allowed=decision.allowed,
        code=decision.code.code if decision.code is not None else None,
        status=decision.code.status if decision.code is not None else 200,
        message=_message(decision),
        violations=tuple(_violation(ask.tenant, violation) for violation in decision.violations),
        would_deny=decision.would_deny,
        fail_open=failed_open(decision),
        denied_gates=tuple(verdict.gate for verdict in decision.gates if verdict.passage is Passage.DENY),
        hold=_hold(decision.hold),
        settled=Settled(deployment=settlement.deployment, revision=settlement.revision, outcome=settlement.outcome)
        if settlement is not None and settlement.outcome is not None
        else None,
        over_limit=decision.over_limit,
        seq=decision.seq,
        entitlement_version=decision.entitlement_version,
        decided_at=decided_at,
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
    return f"{told[:-1]},{json.dumps(known | {'mode': ask.mode})[1:]}"


def over_limit(tenant: str, crossing: Crossing) -> OverLimit:
    """Tell that a scope has crossed a limit, or has come back under it."""
    return OverLimit(
        tenant=tenant,
        scope=scope_of(tenant, crossing.place).render(),
        dimension=crossing.info.dimension,
        basis=crossing.info.basis,
        limit=crossing.ceiling,
        usage=crossing.usage,
        over_by=max(0, crossing.usage - crossing.ceiling) if crossing.ceiling is not None else 0,
        since=crossing.since,
        cause=crossing.cause,
        seq=crossing.seq,
    )


OVER_LIMIT_TYPES = {Edge.STARTED: "quota.over_limit_started.v1", Edge.ENDED: "quota.over_limit_ended.v1"}


def envelope(event_type: str, event_id: str, at: datetime) -> Envelope:
    """Wrap an event of ours; the same cause always gives the same id, so that a reader can drop repeats."""
    return Envelope(event_id, event_type, SOURCE, at)


def wrapping(event_type: str, at: datetime) -> Headers:
    """Return the headers that all events of one type share at one instant: an envelope's, without its id."""
    return tuple((name, value) for name, value in envelope(event_type, "-", at).headers() if name != "ce_id")


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


def _message(decision: Decision) -> str:
    if decision.message or decision.code is None:
        return decision.message
    enforced = [violation for violation in decision.violations if not violation.shadow]
    first = next((v for v in enforced if EXCEEDED[v.info.dimension] is decision.code), None)
    return _sentence(decision.ask, first) if first is not None else decision.code.title


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


def _hold(hold: Hold | None) -> HoldView | None:
    if hold is None:
        return None
    return HoldView(id=hold.id, deployment=hold.deployment, state=hold.state, expires_at=hold.expires_at)
