"""Which histories may a tenant have, and what do they come to when everything is added up by hand?"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, Mode
from plimsoll_devkit.builders import (
    BLOG,
    NO_BILLING,
    PROD,
    STAGING,
    Tenant,
    adjust,
    commit,
    content,
    fact,
    limit,
    release,
    reserve,
)
from plimsoll_quota_enforcer.domain.model import (
    TENANT,
    Ask,
    Content,
    Gauge,
    Hold,
    Measured,
    Multipliers,
    Place,
    Placing,
    Replica,
    chain,
)
from plimsoll_quota_enforcer.domain.state import Decision, Policy

PLACES: tuple[Place, ...] = (TENANT, PROD, STAGING, BLOG, ("prod", "shop"), ("staging", "blog"))
DEPLOYMENTS = ("d1", "d2", "d3")

places = st.sampled_from(PLACES)
deployments = st.sampled_from(DEPLOYMENTS)
small = st.sampled_from((0, 1, 2, 3, 4, 5, 6))
_plain = st.builds(
    content, places, st.sampled_from(("", "web", "db")), cpu=small, memory=small, disk=small, vapps=st.integers(0, 3)
)
contents = st.builds(
    lambda what, milli: replace(what, multipliers=Multipliers(reservation_milli=milli)),
    _plain,
    st.sampled_from((1000, 1000, 1500)),
)

_ANYWHERE = (Dimension.CPU, Dimension.MEMORY, Dimension.DISK, Dimension.APPS, Dimension.VAPPS)
_ceilings = st.sampled_from((0, 1, 2, 3, 4, 6, 8, 11, 14, None)).map(limit)
limit_tables = st.dictionaries(
    st.sampled_from((TENANT, *PLACES)), st.dictionaries(st.sampled_from(_ANYWHERE), _ceilings, min_size=1), min_size=1
)


@dataclass(frozen=True)
class Step:
    """Something that happens to a tenant; what it names it finds by counting, so that every step can be played."""

    kind: str
    deployment: str
    what: Content
    number: int

    def play(self, tenant: Tenant, name: str) -> Decision | None:  # noqa: PLR0911 - one a kind
        """Let it happen, under a request id of its own."""
        held = sorted(tenant.holds)
        hold = held[self.number % len(held)] if held else "none"
        match self.kind:
            case "reserve":
                return tenant.ask(reserve(name, self.deployment, self.what, ttl_seconds=60))
            case "reserve instead":
                open_hold = tenant.state.open_holds.get(self.deployment)
                return tenant.ask(
                    reserve(name, self.deployment, self.what, supersedes=open_hold, mode=Mode.SHADOW, ttl_seconds=60)
                )
            case "commit":
                return tenant.ask(commit(name, hold, self.number if self.number % 2 else None))
            case "release":
                return tenant.ask(release(name, hold))
            case "adjust":
                return tenant.ask(adjust(name, self.deployment, self.what if self.number % 3 else None))
            case "fact":
                tenant.settle(fact(self.deployment, self.number, self.what if self.number % 4 else None))
            case "wait":
                tenant.wait(31)
            case "measure":
                complete, bytes_ = self.number % 4 > 0, self.what.footprint.disk + self.number % 3
                tenant.measure(self.what.place, Measured(bytes_, (1, self.number), tenant.now, "walk", complete))
            case kind:
                return tenant.ask(self._grown(kind, tenant, name, hold))
        return None

    def _grown(self, kind: str, tenant: Tenant, name: str, hold: str) -> Ask:
        """Ask for what begins with more than one deployment, or on nodes."""
        others = tuple(each for each in (*DEPLOYMENTS, "unknown") if each != self.deployment)
        known: dict[str, Any] = {"ttl_seconds": 60}
        match kind:
            case "commit there":
                ended = {others[0]: self.number} if self.number % 2 else {}
                return commit(name, hold, replaced=ended, nodes=(("n1", self.number % 4, 1),) * (self.number % 3 > 0))
            case "replace" | "surge":
                known |= {"replaces": others[self.number % 3 :], "surge": kind == "surge"}
            case "replace instead":
                known |= {"replaces": others[:1], "supersedes": tenant.state.open_holds.get(self.deployment)}
        replica = Replica("", 1, self.what.footprint.cpu_reserved, self.what.footprint.memory_reserved)
        where = (None, Placing(node="n1", replicas=(replica,)), Placing(pool="p", replicas=(replica, replica)))
        return reserve(name, self.deployment, self.what, placing=where[self.number % len(where)], **known)


_KINDS = ("reserve", "reserve", "reserve instead", "commit", "commit", "release", "adjust", "fact", "fact", "wait")
_GROWN = ("replace", "surge", "replace instead", "place", "commit there", "measure")
steps = st.builds(Step, st.sampled_from(_KINDS + _GROWN), deployments, contents, st.integers(0, 9))
histories = st.lists(steps, min_size=2, max_size=14)


def played(
    history: Iterable[Step],
    limits: dict[Place, dict[Dimension, object]] | None = None,
    *,
    policy: Policy = NO_BILLING,
    watch: Callable[[Tenant], None] = lambda _: None,
) -> Tenant:
    """Return a tenant to whom this history has happened."""
    tenant = Tenant(limits, policy=policy)  # type: ignore[arg-type]  # hypothesis widens the values
    tenant.node("n1", 6, 6, pool="p")
    tenant.node("n2", 4, 9, pool="p")
    for number, step in enumerate(history):
        step.play(tenant, f"r{number}")
        watch(tenant)
    return tenant


def covers(place: Place, what: Content) -> bool:
    """Tell whether something counts at a place."""
    environment, stack = place
    return environment in ("", what.place[0]) and stack in ("", what.place[1])


def added_up(tenant: Tenant, place: Place) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Add up used, and used + held, from the rows, in the plainest way (DESIGN 5.3 rules 4 and 8)."""
    settled = {name: charge.content for name, charge in tenant.charges.items() if not charge.gone}
    opened = [hold for hold in tenant.holds.values() if hold.state is HoldState.OPEN]
    used, total = [0] * 9, [0] * 9
    for gauge in range(6):
        amounts = {name: _amount(what, place, gauge) for name, what in settled.items()}
        held = sum(adds(hold, amounts, _amount(hold.target, place, gauge)) for hold in opened)
        used[gauge] = sum(amounts.values()) if gauge != Gauge.DISK else disk_of(tenant, place)
        total[gauge] = used[gauge] + held
    for figures, counted in (
        (used, [*settled.values()]),
        (total, [*settled.values(), *(hold.target for hold in opened)]),
    ):
        here = [what for what in counted if covers(place, what)]
        figures[Gauge.STACKS] = len({what.place for what in here if what.place[1]})
        figures[Gauge.ENVIRONMENTS] = len({what.place[0] for what in here if what.place[0]})
        figures[Gauge.APPS] = len({what.app for what in here if what.app})
    return tuple(used), tuple(total)


def adds(hold: Hold, settled: Mapping[str, int], target: int) -> int:
    """What a hold adds to what is settled: the target beyond what it takes the place of (rule 4)."""
    instead_of = (hold.deployment,) if hold.surge else (hold.deployment, *hold.replaces)
    return max(0, target - sum(settled.get(name, 0) for name in instead_of))


def disk_of(tenant: Tenant, place: Place) -> int:
    """What is used of disk: of a leaf and of a parent the larger of measured and of what lies in it (rule 9)."""
    lying = sum(c.content.footprint.disk for c in tenant.charges.values() if not c.gone and c.content.place == place)
    below = [each for each in PLACES if len(chain(each)) == len(chain(place)) + 1 and place in chain(each)]
    measured = tenant.measured[place].bytes if place in tenant.measured else 0
    return max(measured, lying + sum(disk_of(tenant, each) for each in below))


def allocated(tenant: Tenant) -> dict[str, tuple[int, int]]:
    """What charges and open holds have on each node, added up from the rows."""
    found = {}
    for node in tenant.nodes:
        rooms = []
        for i in (0, 1):
            settled = {name: _there(c.content, node, i) for name, c in tenant.charges.items() if not c.gone}
            opened = [hold for hold in tenant.holds.values() if hold.state is HoldState.OPEN]
            held = sum(adds(hold, settled, _there(hold.target, node, i)) for hold in opened)
            rooms.append(sum(settled.values()) + held)
        found[node] = (rooms[0], rooms[1])
    return found


def _there(what: Content, node: str, i: int) -> int:
    return sum(room[i] for name, *room in what.nodes if name == node)


def _amount(what: Content | None, place: Place, gauge: int) -> int:
    return what.footprint.charged(what.multipliers)[gauge] if what is not None and covers(place, what) else 0


def rows(tenant: Tenant) -> tuple[object, ...]:
    """Everything that is kept of a tenant, to compare before and after."""
    return (dict(tenant.charges), dict(tenant.holds), dict(tenant.decisions), dict(tenant.over), tenant.seq)
