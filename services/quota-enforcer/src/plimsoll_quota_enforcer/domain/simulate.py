"""What would other limits have refused: a tenant's log decided again by ``decide``, as it was and as proposed. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Verb
from plimsoll_quota_enforcer.domain.decide import decide, measure, settle_facts
from plimsoll_quota_enforcer.domain.declare import Declaration
from plimsoll_quota_enforcer.domain.limits import ceiling, resolve
from plimsoll_quota_enforcer.domain.model import GAUGES, TENANT, Ask, Fact, Hold, Limit, Measured, Place
from plimsoll_quota_enforcer.domain.state import Change, ChangeKind, Decision, Outcome, Policy, TenantState, Violation

LISTED_MAX = 1000
"""Decisions that are listed of each kind; all are counted."""

_FOR_EVER = timedelta(days=36_500)
_NOT_REPLAYED = frozenset(
    code.code
    for code in (
        codes.NOT_ENTITLED, codes.QUOTA_BLOCKED, codes.ENTITLEMENT_ENDED, codes.NODE_CPU, codes.NODE_MEMORY,
        codes.POOL_FULL, codes.REPLICA_TOO_LARGE, codes.WAITER_AHEAD, codes.WAIT_RELEASED, codes.MORE_ON_NODES,
    )
)  # fmt: skip
"""What was refused for these stays refused: limits change nothing about gates, nodes and queues."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One decision of the log."""

    ask: Ask
    at: datetime
    seq: int
    allowed: bool
    code: str | None = None
    entitlement_version: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """One fact of the log: a settle or a measurement that no request caused."""

    change: Change
    at: datetime

    @property
    def seq(self) -> int:
        """Where in the tenant's history it stands."""
        return self.change.seq


@dataclass(frozen=True, slots=True)
class Relimited:
    """One change of a limit; ``seq`` None is one of a global default, which is placed by its time."""

    place: Place
    dimension: Dimension
    limit: Limit | None
    at: datetime
    seq: int | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """The limits that are tried on one tenant: what they name holds throughout; None inherits."""

    places: Mapping[Place, Declaration] = field(default_factory=dict)
    defaults: Declaration = field(default_factory=dict)

    def over(self, state: TenantState) -> TenantState:
        """Return the state under these limits."""
        limits = {place: _declared(state.limits.get(place, {}), named) for place, named in self.places.items()}
        return replace(state, limits={**state.limits, **limits}, defaults=_declared(state.defaults, self.defaults))


def _declared(present: Mapping[Dimension, Limit], named: Declaration) -> Mapping[Dimension, Limit]:
    wanted = {d: Limit(v.value, v.mode, expires_at=v.expires_at) if v is not None else None for d, v in named.items()}
    return {dimension: limit for dimension, limit in {**present, **wanted}.items() if limit is not None}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one request fared otherwise under the proposal."""

    recorded: Recorded
    code: str | None
    violations: tuple[Violation, ...]
    place: Place
    deployment: str


@dataclass
class Report:
    """What a replay came to."""

    replayed: int = 0
    facts: int = 0
    refused_then: int = 0
    refused_proposed: int = 0
    newly_refused: int = 0
    newly_allowed: int = 0
    left_out: int = 0
    """What would not have happened: commits, releases, adjusts and facts of what would have been refused."""
    not_replayed: int = 0
    """Refused for gates, nodes or a queue, and so in both."""
    differs: Counter[str] = field(default_factory=Counter)
    """Decisions that the control did not come to again, by why; they count as neither newly refused nor allowed."""
    refusals: list[Verdict] = field(default_factory=list)
    admissions: list[Verdict] = field(default_factory=list)


class _World:
    """One course of events. Like the storage it recalls closed holds and tombstones only where they are named."""

    def __init__(self, state: TenantState, closed: Mapping[str, Hold], policy: Policy) -> None:
        self._policy = policy
        self._closed = {name: _anywhere(hold) for name, hold in closed.items()}
        charges = {n: replace(c, content=replace(c.content, nodes=())) for n, c in state.charges.items()}
        self._gone = {name: charge for name, charge in charges.items() if charge.gone}
        self._named: tuple[str, ...] = ()
        self.state = replace(
            state,
            charges={name: charge for name, charge in charges.items() if not charge.gone},
            holds={name: _anywhere(hold) for name, hold in state.holds.items()},
        )

    def decide(self, recorded: Recorded, ask: Ask) -> Decision:
        """Answer one request as of when it was decided."""
        hold = self.state.holds.get(ask.hold) or self._closed.get(ask.hold)
        members = hold.members if hold is not None else ()
        self._recall(hold, (ask.deployment, *members))
        outcome = decide(self.state, [ask], recorded.at, self._policy)
        self._absorb(outcome)
        return outcome.decisions[0]

    def tell(self, told: Told) -> None:
        """Take in a fact."""
        change = told.change
        if change.kind is ChangeKind.MEASURED:
            self._named = ()
            found = Measured(change.content.footprint.disk, (0, change.seq), told.at, "history", complete=True)
            outcome, _ = measure(self.state, [(change.content.place, found)], told.at, self._policy)
        else:
            self._recall(None, (change.deployment,))
            revision = change.revision or 0
            content = replace(change.content, nodes=())
            fact = Fact(self.state.tenant, change.deployment, revision, content, gone=change.gone)
            outcome = settle_facts(self.state, [fact], told.at, self._policy)
        self._absorb(outcome)

    def _recall(self, hold: Hold | None, deployments: Iterable[str]) -> None:
        self._named = tuple(deployments)
        gone = {name: self._gone[name] for name in self._named if name in self._gone}
        if gone:
            self.state = replace(self.state, charges={**gone, **self.state.charges})
        if hold is not None and hold.id not in self.state.holds:
            self.state = replace(self.state, holds={**self.state.holds, hold.id: hold})

    def _absorb(self, outcome: Outcome) -> None:
        state = outcome.state
        still_open = set(state.open_holds.values())
        if len(state.holds) > len(still_open):
            self._closed |= {name: hold for name, hold in state.holds.items() if name not in still_open}
            state = replace(state, holds={name: state.holds[name] for name in still_open})
        touched = {*outcome.charges, *self._named} & state.charges.keys()
        gone = {name: state.charges[name] for name in touched if state.charges[name].gone}
        if gone:
            self._gone |= gone
            state = replace(state, charges={name: each for name, each in state.charges.items() if name not in gone})
        self.state = state


def _anywhere(hold: Hold) -> Hold:
    """Return a hold that lies on no node: what nodes have room for is no part of a replay."""
    return replace(hold, target=replace(hold.target, nodes=()))


class Replay:
    """Plays one tenant's log twice: under the limits as they were, and under those proposed."""

    def __init__(
        self,
        state: TenantState,
        closed: Mapping[str, Hold],
        relimited: Sequence[Relimited],
        proposal: Proposal,
        policy: Policy,
    ) -> None:
        """Begin.

        Args:
            state: what the tenant had at the beginning, tombstones too, under the limits of that time.
            closed: holds that were closed by then and are named later.
            relimited: changes of its limits and of the defaults since then, in their order.
            proposal: what is tried.
            policy: the platform's.
        """
        quiet = replace(policy, entitlements_expected=False, thresholds=(), window=_FOR_EVER, clock_skew=_FOR_EVER)
        self.report = Report()
        self._version = state.entitlement.version if state.entitlement is not None else None
        self._proposal = proposal
        self._waiting = list(relimited)
        self._control = _World(state, closed, quiet)
        self._proposed = _World(proposal.over(state), closed, quiet)
        self._refused: set[str] = set()
        self._not_there: set[str] = set()
        self._granted: dict[str, str] = {}

    def feed(self, event: Recorded | Told) -> None:
        """Play the next event, in the order of ``seq``; of equal ones what was allowed comes first."""
        self._relimit(event)
        if isinstance(event, Recorded):
            self._request(event)
            return
        self.report.facts += 1
        self._control.tell(event)
        if event.change.deployment in self._not_there and not event.change.gone:
            self.report.left_out += 1
            return
        self._not_there.discard(event.change.deployment)
        self._proposed.tell(event)

    def skip(self, *, allowed: bool) -> None:
        """Count a decision whose request cannot be read under the present settings."""
        self.report.replayed += 1
        self.report.refused_then += not allowed
        self.report.refused_proposed += not allowed
        self.report.differs["the request can no longer be read"] += 1

    def _relimit(self, event: Recorded | Told) -> None:
        while self._waiting:
            step = self._waiting[0]
            if step.seq > event.seq if step.seq is not None else step.at > event.at:
                return
            del self._waiting[0]
            self._control.state = _with(self._control.state, step)
            self._proposed.state = self._proposal.over(_with(self._proposed.state, step))

    def _request(self, recorded: Recorded) -> None:
        report = self.report
        report.replayed += 1
        report.refused_then += not recorded.allowed
        if recorded.code in _NOT_REPLAYED:
            report.not_replayed += 1
            report.refused_proposed += 1
            return
        ask = replace(recorded.ask, patience=None, placing=None, nodes=None, deadline=None)
        control = self._control.decide(recorded, ask)
        code = control.code.code if control.code is not None else None
        same = (control.allowed, code) == (recorded.allowed, recorded.code)
        if not same:
            report.differs[self._why(recorded)] += 1
        if self._would_not_have_come(ask):
            report.left_out += 1
            return
        if ask.verb is Verb.RESERVE and (granted := self._granted.get(ask.deployment)) is not None:
            ask = replace(ask, supersedes=granted)  # asked again since it was refused then
        proposed = self._proposed.decide(recorded, ask)
        report.refused_proposed += not proposed.allowed
        if ask.verb is Verb.RESERVE:
            self._follow(recorded, control, proposed, counts=same)

    def _follow(self, recorded: Recorded, control: Decision, proposed: Decision, *, counts: bool) -> None:
        """Remember what a reserve means for what comes after it, and list it where it fared otherwise."""
        ask, report = recorded.ask, self.report
        if proposed.allowed:
            self._not_there.discard(ask.deployment)
            self._granted.pop(ask.deployment, None)
            if not control.allowed:
                self._granted[ask.deployment] = ask.request_id
        elif control.allowed:
            self._refused.add(ask.request_id)
            self._not_there.add(ask.deployment)
        if not counts or control.allowed == proposed.allowed:
            return
        code = proposed.code.code if proposed.code is not None else recorded.code
        told = Verdict(recorded, code, proposed.violations or control.violations, ask.place, ask.deployment)
        listed = report.refusals if control.allowed else report.admissions
        report.newly_refused += control.allowed
        report.newly_allowed += not control.allowed
        if len(listed) < LISTED_MAX:
            listed.append(told)

    def _would_not_have_come(self, ask: Ask) -> bool:
        if ask.verb in (Verb.COMMIT, Verb.RELEASE):
            return ask.hold in self._refused
        if ask.verb is Verb.ADJUST and ask.target is None:
            self._not_there.discard(ask.deployment)
        return ask.verb is Verb.ADJUST and ask.deployment in self._not_there

    def _why(self, recorded: Recorded) -> str:
        if recorded.ask.verb is Verb.RESERVE and recorded.entitlement_version != self._version:
            return "the plan was another"
        return "unexplained"


def _with(state: TenantState, step: Relimited) -> TenantState:
    """Return the state after one change of a limit."""
    of_platform = step.seq is None
    present = state.defaults if of_platform else state.limits.get(step.place, {})
    changed = {**present, step.dimension: step.limit}
    kept = {dimension: limit for dimension, limit in changed.items() if limit is not None}
    if of_platform:
        return replace(state, defaults=kept)
    return replace(state, limits={**state.limits, step.place: kept})


def over_now(state: TenantState, proposal: Proposal, now: datetime, policy: Policy) -> list[Violation]:
    """Return every figure that would be over its limit now: with ``asked`` 0, and ``headroom`` below 0."""
    tried = proposal.over(state)
    found: list[Violation] = []
    for place in sorted({TENANT, *tried.tally.places()}):
        limits, usage = resolve(tried, place, now), tried.tally.usage(place)
        for info in GAUGES:
            resolved = limits.get(info.dimension)
            top = ceiling(resolved, info, policy.multipliers)
            used, total = usage.used[info.gauge], usage.total[info.gauge]
            if resolved is not None and top is not None and total > top:
                shadow = resolved.limit is not None and resolved.limit.mode.value == "shadow"
                found.append(Violation(place, info, top, resolved, used, total - used, 0, top - total, shadow))
    return found
