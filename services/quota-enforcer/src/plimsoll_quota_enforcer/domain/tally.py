"""How much is used and held at every scope of a tenant: folded from its charges and open holds, kept as they change."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from plimsoll_quota_enforcer.domain.model import NOTHING, Amounts, Charge, Content, Gauge, Hold, Place, chain
from plimsoll_quota_enforcer.domain.values import value

_GAUGES = len(Gauge)

INT64_MAX = 2**63 - 1
"""The largest figure that can be kept."""

Member = tuple[int, Place | str]
"""Something counted once however many deployments share it: (gauge, stack, environment or app)."""

Members = frozenset[Member]

_NO_MEMBERS: Members = frozenset()
_UNCOUNTED = (0, 0)


@value
class Share:
    """What counts as one: a deployment's charge, its open hold, and the charges that the hold replaces."""

    charge: Charge | None
    hold: Hold | None
    replaced: tuple[Charge, ...] = ()


@value
class _Part:
    """What a share counts for at one place: what is settled, and the maximum of settled and target (rule 4)."""

    settled: Amounts
    total: Amounts
    settled_members: Members
    total_members: Members


@value
class Usage:
    """Used and used + held of one scope, by gauge."""

    used: tuple[int, ...]
    total: tuple[int, ...]


NO_USAGE = Usage((0,) * _GAUGES, (0,) * _GAUGES)


def _members(content: Content) -> Members:
    return _members_of(content.place, content.app)


@lru_cache(maxsize=10_000)
def _members_of(place: Place, app: str) -> Members:
    environment, stack = place
    found: list[Member] = []
    if stack:
        found.append((Gauge.STACKS, place))
    if environment:
        found.append((Gauge.ENVIRONMENTS, environment))
    if app:
        found.append((Gauge.APPS, app))
    return frozenset(found)


def _parts(share: Share) -> Mapping[Place, _Part]:
    """Return what a share counts for at each place; what lies outside a place counts nothing there."""
    if share.replaced and share.hold is not None:
        return _parts_of_group(share, share.hold)
    charge = share.charge.content if share.charge is not None and not share.charge.gone else None
    target = share.hold.target if share.hold is not None else None
    if target is None:
        if charge is None:
            return {}
        amounts, members = charge.footprint.charged(charge.multipliers), _members(charge)
        return dict.fromkeys(chain(charge.place), _Part(amounts, amounts, members, members))
    wanted, wanted_members = target.footprint.charged(target.multipliers), _members(target)
    if charge is None:
        return dict.fromkeys(chain(target.place), _Part(NOTHING, wanted, _NO_MEMBERS, wanted_members))
    settled, members = charge.footprint.charged(charge.multipliers), _members(charge)
    both = _Part(settled, _maximum(settled, wanted), members, members | wanted_members)
    old = _Part(settled, settled, members, members)
    new = _Part(NOTHING, wanted, _NO_MEMBERS, wanted_members)
    here, there = chain(charge.place), chain(target.place)
    return {
        place: both if place in here and place in there else old if place in here else new for place in {*here, *there}
    }


def _parts_of_group(share: Share, hold: Hold) -> Mapping[Place, _Part]:
    """Count a replacement (rule 4): ``max(sum replaced, target)``, or the target on top where it surges."""
    own = [share.charge.content] if share.charge is not None and not share.charge.gone else []
    replaced = [charge.content for charge in share.replaced if not charge.gone]
    wanted, wanted_members = hold.target.footprint.charged(hold.target.multipliers), _members(hold.target)
    there = chain(hold.target.place)
    parts: dict[Place, _Part] = {}
    for place in {place for content in (hold.target, *own, *replaced) for place in chain(content.place)}:
        mine, theirs = _sum_at(place, own), _sum_at(place, replaced)
        settled = _plus(mine, theirs)
        target = wanted if place in there else NOTHING
        total = _plus(theirs, _maximum(mine, target)) if hold.surge else _maximum(settled, target)
        members = frozenset().union(*(_members(c) for c in (*own, *replaced) if place in chain(c.place)))
        parts[place] = _Part(settled, total, members, members | wanted_members if place in there else members)
    return parts


def _sum_at(place: Place, contents: Iterable[Content]) -> Amounts:
    total = NOTHING
    for content in contents:
        if place in chain(content.place):
            total = _plus(total, content.footprint.charged(content.multipliers))
    return total


def _plus(a: Amounts, b: Amounts) -> Amounts:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5])


def _minus(a: Amounts, b: Amounts) -> Amounts:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3], a[4] - b[4], a[5] - b[5])


def _total(parts: Sequence[_Part]) -> Amounts:
    if len(parts) == 1:
        return parts[0].total
    total = NOTHING
    for part in parts:
        total = _plus(total, part.total)
    return total


def _maximum(a: Amounts, b: Amounts) -> Amounts:
    return (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]), max(a[4], b[4]), max(a[5], b[5]))


def _parts_by_place(shares: Iterable[Share]) -> Mapping[Place, list[_Part]]:
    found: dict[Place, list[_Part]] = {}
    for share in shares:
        for place, part in _parts(share).items():
            found.setdefault(place, []).append(part)
    return found


def shares(charges: Mapping[str, Charge], open_holds: Iterable[Hold]) -> Sequence[Share]:
    """Return everything that counts: each group that an open hold binds, and each charge beside them, once."""
    found: list[Share] = []
    bound: set[str] = set()
    for hold in open_holds:
        bound.update(hold.members)
        found.append(share_of(hold, charges))
    found.extend(Share(charge, None) for name, charge in charges.items() if name not in bound)
    return found


def share_of(hold: Hold, charges: Mapping[str, Charge]) -> Share:
    """Return what an open hold binds together."""
    replaced = tuple(charges[name] for name in hold.replaces if name in charges) if hold.replaces else ()
    return Share(charges.get(hold.deployment), hold, replaced)


def lifts(measured: Mapping[Place, int], settled: Mapping[Place, int]) -> Mapping[Place, int]:
    """Return by how much measurements raise each place's disk (DESIGN 5.3 rule 9).

    A leaf has ``max(settled, measured)``; a parent ``max(measured, sum of children)``, where what lies in it
    directly counts as a child.
    """
    found: dict[Place, int] = {}
    raised: dict[Place, int] = {}
    # Children first: stacks, then environments, then the tenant.
    for place in sorted({*measured, *settled}, key=lambda each: (not each[1], not each[0])):
        have = settled.get(place, 0)
        used = max(measured.get(place, 0), have + raised.get(place, 0))
        if used > have:
            found[place] = used - have
            parent = chain(place)[1:2]
            for each in parent:
                raised[each] = raised.get(each, 0) + used - have
    return found


def _lifted(figures: Sequence[int], lift: int) -> tuple[int, ...]:
    # Many measurements together may come to more than a figure can be; nothing is refused for them.
    return (*figures[: Gauge.DISK], min(INT64_MAX, figures[Gauge.DISK] + lift), *figures[Gauge.DISK + 1 :])


class _ScopeTally:
    """The figures of one scope while they are worked on."""

    __slots__ = ("members", "settled", "total")

    def __init__(self) -> None:
        self.settled = [0] * _GAUGES
        self.total = [0] * _GAUGES
        self.members: dict[Member, tuple[int, int]] = {}

    def copy(self) -> "_ScopeTally":
        other = _ScopeTally()
        other.settled = self.settled.copy()
        other.total = self.total.copy()
        other.members = self.members.copy()
        return other

    def count(self, part: _Part, sign: int) -> None:
        # The innermost step of every decision: written out, since a loop takes three times as long.
        total, more = self.total, part.total
        total[0] += sign * more[0]
        total[1] += sign * more[1]
        total[2] += sign * more[2]
        total[3] += sign * more[3]
        total[4] += sign * more[4]
        total[5] += sign * more[5]
        if part.settled is not NOTHING:
            for gauge, amount in enumerate(part.settled):
                self.settled[gauge] += sign * amount
        members = self.members
        for member in part.total_members:
            settled, held = members.get(member, _UNCOUNTED)
            after = (settled + sign if member in part.settled_members else settled, held + sign)
            self.settled[member[0]] += (after[0] > 0) - (settled > 0)
            total[member[0]] += (after[1] > 0) - (held > 0)
            if after == _UNCOUNTED:
                del members[member]
            else:
                members[member] = after


class Tally:
    """Usage of every scope of one tenant. ``branch`` gives a copy to work on that shares what it does not change."""

    __slots__ = ("_lifts", "_measured", "_own", "_scopes")

    def __init__(
        self, scopes: dict[Place, _ScopeTally] | None = None, measured: Mapping[Place, int] | None = None
    ) -> None:
        """Start from nothing, or from figures that are shared until they change; and from what was measured."""
        self._scopes: dict[Place, _ScopeTally] = scopes if scopes is not None else {}
        self._own: set[Place] = set()
        self._measured: Mapping[Place, int] = measured or {}
        self._lifts: Mapping[Place, int] | None = None

    @classmethod
    def fold(
        cls, charges: Mapping[str, Charge], open_holds: Iterable[Hold], measured: Mapping[Place, int] | None = None
    ) -> "Tally":
        """Compute usage from the truth: all charges, the open holds, and what disks were measured to have."""
        tally = cls(measured=measured)
        tally.replace((), shares(charges, open_holds))
        for place in measured or ():
            for each in chain(place):
                tally._writable(each)
        return tally

    def branch(self) -> "Tally":
        """Return a tally with the same figures whose changes this one does not see."""
        return Tally(self._scopes.copy(), self._measured)

    def measure(self, place: Place, amount: int) -> None:
        """Let a place be known to have this many bytes on disk."""
        self._measured = {**self._measured, place: amount}
        self._lifts = None
        for each in chain(place):
            self._writable(each)

    @property
    def changed(self) -> frozenset[Place]:
        """Return the places whose figures were written since this tally was branched."""
        return frozenset(self._own)

    def places(self) -> Iterable[Place]:
        """Return every place that anything counts at."""
        return self._scopes.keys()

    def usage(self, place: Place) -> Usage:
        """Return the figures of one place; nothing known is nothing used."""
        scope = self._scopes.get(place)
        if scope is None:
            return NO_USAGE
        lift = self._lift(place)
        if not lift:
            return Usage(tuple(scope.settled), tuple(scope.total))
        return Usage(_lifted(scope.settled, lift), _lifted(scope.total, lift))

    def totals(self, place: Place) -> Sequence[int]:
        """Return used + held of one place by gauge; not a copy, so only to be read, and at once."""
        scope = self._scopes.get(place)
        if scope is None:
            return NO_USAGE.total
        lift = self._lift(place)
        return scope.total if not lift else _lifted(scope.total, lift)

    def settled_disk(self, place: Place) -> int:
        """Return the bytes that charges have at a place, whatever was measured."""
        scope = self._scopes.get(place)
        return scope.settled[Gauge.DISK] if scope is not None else 0

    def _lift(self, place: Place) -> int:
        """By how much measurements raise a place's disk above what is settled there (rule 9)."""
        if not self._measured:
            return 0
        if self._lifts is None:
            self._lifts = lifts(self._measured, {place: self.settled_disk(place) for place in self._scopes})
        return self._lifts.get(place, 0)

    def replace(self, before: Iterable[Share], after: Iterable[Share]) -> None:
        """Count these shares instead of those."""
        for sign, shares in ((-1, before), (1, after)):
            for share in shares:
                for place, part in _parts(share).items():
                    self._writable(place).count(part, sign)
        self._lifts = None

    def rise(self, before: Iterable[Share], after: Iterable[Share]) -> Mapping[Place, tuple[int, ...]]:
        """Return by how much the totals of each place would change, per gauge, with these shares instead of those."""
        old, new = _parts_by_place(before), _parts_by_place(after)
        return {place: self._rise_at(place, old.get(place, ()), new.get(place, ())) for place in {*old, *new}}

    def _rise_at(self, place: Place, old: Sequence[_Part], new: Sequence[_Part]) -> tuple[int, ...]:
        scope = self._scopes.get(place)
        known = scope.members if scope is not None else {}
        if not old and len(new) == 1:  # the common case: what is new takes the place of nothing
            rise = [*new[0].total, 0, 0, 0]
            for member in new[0].total_members:
                rise[member[0]] += member not in known
            return tuple(rise)
        less, more = _total(old), _total(new)
        rise = [*more, 0, 0, 0] if less is NOTHING else [*_minus(more, less), 0, 0, 0]
        counts: dict[Member, int] = {}
        for sign, parts in ((-1, old), (1, new)):
            for part in parts:
                for member in part.total_members:
                    counts[member] = counts.get(member, 0) + sign
        for member, change in counts.items():
            if change:
                have = known[member][1] if member in known else 0
                rise[member[0]] += (have + change > 0) - (have > 0)
        return tuple(rise)

    def _writable(self, place: Place) -> _ScopeTally:
        if place in self._own:
            return self._scopes[place]
        known = self._scopes.get(place)
        mine = known.copy() if known is not None else _ScopeTally()
        self._scopes[place] = mine
        self._own.add(place)
        return mine
