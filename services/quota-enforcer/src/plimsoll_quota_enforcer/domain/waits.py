"""Who waits for room, and who is next: requests that would rather wait than be refused (DESIGN 5.3 rule 12).

The rule: whenever anything of the tenant moves, its waiters are tried in the order in which they came, and whoever
fits is let in. For the first half of its wait a waiter may be passed by others, so that a large one does not hold
up small ones. After that what it lacks is kept for it: nobody who would take of the same limit or the same nodes
is let in before it, waiting or not, so that small ones do not hold up a large one. Waits are bounded, and so is this.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from plimsoll_contracts import codes
from plimsoll_contracts.enforcement import Mode
from plimsoll_quota_enforcer.domain.book import Book
from plimsoll_quota_enforcer.domain.judge import Judgement, conclude, judge
from plimsoll_quota_enforcer.domain.model import Ask, Lack, Waiter
from plimsoll_quota_enforcer.domain.state import Decision, Passage


def has_room(book: Book) -> bool:
    """Tell whether one more may wait: all of a tenant's waiters are tried whenever anything of it moves."""
    return len(book.waiters) < book.policy.waiters_max


def may_wait(ask: Ask, judgement: Judgement) -> bool:
    """Tell whether a refusal may turn into waiting: only where room is lacking, and where waiting was asked for."""
    if ask.patience is None or judgement.final or judgement.code is None or ask.mode is not Mode.ENFORCE:
        return False
    return all(verdict.passage is not Passage.DENY for verdict in judgement.verdicts)


def wait(book: Book, ask: Ask, judgement: Judgement) -> Decision:
    """Put a request in the queue; it is answered later."""
    seconds = min(ask.patience.seconds if ask.patience is not None else 0, book.policy.wait_seconds_max)
    book.seq += 1
    book.waiters.append(Waiter(ask, book.now, book.now + timedelta(seconds=seconds), judgement.lacks, book.seq))
    return Decision(ask, allowed=False, waits=True, seq=book.seq)


def find(book: Book, request_id: str) -> Waiter | None:
    """Return the waiting request of this id, if there is one."""
    return next((waiter for waiter in book.waiters if waiter.ask.request_id == request_id), None)


def ask_again(book: Book, waiter: Waiter, ask: Ask) -> Decision:
    """Let a repeat of a waiting request tell where the answer goes now."""
    book.waiters[book.waiters.index(waiter)] = replace(waiter, ask=ask)
    book.seq += 1
    return Decision(ask, allowed=False, waits=True, seq=book.seq)


def give_up(book: Book, waiter: Waiter) -> None:
    """End a wait that its caller released; both are answered."""
    book.waiters.remove(waiter)
    book.seq += 1
    judgement = Judgement(None, code=codes.WAIT_RELEASED, message="released while it waited", final=True)
    book.woken.append(conclude(book, waiter.ask, judgement, reserving=True, waited=book.now - waiter.since))


def kept_for(book: Book) -> Mapping[Lack, str]:
    """Return what is kept for those who have waited for half of their time, the first of them first."""
    kept: dict[Lack, str] = {}
    for waiter in book.waiters:
        _keep(book, waiter, kept)
    return kept


def _keep(book: Book, waiter: Waiter, kept: dict[Lack, str]) -> None:
    if _is_patient(book, waiter):
        for lack in waiter.lacks:
            kept.setdefault(lack, waiter.ask.request_id)


def _is_patient(book: Book, waiter: Waiter) -> bool:
    return book.now - waiter.since >= (waiter.until - waiter.since) / 2


def wake(book: Book) -> None:
    """Try everybody who waits, in order; whose time is over is refused with what is lacking."""
    waiting, book.waiters = book.waiters, []
    kept: dict[Lack, str] = {}  # for those before the one that is tried
    for waiter in waiting:
        judgement = judge(book, waiter.ask, kept)
        if judgement.code is not None and waiter.until > book.now and may_wait(waiter.ask, judgement):
            # Whoever is only held back by an earlier one lacks what it lacked.
            lacks = judgement.lacks or waiter.lacks
            if _is_patient(book, waiter):
                # What it lacked once stays kept: else two limits could be taken from it in turn, for ever.
                lacks |= waiter.lacks
            stays = waiter if lacks == waiter.lacks else replace(waiter, lacks=lacks)
            book.seq += stays is not waiter
            book.waiters.append(stays)
            _keep(book, stays, kept)
            continue
        book.request_id = waiter.ask.request_id
        book.woken.append(conclude(book, waiter.ask, judgement, reserving=True, waited=book.now - waiter.since))
        book.seq += judgement.code is not None
