"""How do tests write a tenant's story down: requests, facts and limits in one line each, decided one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, Mode, Verb
from plimsoll_contracts.versions import Standing
from plimsoll_quota_enforcer.domain.decide import decide, expire, measure, settle_facts
from plimsoll_quota_enforcer.domain.entitle import Entitled, entitle
from plimsoll_quota_enforcer.domain.model import (
    TENANT,
    Ask,
    Charge,
    Content,
    Entitlement,
    Fact,
    Footprint,
    Gauge,
    Hold,
    Limit,
    Measured,
    Node,
    Place,
    StoredDecision,
    Waiter,
)
from plimsoll_quota_enforcer.domain.placing import needed
from plimsoll_quota_enforcer.domain.relimit import LimitPlan, relimit
from plimsoll_quota_enforcer.domain.state import (
    Change,
    Crossing,
    Decision,
    Outcome,
    OverKey,
    Policy,
    Settlement,
    TenantState,
    fold,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ACME = "acme"
PROD: Place = ("prod", "")
STAGING: Place = ("staging", "")
BLOG: Place = ("prod", "blog")
POLICY = Policy()
NO_BILLING = Policy(entitlements_expected=False)


def limit(value: int | None, *, mode: Mode = Mode.ENFORCE, expires_at: datetime | None = None) -> Limit:
    """Build a limit; None is unlimited."""
    return Limit(value, mode, expires_at=expires_at, set_by="alice", set_at=NOW, reason="asked for")


def limits(**values: int | None) -> dict[Dimension, Limit]:
    """Build limits by the names of their dimensions: ``limits(cpu=4000)``."""
    return {Dimension(name): limit(value) for name, value in values.items()}


def content(place: Place = TENANT, app: str = "", **amounts: int) -> Content:
    """Build what a deployment is, from plain amounts."""
    return Content(place, app, Footprint.plain(**amounts))


def fact(deployment: str, revision: int, what: Content | None, *, place: Place = TENANT) -> Fact:
    """Build a usage delta as it is settled; None is gone."""
    return Fact(ACME, deployment, revision, what if what is not None else content(place), gone=what is None)


def ask(verb: Verb, request_id: str, *, at: datetime = NOW, **more: Any) -> Ask:
    """Build a request whose fingerprint covers what its body would say."""
    body = repr(sorted((name, value) for name, value in more.items() if name != "deadline"))
    fingerprint = blake2b(f"{verb} {request_id} {body}".encode(), digest_size=16).digest()
    return Ask(verb, request_id, ACME, at, fingerprint, **more)


def reserve(request_id: str, deployment: str, target: Content, **more: Any) -> Ask:
    """Build a reserve."""
    known: dict[str, Any] = {"target": target, "place": target.place, "app": target.app}
    return ask(Verb.RESERVE, request_id, deployment=deployment, **known, **more)


def check(deployment: str, target: Content, request_id: str = "check", **more: Any) -> Ask:
    """Build a check."""
    return replace(reserve(request_id, deployment, target, **more), verb=Verb.CHECK)


def commit(request_id: str, hold: str, revision: int | None = None, **more: Any) -> Ask:
    """Build a commit."""
    return ask(Verb.COMMIT, request_id, hold=hold, revision=revision, **more)


def release(request_id: str, hold: str, **more: Any) -> Ask:
    """Build a release."""
    return ask(Verb.RELEASE, request_id, hold=hold, **more)


def adjust(request_id: str, deployment: str, what: Content | None, revision: int | None = None, **more: Any) -> Ask:
    """Build an adjust; None is gone."""
    place, app = (what.place, what.app) if what is not None else (TENANT, "")
    known: dict[str, Any] = {"target": what, "place": place, "app": app, "revision": revision}
    return ask(Verb.ADJUST, request_id, deployment=deployment, **known, **more)


class Tenant:
    """One tenant whose state is carried from step to step, as the storage would, with all that was ever written.

    ``rows`` of the database are the attributes ``charges`` (tombstones too), ``holds`` (closed ones too),
    ``decisions``, ``over`` and so on; each step starts from a state folded from them. With ``carried`` what is folded
    is kept from step to step, as in the cache; ``restart`` forgets it.
    """

    def __init__(
        self,
        limits: Mapping[Place, Mapping[Dimension, Limit]] | None = None,
        *,
        defaults: Mapping[Dimension, Limit] | None = None,
        entitlement: Entitlement | None = None,
        policy: Policy = NO_BILLING,
        now: datetime = NOW,
        carried: bool = False,
    ) -> None:
        """Start without any usage."""
        self._carried = carried
        self._last: TenantState | None = None
        self.now = now
        self.policy = policy
        self.limits = {place: dict(of_place) for place, of_place in (limits or {}).items()}
        self.defaults = dict(defaults or {})
        self.entitlement = entitlement
        self.seq = 0
        self.charges: dict[str, Charge] = {}
        self.holds: dict[str, Hold] = {}
        self.decisions: dict[str, StoredDecision] = {}
        self.over: dict[OverKey, datetime] = {}
        self.measured: dict[Place, Measured] = {}
        self.waiters: tuple[Waiter, ...] = ()
        self.nodes: dict[str, Node] = {}
        self.woken: list[Decision] = []
        self.scans: set[Place] = set()
        self.changes: list[Change] = []
        self.crossings: list[Crossing] = []

    @property
    def state(self) -> TenantState:
        """What the next step starts from, with everything recalled."""
        if self._last is None:
            return self.folded
        return replace(self.folded, tally=self._last.tally, next_expiry=self._last.next_expiry)

    def restart(self) -> None:
        """Forget what was carried."""
        self._last = None

    @property
    def folded(self) -> TenantState:
        """The state folded from the rows, as after a restart."""
        state = fold(
            ACME,
            self.seq,
            charges=self.charges,
            holds=self.holds,
            limits=self.limits,
            defaults=self.defaults,
            entitlement=self.entitlement,
            over=self.over,
            measured=self.measured,
            waiters=self.waiters,
        )
        return replace(state, decisions=self.decisions)

    def absorb(self, outcome: Outcome) -> None:
        """Write an outcome into the rows, by the names it says were written."""
        after = outcome.state
        self._last = after if self._carried else None
        self.charges |= {name: after.charges[name] for name in outcome.charges}
        self.holds |= {name: after.holds[name] for name in outcome.holds}
        self.over = dict(after.over)
        self.seq = after.seq
        self.changes.extend(outcome.changes)
        self.crossings.extend(outcome.crossings)
        self.measured |= {place: after.measured[place] for place in outcome.measured}
        self.waiters = after.waiters
        for name, moved in outcome.nodes.items():
            self.nodes[name] = self.nodes.get(name, Node(name)).allocating(*moved)
        self.woken.extend(outcome.woken)
        self.scans |= outcome.scans
        for decision in (*outcome.decisions, *outcome.woken):
            if decision.stored:
                told = repr((decision.allowed, decision.code)).encode()
                hold = decision.hold.id if decision.hold is not None else None
                self.decisions[decision.ask.request_id] = StoredDecision(decision.ask.fingerprint, told, hold)

    def locked(self, asks: Sequence[Ask] = (), facts: Sequence[Fact] = ()) -> dict[str, Node]:
        """Return the nodes that the storage would have locked, and no other."""
        need = needed({ACME: self.state}, asks, facts, self.now)
        pooled = {name: node for name, node in self.nodes.items() if node.pool in need.pools}
        return pooled | {name: self.nodes.get(name, Node(name)) for name in need.nodes}

    def batch(self, asks: Sequence[Ask]) -> tuple[Decision, ...]:
        """Decide several requests in one transaction."""
        outcome = decide(self.state, asks, self.now, self.policy, self.locked(asks))
        self.absorb(outcome)
        return outcome.decisions

    def ask(self, one: Ask) -> Decision:
        """Decide one request."""
        return self.batch([one])[0]

    def settle(self, *facts: Fact) -> tuple[Settlement, ...]:
        """Settle facts in one transaction."""
        outcome = settle_facts(self.state, facts, self.now, self.policy, self.locked((), facts))
        self.absorb(outcome)
        return outcome.settlements

    def entitle(self, *snapshots: Entitlement) -> Entitled:
        """Project snapshots in one transaction."""
        entitled = entitle(self.state, snapshots, self.now, self.policy, self.locked())
        self.absorb(entitled.outcome)
        self.entitlement = entitled.outcome.state.entitlement
        return entitled

    def relimit(
        self, place: Place, wanted: Mapping[Dimension, Limit | None], *, force: bool = False
    ) -> tuple[LimitPlan, ...]:
        """Change overrides, and tell the crossings, in one transaction."""
        expired = expire(self.state, self.now, self.policy, nodes=self.locked())
        changed, plans = relimit(expired.state, {place: wanted}, self.now, self.policy, force=force)
        self.absorb(expired)
        self.limits = {where: dict(of_place) for where, of_place in changed.limits.items()}
        self.absorb(expire(changed, self.now, self.policy, also=(place,)))
        return plans

    def sweep(self) -> None:
        """Close what has expired, tell crossings of moved defaults, and try whoever waits."""
        self.absorb(expire(self.state, self.now, self.policy, (TENANT,), self.locked(), wake=True))

    def measure(self, place: Place, measured: Measured) -> Standing:
        """Take in one measurement."""
        outcome, (became,) = measure(self.state, [(place, measured)], self.now, self.policy, self.locked())
        self.absorb(outcome)
        return became

    def node(self, name: str, cpu: int, memory: int, **more: Any) -> None:
        """Let a node report its capacity."""
        known = self.nodes.get(name, Node(name))
        self.nodes[name] = replace(known, capacity=(cpu, memory), version=known.version + 1, **more)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def run(self, deployment: str, what: Content, revision: int = 1) -> None:
        """Settle a deployment as a fact, over any limit."""
        self.settle(fact(deployment, revision, what))

    def used(self, gauge: Gauge, place: Place = TENANT) -> int:
        """What charges hold of one gauge at one place."""
        return self.state.tally.usage(place).used[gauge]

    def total(self, gauge: Gauge, place: Place = TENANT) -> int:
        """Used and held of one gauge at one place."""
        return self.state.tally.usage(place).total[gauge]

    def open_holds(self) -> set[str]:
        """Ids of the holds that are open."""
        return {hold.id for hold in self.holds.values() if hold.state is HoldState.OPEN}
