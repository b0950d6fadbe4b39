"""What counts together: a deployment with its open hold, or a group of them, and for how much at each scope."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from plimsoll_quota_enforcer.domain.model import NOTHING, Amounts, Charge, Content, Gauge, Hold, Place, chain
from plimsoll_quota_enforcer.domain.values import value

Member = tuple[int, Place | str]
"""Something counted once however many deployments share it: (gauge, stack, environment or app)."""

Members = frozenset[Member]

_NO_MEMBERS: Members = frozenset()


@value
class Share:
    """What counts as one: a deployment's charge, its open hold, and the charges that the hold replaces."""

    charge: Charge | None
    hold: Hold | None
    replaced: tuple[Charge, ...] = ()


@value
class Part:
    """What a share counts for at one place: what is settled, and the maximum of settled and target (rule 4)."""

    settled: Amounts
    total: Amounts
    settled_members: Members
    total_members: Members


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


def parts_of(share: Share) -> Mapping[Place, Part]:
    """Return what a share counts for at each place; what lies outside a place counts nothing there."""
    if share.replaced and share.hold is not None:
        return _parts_of_group(share, share.hold)
    charge = share.charge.content if share.charge is not None and not share.charge.gone else None
    target = share.hold.target if share.hold is not None else None
    if target is None:
        if charge is None:
            return {}
        amounts, members = charge.footprint.charged(charge.multipliers), _members(charge)
        return dict.fromkeys(chain(charge.place), Part(amounts, amounts, members, members))
    wanted, wanted_members = target.footprint.charged(target.multipliers), _members(target)
    if charge is None:
        return dict.fromkeys(chain(target.place), Part(NOTHING, wanted, _NO_MEMBERS, wanted_members))
    settled, members = charge.footprint.charged(charge.multipliers), _members(charge)
    both = Part(settled, _maximum(settled, wanted), members, members | wanted_members)
    old = Part(settled, settled, members, members)
    new = Part(NOTHING, wanted, _NO_MEMBERS, wanted_members)
    here, there = chain(charge.place), chain(target.place)
    return {
        place: both if place in here and place in there else old if place in here else new for place in {*here, *there}
    }


def _parts_of_group(share: Share, hold: Hold) -> Mapping[Place, Part]:
    """Count a replacement (rule 4): ``max(sum replaced, target)``, or the target on top where it surges."""
    own = [share.charge.content] if share.charge is not None and not share.charge.gone else []
    replaced = [charge.content for charge in share.replaced if not charge.gone]
    wanted, wanted_members = hold.target.footprint.charged(hold.target.multipliers), _members(hold.target)
    there = chain(hold.target.place)
    parts: dict[Place, Part] = {}
    for place in {place for content in (hold.target, *own, *replaced) for place in chain(content.place)}:
        mine, theirs = _sum_at(place, own), _sum_at(place, replaced)
        settled = _plus(mine, theirs)
        target = wanted if place in there else NOTHING
        total = _plus(theirs, _maximum(mine, target)) if hold.surge else _maximum(settled, target)
        members = frozenset().union(*(_members(c) for c in (*own, *replaced) if place in chain(c.place)))
        parts[place] = Part(settled, total, members, members | wanted_members if place in there else members)
    return parts


def _sum_at(place: Place, contents: Iterable[Content]) -> Amounts:
    total = NOTHING
    for content in contents:
        if place in chain(content.place):
            total = _plus(total, content.footprint.charged(content.multipliers))
    return total


def _plus(a: Amounts, b: Amounts) -> Amounts:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5])


def minus(a: Amounts, b: Amounts) -> Amounts:
    """Take one from the other, gauge by gauge."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3], a[4] - b[4], a[5] - b[5])


def total_of(parts: Sequence[Part]) -> Amounts:
    """Add up what parts at one place count for, settled or held."""
    if len(parts) == 1:
        return parts[0].total
    total = NOTHING
    for part in parts:
        total = _plus(total, part.total)
    return total


def _maximum(a: Amounts, b: Amounts) -> Amounts:
    return (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]), max(a[4], b[4]), max(a[5], b[5]))


def parts_by_place(shares: Iterable[Share]) -> Mapping[Place, list[Part]]:
    """Return what these count for, together, at each place."""
    found: dict[Place, list[Part]] = {}
    for share in shares:
        for place, part in parts_of(share).items():
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
