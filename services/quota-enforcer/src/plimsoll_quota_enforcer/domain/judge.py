"""Would it be allowed: what a check or reserve would add, held against gates, limits, capacity and who waits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.enforcement import HoldState, Mode
from plimsoll_quota_enforcer.domain import gates, placing
from plimsoll_quota_enforcer.domain.book import Book, with_nodes_of
from plimsoll_quota_enforcer.domain.limits import ceiling
from plimsoll_quota_enforcer.domain.model import GAUGES, Ask, Content, Gauge, Hold, Lack, Place, chain
from plimsoll_quota_enforcer.domain.placing import Placed
from plimsoll_quota_enforcer.domain.shares import Share, share_of
from plimsoll_quota_enforcer.domain.state import Decision, GateVerdict, Passage, Shortfall, Violation
from plimsoll_quota_enforcer.domain.values import value

OVERFLOW = "a figure of this tenant would no longer fit in 64 bits"

_UNPLACED = Placed()
_CAPACITY_ORDER = (codes.NODE_CPU, codes.NODE_MEMORY, codes.POOL_FULL, codes.REPLICA_TOO_LARGE)


@value
class Judgement:
    """What speaks against growth, and the hold that would be opened."""

    hold: Hold | None
    superseded: Hold | None = None
    code: Code | None = None
    message: str = ""
    final: bool = False
    """It is refused also in shadow mode, and no waiting cures it: the request itself is wrong."""
    verdicts: tuple[GateVerdict, ...] = ()
    violations: tuple[Violation, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lacks(self) -> frozenset[Lack]:
        """What there is too little of, where more of it would help."""
        found = {_limit_lack(each.place, each.info.gauge) for each in self.violations if not each.shadow}
        found |= {("", "node", each.node) if each.node else ("", "pool", each.pool) for each in self.shortfalls}
        return frozenset(found)


def judge(book: Book, ask: Ask, kept: Mapping[Lack, str]) -> Judgement:
    """Judge what a request would add: gates first, then every limit, most specific scope first, then capacity.

    Args:
        book: the tenant's state.
        ask: a check or reserve.
        kept: what is kept for requests that have waited long, with the request that it is kept for.
    """
    members = (ask.deployment, *ask.replaces)
    bound = {book.open_holds[member] for member in members if member in book.open_holds}
    for name in sorted(bound - {ask.supersedes}) if bound else ():
        hold = book.holds[name]
        both = sorted(set(members) & set(hold.members))
        return _wrong(codes.HOLD_OPEN, f"hold {name} of deployment {both[0]} is open until {hold.expires_at}")
    if ask.target is None:
        return _wrong(codes.INVALID_REQUEST, "no footprint")
    superseded = book.holds[ask.supersedes] if ask.supersedes is not None and bound else None
    before = book.shares((*members, *(superseded.members if superseded is not None else ())))
    expires_at = book.now + timedelta(seconds=ask.ttl_seconds)
    hold = Hold(ask.request_id, ask.deployment, ask.target, expires_at, replaces=ask.replaces, surge=ask.surge)
    left_over = _left_over(book, superseded, members)
    placed = _UNPLACED
    if ask.placing is not None:
        placed = placing.place(ask.placing, book.nodes, _reusable(book, hold, before, left_over))
        hold = replace(hold, target=replace(hold.target, nodes=placed.nodes))
    elif (charge := book.charges.get(ask.deployment)) is not None and charge.content.nodes and not charge.gone:
        hold = replace(hold, target=with_nodes_of(charge, hold.target))
    after = [share_of(hold, book.charges), *left_over]
    if not book.fits_in_64_bits(before, after, hold.target):
        return _wrong(codes.AMOUNT_OVERFLOW, OVERFLOW)
    rise = book.tally.rise(before, after)
    growing = {info.dimension for by in set(rise.values()) for info in GAUGES if by[info.gauge] > 0}
    verdicts = gates.judge(book.state.entitlement, growing, book.policy) if growing else ()
    violations = tuple(_violations(book, ask.target, rise))
    message = "; ".join(verdict.detail for verdict in verdicts if verdict.passage is Passage.DENY)
    code = _first_code(verdicts, violations, placed.shortfalls)
    if code is None and kept:
        code, message = _contested(kept, rise, _taken(book, placing.moved(before, after)))
    return Judgement(
        hold,
        superseded,
        code,
        message,
        verdicts=verdicts,
        violations=violations,
        shortfalls=placed.shortfalls,
        notes=(*ask.notes, *placed.notes),
    )


def conclude(
    book: Book, ask: Ask, judgement: Judgement, *, reserving: bool, waited: timedelta | None = None
) -> Decision:
    """Turn a judgement into the answer, and open the hold where it is a yes."""
    code, hold = judgement.code, judgement.hold
    refused = judgement.final or (code is not None and ask.mode is Mode.ENFORCE)
    if reserving and not refused and hold is not None:
        if judgement.superseded is not None:
            book.close_hold(judgement.superseded, HoldState.RELEASED)
        book.open_hold(hold)
    return Decision(
        ask,
        allowed=not refused,
        code=code if refused else None,
        message=judgement.message,
        violations=judgement.violations,
        would_deny=not refused and (code is not None or bool(judgement.violations)),
        gates=judgement.verdicts,
        hold=hold if reserving and not refused else None,
        seq=book.seq,
        entitlement_version=book.state.entitlement.version if book.state.entitlement is not None else None,
        stored=reserving,
        shortfalls=judgement.shortfalls,
        notes=judgement.notes,
        waited=waited,
    )


def _wrong(code: Code, message: str) -> Judgement:
    return Judgement(None, None, code, message, final=True)


def _reusable(
    book: Book, hold: Hold, before: Iterable[Share], left_over: Iterable[Share]
) -> Mapping[str, placing.Room]:
    """Return what the target may use on each node without any growth there.

    That is what its members have, with what a superseded hold added; a surge leaves what it replaces where it is.
    """
    beside = (Share(book.charges.get(name), None) for name in hold.replaces if hold.surge)
    return placing.moved([*left_over, *beside], before)


def _left_over(book: Book, superseded: Hold | None, members: Sequence[str]) -> Sequence[Share]:
    """Return what a superseded hold bound and the new one does not."""
    names = superseded.members if superseded is not None else ()
    return [Share(book.charges.get(name), None) for name in names if name not in members]


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


def _first_code(
    verdicts: Iterable[GateVerdict], violations: Iterable[Violation], shortfalls: Iterable[Shortfall]
) -> Code | None:
    """Choose the code of a denial: the first in the documented order, the same on every run. None is a yes."""
    for verdict in verdicts:
        if verdict.passage is Passage.DENY:
            return verdict.code
    for violation in violations:
        if not violation.shadow:
            return codes.EXCEEDED[violation.info.dimension]
    return min((each.code for each in shortfalls), key=_CAPACITY_ORDER.index, default=None)


def _contested(
    kept: Mapping[Lack, str], rise: Mapping[Place, tuple[int, ...]], taken: Iterable[Lack]
) -> tuple[Code | None, str]:
    """Say for whom the room is kept that this request would take."""
    for place, by in rise.items():
        for gauge in Gauge:
            waiter = kept.get(_limit_lack(place, gauge)) if by[gauge] > 0 else None
            if waiter is not None:
                return codes.WAITER_AHEAD, f"{waiter} has waited longer for room here"
    for lack in taken:
        if lack in kept:
            return codes.WAITER_AHEAD, f"{kept[lack]} has waited longer for room on {' '.join(lack[1:])}"
    return None, ""


def _taken(book: Book, moved: Mapping[str, placing.Room]) -> Iterable[Lack]:
    """Yield what is taken where more is allocated than before: of the node, and of the pool that it is in."""
    for name in sorted(name for name, room in moved.items() if max(room) > 0):
        yield ("", "node", name)
        if name in book.nodes:  # a check may ask about one that nobody knows
            yield ("", "pool", book.nodes[name].pool)


def _limit_lack(place: Place, gauge: Gauge) -> Lack:
    return (*place, str(int(gauge)))
