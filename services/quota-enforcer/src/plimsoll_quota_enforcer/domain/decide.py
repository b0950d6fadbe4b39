"""May the tenant have it: the only place where a request becomes an answer. Pure: no clock, no I/O, no log."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.enforcement import HoldState, Mode, SettleOutcome, Verb
from plimsoll_quota_enforcer.domain import gates
from plimsoll_quota_enforcer.domain.book import Book
from plimsoll_quota_enforcer.domain.limits import ceiling
from plimsoll_quota_enforcer.domain.model import (
    GAUGES,
    TENANT,
    Ask,
    Content,
    Fact,
    Footprint,
    Hold,
    Place,
    StoredDecision,
    chain,
)
from plimsoll_quota_enforcer.domain.state import (
    Decision,
    GateVerdict,
    Outcome,
    Passage,
    Policy,
    Settlement,
    TenantState,
    Violation,
)
from plimsoll_quota_enforcer.domain.tally import Share

OVERFLOW = "a figure of this tenant would no longer fit in 64 bits"


def decide(state: TenantState, asks: Sequence[Ask], now: datetime, policy: Policy) -> Outcome:
    """Answer one tenant's requests in their order (DESIGN 5.3).

    Each request sees what those before it did. A refused one changes nothing. ``now`` is the database's clock,
    taken after the tenant's guard; ``state.decisions`` has every earlier answer to one of these request ids.
    """
    book = Book(state, now, policy)
    book.expire_holds()
    decided: dict[str, Decision] = {}
    decisions: list[Decision] = []
    for ask in asks:
        decision = _screen(book, ask, decided) or _VERBS[ask.verb](book, ask)
        if decision.stored:
            decided[ask.request_id] = decision
        decisions.append(decision)
    return book.finish("request", decisions=decisions)


def settle_facts(state: TenantState, facts: Iterable[Fact], now: datetime, policy: Policy) -> Outcome:
    """Settle what the deployments' owners tell. Facts are never refused by a limit; a crossing is told."""
    book = Book(state, now, policy)
    book.expire_holds()
    settlements = [book.settle(fact.deployment, fact.revision, fact.content, gone=fact.gone) for fact in facts]
    return book.finish("delta", settlements=settlements)


def expire(state: TenantState, now: datetime, policy: Policy, also: Iterable[Place] = ()) -> Outcome:
    """Close an idle tenant's expired holds, and tell crossings at places whose limits moved meanwhile.

    The tenant itself is always among them: global defaults apply there.
    """
    book = Book(state, now, policy)
    book.expire_holds()
    return book.finish("limit", also=(TENANT, *also))


def _screen(book: Book, ask: Ask, decided: Mapping[str, Decision]) -> Decision | None:
    """Answer what needs no decision: too old, a repeat, another body under the same id, or too late."""
    age = book.now - ask.issued_at
    if age > book.policy.window:
        return _refused(book, ask, codes.REQUEST_TOO_OLD, f"issued {_whole(age)} before the database's clock")
    if age < -book.policy.clock_skew:
        return _refused(book, ask, codes.ISSUED_IN_FUTURE, f"issued {_whole(-age)} after the database's clock")
    if ask.verb is not Verb.CHECK:
        earlier = decided.get(ask.request_id)
        stored = book.state.decisions.get(ask.request_id)
        fingerprint = earlier.ask.fingerprint if earlier is not None else stored.fingerprint if stored else None
        if fingerprint is not None:
            if fingerprint != ask.fingerprint:
                return _refused(book, ask, codes.IDEMPOTENCY_MISMATCH, "the id was used with another body")
            return _repeat(book, ask, earlier or stored)
    if ask.deadline is not None and ask.deadline < book.now and ask.verb in (Verb.CHECK, Verb.RESERVE):
        return _refused(book, ask, codes.DEADLINE_PASSED, f"the deadline passed {_whole(book.now - ask.deadline)} ago")
    return None


def _repeat(book: Book, ask: Ask, earlier: Decision | StoredDecision | None) -> Decision:
    """Give the earlier answer again, with the hold as it stands now."""
    hold = book.holds.get(ask.request_id if ask.verb is Verb.RESERVE else ask.hold)
    return Decision(ask, allowed=True, repeats=earlier, hold=hold, seq=book.seq)


def _check(book: Book, ask: Ask) -> Decision:
    return _judge_growth(book, ask, reserving=False)


def _reserve(book: Book, ask: Ask) -> Decision:
    return _judge_growth(book, ask, reserving=True)


def _judge_growth(book: Book, ask: Ask, *, reserving: bool) -> Decision:
    """Judge what a check or reserve would add: gates first, then every limit, most specific scope first."""
    before = book.share(ask.deployment)
    if before.hold is not None and before.hold.id != ask.supersedes:
        detail = f"hold {before.hold.id} of deployment {ask.deployment} is open until {before.hold.expires_at}"
        return _refused(book, ask, codes.HOLD_OPEN, detail, stored=reserving)
    if ask.target is None:
        return _refused(book, ask, codes.INVALID_REQUEST, "no footprint", stored=reserving)
    hold = Hold(ask.request_id, ask.deployment, ask.target, book.now + timedelta(seconds=ask.ttl_seconds))
    after = Share(before.charge, hold)
    if not book.fits_in_64_bits(before, after, ask.target):
        return _refused(book, ask, codes.AMOUNT_OVERFLOW, OVERFLOW, stored=reserving)
    rise = book.tally.rise(before, after)
    growing = {info.dimension for by in set(rise.values()) for info in GAUGES if by[info.gauge] > 0}
    verdicts = gates.judge(book.state.entitlement, growing, book.policy) if growing else ()
    violations = tuple(_violations(book, ask.target, rise))
    code = _first_code(verdicts, violations)
    refused = code is not None and ask.mode is Mode.ENFORCE
    if reserving and not refused:
        if before.hold is not None:
            book.close_hold(before.hold, HoldState.RELEASED)
        book.open_hold(hold)
    return Decision(
        ask,
        allowed=not refused,
        code=code if refused else None,
        message="; ".join(verdict.detail for verdict in verdicts if verdict.passage is Passage.DENY),
        violations=violations,
        would_deny=not refused and (code is not None or bool(violations)),
        gates=verdicts,
        hold=hold if reserving and not refused else None,
        seq=book.seq,
        entitlement_version=book.state.entitlement.version if book.state.entitlement is not None else None,
        stored=reserving,
    )


def _violations(book: Book, target: Content, rise: Mapping[Place, tuple[int, ...]]) -> Iterable[Violation]:
    for place in chain(target.place):
        limits = book.limits(place)
        if not limits:
            continue
        by, usage = rise[place], book.tally.usage(place)
        for info in GAUGES:
            asked = by[info.gauge]
            resolved = limits.get(info.dimension)
            top = ceiling(resolved, info, target.multipliers) if asked > 0 else None
            if top is None or resolved is None:
                continue
            used, total = usage.used[info.gauge], usage.total[info.gauge]
            if total + asked > top:
                shadow = resolved.limit is not None and resolved.limit.mode is Mode.SHADOW
                yield Violation(place, info, top, resolved, used, total - used, asked, top - total, shadow)


def _first_code(verdicts: Iterable[GateVerdict], violations: Iterable[Violation]) -> Code | None:
    """Choose the code of a denial: the first in the documented order, the same on every run. None is a yes."""
    for verdict in verdicts:
        if verdict.passage is Passage.DENY:
            return verdict.code
    for violation in violations:
        if not violation.shadow:
            return codes.EXCEEDED[violation.info.dimension]
    return None


def _commit(book: Book, ask: Ask) -> Decision:
    hold = book.holds.get(ask.hold)
    if hold is None or hold.state is HoldState.RELEASED:
        detail = f"hold {ask.hold} is {'released' if hold is not None else 'unknown'}"
        return _refused(book, ask, codes.HOLD_CLOSED, detail, hold=hold, stored=True)
    if hold.state is HoldState.COMMITTED:
        outcome = SettleOutcome(hold.settled_outcome) if hold.settled_outcome is not None else None
        return _settled(book, ask, Settlement(hold.deployment, hold.settled_revision or 0, outcome), hold)
    settlement = book.settle(hold.deployment, ask.revision, hold.target)
    if settlement.outcome is not None:
        hold = book.close_hold(hold, HoldState.COMMITTED, settlement)
    return _settled(book, ask, settlement, hold)


def _release(book: Book, ask: Ask) -> Decision:
    hold = book.holds.get(ask.hold)
    if hold is None:
        return _refused(book, ask, codes.HOLD_CLOSED, f"hold {ask.hold} is unknown", stored=True)
    if hold.state is HoldState.OPEN:
        hold = book.close_hold(hold, HoldState.RELEASED)
    return Decision(ask, allowed=True, hold=hold, seq=book.seq, stored=True)


def _adjust(book: Book, ask: Ask) -> Decision:
    gone = ask.target is None
    content = ask.target if ask.target is not None else Content(ask.place, ask.app, Footprint())
    return _settled(book, ask, book.settle(ask.deployment, ask.revision, content, gone=gone))


def _settled(book: Book, ask: Ask, settlement: Settlement, hold: Hold | None = None) -> Decision:
    """Answer a commit or an adjust: what was kept out is refused with its code, all else is a fact."""
    charge = book.charges.get(settlement.deployment)
    return Decision(
        ask,
        allowed=settlement.code is None,
        code=settlement.code,
        message=OVERFLOW if settlement.code is codes.AMOUNT_OVERFLOW else "",
        hold=hold,
        settlement=settlement if settlement.outcome is not None else None,
        over_limit=charge is not None and not charge.gone and book.is_over(chain(charge.content.place)),
        seq=book.seq,
        stored=True,
    )


def _refused(
    book: Book, ask: Ask, code: Code, message: str, *, hold: Hold | None = None, stored: bool = False
) -> Decision:
    return Decision(ask, allowed=False, code=code, message=message, hold=hold, seq=book.seq, stored=stored)


def _whole(span: timedelta) -> timedelta:
    """Drop fractions of a second, which nobody wants to read."""
    return timedelta(seconds=int(span.total_seconds()))


_VERBS = {
    Verb.CHECK: _check,
    Verb.RESERVE: _reserve,
    Verb.COMMIT: _commit,
    Verb.RELEASE: _release,
    Verb.ADJUST: _adjust,
}
