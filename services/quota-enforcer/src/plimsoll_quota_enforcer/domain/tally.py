"""How much is used and held at every scope of a tenant: folded from its charges and open holds, kept as they change."""

from collections.abc import Iterable, Mapping, Sequence

from plimsoll_quota_enforcer.domain.model import NOTHING, Charge, Gauge, Hold, Place, chain
from plimsoll_quota_enforcer.domain.shares import Member, Part, Share, minus, parts_by_place, parts_of, shares, total_of
from plimsoll_quota_enforcer.domain.values import value

_GAUGES = len(Gauge)
_UNCOUNTED = (0, 0)

INT64_MAX = 2**63 - 1
"""The largest figure that can be kept."""


@value
class Usage:
    """Used and used + held of one scope, by gauge."""

    used: tuple[int, ...]
    total: tuple[int, ...]


NO_USAGE = Usage((0,) * _GAUGES, (0,) * _GAUGES)


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

    def count(self, part: Part, sign: int) -> None:
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
        for sign, moved in ((-1, before), (1, after)):
            for share in moved:
                for place, part in parts_of(share).items():
                    self._writable(place).count(part, sign)
        self._lifts = None

    def rise(self, before: Iterable[Share], after: Iterable[Share]) -> Mapping[Place, tuple[int, ...]]:
        """Return by how much the totals of each place would change, per gauge, with these shares instead of those."""
        old, new = parts_by_place(before), parts_by_place(after)
        return {place: self._rise_at(place, old.get(place, ()), new.get(place, ())) for place in {*old, *new}}

    def _rise_at(self, place: Place, old: Sequence[Part], new: Sequence[Part]) -> tuple[int, ...]:
        scope = self._scopes.get(place)
        known = scope.members if scope is not None else {}
        if not old and len(new) == 1:  # the common case: what is new takes the place of nothing
            rise = [*new[0].total, 0, 0, 0]
            for member in new[0].total_members:
                rise[member[0]] += member not in known
            return tuple(rise)
        less, more = total_of(old), total_of(new)
        rise = [*more, 0, 0, 0] if less is NOTHING else [*minus(more, less), 0, 0, 0]
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
