"""Which histories may a tenant have, and what do they come to when everything is added up by hand?"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

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
from plimsoll_quota_enforcer.domain.model import TENANT, Content, Gauge, Multipliers, Place
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

    def play(self, tenant: Tenant, name: str) -> Decision | None:
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
        return None


_KINDS = ("reserve", "reserve", "reserve instead", "commit", "commit", "release", "adjust", "fact", "fact", "wait")
steps = st.builds(Step, st.sampled_from(_KINDS), deployments, contents, st.integers(0, 9))
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
    wanted = {hold.deployment: hold.target for hold in tenant.holds.values() if hold.state is HoldState.OPEN}
    used, total = [0] * 9, [0] * 9
    for name in settled.keys() | wanted.keys():
        for gauge in range(6):
            now = _amount(settled.get(name), place, gauge)
            used[gauge] += now
            total[gauge] += max(now, _amount(wanted.get(name), place, gauge))
    for figures, counted in ((used, [*settled.values()]), (total, [*settled.values(), *wanted.values()])):
        here = [what for what in counted if covers(place, what)]
        figures[Gauge.STACKS] = len({what.place for what in here if what.place[1]})
        figures[Gauge.ENVIRONMENTS] = len({what.place[0] for what in here if what.place[0]})
        figures[Gauge.APPS] = len({what.app for what in here if what.app})
    return tuple(used), tuple(total)


def _amount(what: Content | None, place: Place, gauge: int) -> int:
    return what.footprint.charged(what.multipliers)[gauge] if what is not None and covers(place, what) else 0


def rows(tenant: Tenant) -> tuple[object, ...]:
    """Everything that is kept of a tenant, to compare before and after."""
    return (dict(tenant.charges), dict(tenant.holds), dict(tenant.decisions), dict(tenant.over), tenant.seq)
