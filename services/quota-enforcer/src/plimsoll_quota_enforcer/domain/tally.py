"""How much is used and held at every scope of a tenant: folded from its charges and open holds, kept as they change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plimsoll_quota_enforcer.domain.model import NOTHING, Amounts, Charge, Content, Gauge, Hold, Place, chain

_GAUGES = len(Gauge)

Member = tuple[int, Place | str]
"""Something counted once however many deployments share it: (gauge, stack, environment or app)."""

Members = frozenset[Member]

_NO_MEMBERS: Members = frozenset()
_NO_MEMBER_RISE = [0] * (_GAUGES - len(NOTHING))


@dataclass(frozen=True, slots=True)
class Share:
    """What one deployment has: its charge, its open hold, or both."""

    charge: Charge | None
    hold: Hold | None


@dataclass(frozen=True, slots=True)
class _Part:
    """What a share counts for at one place: what is settled, and the maximum of settled and target (rule 4)."""

    settled: Amounts
    total: Amounts
    settled_members: Members
    total_members: Members


@dataclass(frozen=True, slots=True)
class Usage:
    """Used and used + held of one scope, by gauge."""

    used: tuple[int, ...]
    total: tuple[int, ...]


NO_USAGE = Usage((0,) * _GAUGES, (0,) * _GAUGES)


def _members(content: Content) -> Members:
    environment, stack = content.place
    found: list[Member] = []
    if stack:
        found.append((Gauge.STACKS, content.place))
    if environment:
        found.append((Gauge.ENVIRONMENTS, environment))
    if content.app:
        found.append((Gauge.APPS, content.app))
    return frozenset(found)


def _parts(share: Share) -> Mapping[Place, _Part]:
    """Return what a share counts for at each place; what lies outside a place counts nothing there."""
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


def _maximum(a: Amounts, b: Amounts) -> Amounts:
    return (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]), max(a[4], b[4]), max(a[5], b[5]))


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
        for member in part.total_members:
            self._count_member(member, sign, is_settled=member in part.settled_members)

    def _count_member(self, member: Member, sign: int, *, is_settled: bool) -> None:
        settled, total = self.members.get(member, (0, 0))
        after = (settled + sign if is_settled else settled, total + sign)
        self.settled[member[0]] += (after[0] > 0) - (settled > 0)
        self.total[member[0]] += (after[1] > 0) - (total > 0)
        if after == (0, 0):
            del self.members[member]
        else:
            self.members[member] = after


class Tally:
    """Usage of every scope of one tenant. ``branch`` gives a copy to work on that shares what it does not change."""

    __slots__ = ("_own", "_scopes")

    def __init__(self, scopes: dict[Place, _ScopeTally] | None = None) -> None:
        """Start from nothing, or from figures that are shared until they change."""
        self._scopes: dict[Place, _ScopeTally] = scopes if scopes is not None else {}
        self._own: set[Place] = set()

    @classmethod
    def fold(cls, charges: Iterable[Charge], holds: Iterable[Hold]) -> "Tally":
        """Compute usage from the truth: all charges, and the open holds (at most one per deployment)."""
        by_deployment = {hold.deployment: hold for hold in holds}
        tally = cls()
        for charge in charges:
            tally.replace(Share(None, None), Share(charge, by_deployment.pop(charge.deployment, None)))
        for hold in by_deployment.values():
            tally.replace(Share(None, None), Share(None, hold))
        return tally

    def branch(self) -> "Tally":
        """Return a tally with the same figures whose changes this one does not see."""
        return Tally(self._scopes.copy())

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
        return Usage(tuple(scope.settled), tuple(scope.total)) if scope is not None else NO_USAGE

    def totals(self, place: Place) -> Sequence[int]:
        """Return used + held of one place by gauge; not a copy, so only to be read, and at once."""
        scope = self._scopes.get(place)
        return scope.total if scope is not None else NO_USAGE.total

    def replace(self, before: Share, after: Share) -> None:
        """Count a deployment's new share instead of its old one."""
        for sign, parts in ((-1, _parts(before)), (1, _parts(after))):
            for place, part in parts.items():
                self._writable(place).count(part, sign)

    def rise(self, before: Share, after: Share) -> Mapping[Place, tuple[int, ...]]:
        """Return by how much the totals of each place would change, per gauge, if one share replaced the other."""
        old, new = _parts(before), _parts(after)
        return {place: self._rise_at(place, old.get(place), new.get(place)) for place in {*old, *new}}

    def _rise_at(self, place: Place, old: _Part | None, new: _Part | None) -> tuple[int, ...]:
        known = self._scopes.get(place)
        less = old.total if old is not None else NOTHING
        more = new.total if new is not None else NOTHING
        rise = [have - had for have, had in zip(more, less, strict=True)] + _NO_MEMBER_RISE
        gone = old.total_members if old is not None else _NO_MEMBERS
        come = new.total_members if new is not None else _NO_MEMBERS
        for member in come - gone:
            rise[member[0]] += known is None or member not in known.members
        for member in gone - come:
            rise[member[0]] -= known is not None and known.members.get(member, (0, 0))[1] == 1
        return tuple(rise)

    def _writable(self, place: Place) -> _ScopeTally:
        if place in self._own:
            return self._scopes[place]
        known = self._scopes.get(place)
        mine = known.copy() if known is not None else _ScopeTally()
        self._scopes[place] = mine
        self._own.add(place)
        return mine
