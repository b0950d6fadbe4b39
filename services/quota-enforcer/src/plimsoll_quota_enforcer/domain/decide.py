"""May the tenant have it: the only place where a request becomes an answer. Pure: no clock, no I/O, no log."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.enforcement import HoldState, SettleOutcome, Verb
from plimsoll_contracts.versions import Standing
from plimsoll_quota_enforcer.domain import waits
from plimsoll_quota_enforcer.domain.book import Book
from plimsoll_quota_enforcer.domain.judge import OVERFLOW, conclude, judge
from plimsoll_quota_enforcer.domain.model import (
    TENANT,
    Ask,
    Content,
    Fact,
    Footprint,
    Hold,
    Lack,
    Measured,
    Node,
    Place,
    StoredDecision,
    chain,
)
from plimsoll_quota_enforcer.domain.state import Decision, Outcome, Policy, Settlement, TenantState


def decide(
    state: TenantState,
    asks: Sequence[Ask],
    now: datetime,
    policy: Policy,
    nodes: Mapping[str, Node] | None = None,
) -> Outcome:
    """Answer one tenant's requests in their order (DESIGN 5.3), then try whoever waits.

    Each request sees what those before it did. A refused one changes nothing. ``now`` is the database's clock,
    taken after the tenant's guard; ``state.decisions`` has every earlier answer to one of these request ids;
    ``nodes`` has every node that these requests may need, as the requests of other tenants have left it.
    """
    book = Book(state, now, policy, nodes)
    book.expire_holds()
    decided: dict[str, Decision] = {}
    decisions: list[Decision] = []
    for ask in asks:
        book.request_id = ask.request_id
        decision = _screen(book, ask, decided) or _VERBS[ask.verb](book, ask)
        if decision.stored:
            decided[ask.request_id] = decision
        decisions.append(decision)
    return _close(book, "request", decisions=decisions)


def settle_facts(
    state: TenantState,
    facts: Iterable[Fact],
    now: datetime,
    policy: Policy,
    nodes: Mapping[str, Node] | None = None,
) -> Outcome:
    """Settle what the deployments' owners tell. Facts are never refused by a limit; a crossing is told."""
    book = Book(state, now, policy, nodes)
    book.expire_holds()
    settlements = [book.settle(fact.deployment, fact.revision, fact.content, gone=fact.gone) for fact in facts]
    return _close(book, "delta", settlements=settlements)


def measure(
    state: TenantState,
    measured: Iterable[tuple[Place, Measured]],
    now: datetime,
    policy: Policy,
    nodes: Mapping[str, Node] | None = None,
) -> tuple[Outcome, tuple[Standing, ...]]:
    """Take in what disks were found to have (DESIGN 5.3 rule 9); returns what became of each measurement too."""
    book = Book(state, now, policy, nodes)
    book.expire_holds()
    standings = tuple([book.measure(place, each) for place, each in measured])
    return _close(book, "measurement"), standings


def expire(
    state: TenantState,
    now: datetime,
    policy: Policy,
    also: Iterable[Place] = (),
    nodes: Mapping[str, Node] | None = None,
    *,
    wake: bool = False,
) -> Outcome:
    """Close an idle tenant's expired holds, and tell crossings at places whose limits moved meanwhile.

    The tenant itself is always among them: global defaults apply there. With ``wake`` whoever waits is tried.
    """
    book = Book(state, now, policy, nodes)
    book.expire_holds()
    if wake:
        waits.wake(book)
    return book.finish("limit", also=(TENANT, *also))


def _close(
    book: Book, cause: str, *, decisions: Iterable[Decision] = (), settlements: Iterable[Settlement] = ()
) -> Outcome:
    if book.waiters and book.seq != book.state.seq:
        waits.wake(book)
    return book.finish(cause, decisions=decisions, settlements=settlements)


def _screen(book: Book, ask: Ask, decided: Mapping[str, Decision]) -> Decision | None:
    """Answer what needs no decision: too old, a repeat, another body under the same id, or too late."""
    age = book.now - ask.issued_at
    if age > book.policy.window:
        return _refused(book, ask, codes.REQUEST_TOO_OLD, f"issued {_whole(age)} before the database's clock")
    if age < -book.policy.clock_skew:
        return _refused(book, ask, codes.ISSUED_IN_FUTURE, f"issued {_whole(-age)} after the database's clock")
    if ask.verb is not Verb.CHECK and (again := _asked_before(book, ask, decided)) is not None:
        return again
    if ask.deadline is not None and ask.deadline < book.now and ask.verb in (Verb.CHECK, Verb.RESERVE):
        return _refused(book, ask, codes.DEADLINE_PASSED, f"the deadline passed {_whole(book.now - ask.deadline)} ago")
    return None


def _asked_before(book: Book, ask: Ask, decided: Mapping[str, Decision]) -> Decision | None:
    """Answer a request id that was seen: by what it was answered, or by letting it wait on."""
    waiter = waits.find(book, ask.request_id) if book.waiters else None
    earlier = decided.get(ask.request_id)
    stored = book.state.decisions.get(ask.request_id)
    known = waiter.ask if waiter is not None else earlier.ask if earlier is not None else stored
    if known is None:
        return None
    if known.fingerprint != ask.fingerprint:
        return _refused(book, ask, codes.IDEMPOTENCY_MISMATCH, "the id was used with another body")
    return waits.ask_again(book, waiter, ask) if waiter is not None else _repeat(book, ask, earlier or stored)


def _repeat(book: Book, ask: Ask, earlier: Decision | StoredDecision | None) -> Decision:
    """Give the earlier answer again, with the hold as it stands now."""
    hold = book.holds.get(ask.request_id if ask.verb is Verb.RESERVE else ask.hold)
    return Decision(ask, allowed=True, repeats=earlier, hold=hold, seq=book.seq)


def _check(book: Book, ask: Ask) -> Decision:
    return conclude(book, ask, judge(book, ask, _kept(book)), reserving=False)


def _reserve(book: Book, ask: Ask) -> Decision:
    judgement = judge(book, ask, _kept(book))
    if waits.may_wait(ask, judgement):
        if waits.has_room(book):
            return waits.wait(book, ask, judgement)
        note = f"{book.policy.waiters_max} requests of this tenant wait already, as many as may"
        judgement = replace(judgement, notes=(*judgement.notes, note))
    return conclude(book, ask, judgement, reserving=True)


def _kept(book: Book) -> Mapping[Lack, str]:
    return waits.kept_for(book) if book.waiters else {}


def _commit(book: Book, ask: Ask) -> Decision:
    hold = book.holds.get(ask.hold)
    if hold is None or hold.state is HoldState.RELEASED:
        detail = f"hold {ask.hold} is {'released' if hold is not None else 'unknown'}"
        return _refused(book, ask, codes.HOLD_CLOSED, detail, hold=hold, stored=True)
    if hold.state is HoldState.COMMITTED:
        outcome = SettleOutcome(hold.settled_outcome) if hold.settled_outcome is not None else None
        return _settled(book, ask, Settlement(hold.deployment, hold.settled_revision or 0, outcome), hold)
    settlement = book.settle(hold.deployment, ask.revision, hold.target, nodes=ask.nodes)
    replaced: tuple[Settlement, ...] = ()
    if settlement.outcome is not None:
        replaced = tuple(
            book.settle(name, ask.replaced.get(name), Content(hold.target.place, "", Footprint()), gone=True)
            for name in hold.replaces
        )
        hold = book.close_hold(hold, HoldState.COMMITTED, settlement)
    return _settled(book, ask, settlement, hold, replaced)


def _release(book: Book, ask: Ask) -> Decision:
    hold = book.holds.get(ask.hold)
    if hold is None:
        waiter = waits.find(book, ask.hold)
        if waiter is None:
            return _refused(book, ask, codes.HOLD_CLOSED, f"hold {ask.hold} is unknown", stored=True)
        waits.give_up(book, waiter)
    elif hold.state is HoldState.OPEN:
        hold = book.close_hold(hold, HoldState.RELEASED)
    return Decision(ask, allowed=True, hold=hold, seq=book.seq, stored=True)


def _adjust(book: Book, ask: Ask) -> Decision:
    gone = ask.target is None
    content = ask.target if ask.target is not None else Content(ask.place, ask.app, Footprint())
    return _settled(book, ask, book.settle(ask.deployment, ask.revision, content, gone=gone, nodes=ask.nodes))


def _settled(
    book: Book, ask: Ask, settlement: Settlement, hold: Hold | None = None, replaced: tuple[Settlement, ...] = ()
) -> Decision:
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
        replaced=replaced,
        notes=ask.notes,
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
