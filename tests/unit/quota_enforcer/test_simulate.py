"""Simulation: the log decided again comes to what was recorded, and under other limits to what adding up says."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import (
    PLACES,
    Step,
    added_up,
    contents,
    covers,
    deployments,
    histories,
    limit_tables,
    steps,
)

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Basis, Dimension
from plimsoll_contracts.enforcement import HoldState, Mode, Verb
from plimsoll_devkit.builders import (
    ACME,
    BLOG,
    NO_BILLING,
    NOW,
    PROD,
    Tenant,
    adjust,
    commit,
    content,
    fact,
    limit,
    limits,
    reserve,
)
from plimsoll_quota_enforcer.domain.decide import expire
from plimsoll_quota_enforcer.domain.declare import Declared
from plimsoll_quota_enforcer.domain.model import (
    GAUGES,
    TENANT,
    Ask,
    Charge,
    Content,
    Hold,
    Limit,
    Measured,
    Place,
    chain,
)
from plimsoll_quota_enforcer.domain.simulate import (
    Proposal,
    Recorded,
    Relimited,
    Replay,
    Report,
    Told,
    over_now,
)
from plimsoll_quota_enforcer.domain.state import ChangeKind, Decision, TenantState

Limits = dict[Place, dict[Dimension, Limit]]
NOTHING_ELSE = Proposal()


@dataclass
class Log:
    """A tenant to whom things happen, and what the storage would keep of it."""

    tenant: Tenant
    events: list[Recorded | Told] = field(default_factory=list)
    relimited: list[Relimited] = field(default_factory=list)
    ids: int = 0

    def step(self, step: Step) -> None:
        self.ids += 1
        before = len(self.tenant.changes)
        asked: list[Ask] = []
        plain, self.tenant.ask = self.tenant.ask, lambda one: asked.append(one) or plain(one)  # type: ignore[method-assign,func-returns-value]
        decision = step.play(self.tenant, f"r{self.ids}")
        self.tenant.ask = plain  # type: ignore[method-assign]
        self.facts_since(before)
        if decision is not None:
            self.record(asked[0], decision)

    def facts_since(self, before: int) -> None:
        new = self.tenant.changes[before:]
        self.events += [
            Told(change, self.tenant.now)
            for change in new
            if change.kind in (ChangeKind.SETTLED, ChangeKind.MEASURED) and not change.request_id
        ]

    def record(self, ask: Ask, decision: Decision) -> None:
        code = decision.code.code if decision.code is not None else None
        self.events.append(Recorded(ask, self.tenant.now, decision.seq, decision.allowed, code))

    def ask(self, ask: Ask) -> Decision:
        decision = self.tenant.ask(ask)
        self.record(ask, decision)
        return decision

    def tell(self, deployment: str, revision: int, what: Content | None) -> None:
        before = len(self.tenant.changes)
        self.tenant.settle(fact(deployment, revision, what))
        self.facts_since(before)

    def relimit(self, place: Place, dimension: Dimension, value: Limit | None) -> None:
        self.tenant.relimit(place, {dimension: value}, force=True)
        self.relimited.append(Relimited(place, dimension, value, self.tenant.now, self.tenant.seq))

    def since_now(self) -> "Log":
        """Begin a log here, as the storage does."""
        return Log(self.tenant, ids=self.ids)

    def state(self) -> tuple[TenantState, dict[str, Hold]]:
        """What the tenant has now, tombstones too, and the holds that are closed."""
        state = self.tenant.folded
        closed = {name: hold for name, hold in state.holds.items() if hold.state is not HoldState.OPEN}
        still_open = {name: hold for name, hold in state.holds.items() if name not in closed}
        limits = {place: dict(of) for place, of in state.limits.items()}
        # History knows what was measured, not in which scan: to it, all that is told later is later.
        measured = {place: replace(each, order=(0, 0)) for place, each in state.measured.items()}
        # Copies: the builder goes on writing into what it has.
        kept = {"charges": dict(state.charges), "measured": measured, "limits": limits}
        return replace(state, decisions={}, holds=still_open, **kept), closed  # type: ignore[arg-type]

    def in_order(self) -> list[Recorded | Told]:
        return sorted(
            self.events,
            key=lambda each: (each.seq, isinstance(each, Recorded) and (1 + (not each.allowed)), each.at),
        )


def replayed(begin: tuple[TenantState, dict[str, Hold]], log: Log, proposal: Proposal = NOTHING_ELSE) -> Replay:
    replay = Replay(*begin, log.relimited, proposal, NO_BILLING)
    for event in log.in_order():
        replay.feed(event)
    return replay


relimits = st.tuples(st.sampled_from(PLACES), st.sampled_from((Dimension.CPU, Dimension.VAPPS)), st.integers(0, 9))


@given(histories, limit_tables, st.lists(steps | relimits, min_size=2, max_size=14))
def test_with_no_change_the_log_comes_to_what_was_recorded(
    before: list[Step], table: Limits, after: list[Step | tuple[Place, Dimension, int]]
) -> None:
    log = Log(Tenant(table, policy=NO_BILLING))
    log.tenant.node("n1", 6, 6, pool="p")
    for step in before:
        log.step(step)
    log = log.since_now()
    begin = log.state()
    for each in after:
        if isinstance(each, Step):
            log.step(each)
        else:
            place, dimension, value = each
            log.relimit(place, dimension, limit(value) if value else None)
    replay = replayed(begin, log)
    report = replay.report
    assert not report.differs
    assert (report.newly_refused, report.newly_allowed, report.left_out) == (0, 0, 0)
    assert report.refused_proposed == report.refused_then
    assert report.replayed == sum(isinstance(each, Recorded) for each in log.events)
    now = log.tenant.now
    for world in (replay._control, replay._proposed):
        ours = expire(world.state, now, NO_BILLING).state
        theirs = expire(log.tenant.folded, now, NO_BILLING, nodes=log.tenant.nodes).state
        assert [ours.tally.usage(place) for place in PLACES] == [theirs.tally.usage(place) for place in PLACES]


# What follows decides by adding everything up each time: it knows rules, and none of the code.


@dataclass
class Plain:
    """A tenant's charges and holds, and its limits, for the plainest arithmetic."""

    limits: Mapping[Place, Mapping[Dimension, int | None]]
    charges: dict[str, Charge] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    measured: dict[Place, Measured] = field(default_factory=dict)

    def expire(self, now: datetime) -> None:
        for hold in self.holds.values():
            if hold.state is HoldState.OPEN and hold.expires_at <= now:
                self.holds[hold.id] = replace(hold, state=HoldState.EXPIRED)

    def open_of(self, deployment: str) -> Hold | None:
        return next((h for h in self.holds.values() if h.deployment == deployment and h.state is HoldState.OPEN), None)

    def close(self, hold: Hold, state: HoldState) -> None:
        self.holds[hold.id] = replace(hold, state=state)

    def total(self, place: Place) -> tuple[int, ...]:
        return added_up(self, place)[1]  # type: ignore[arg-type]  # it has the same rows

    def fits(self, hold: Hold, instead: Hold | None) -> bool:
        before = {place: self.total(place) for place in chain(hold.target.place)}
        trial = Plain(self.limits, dict(self.charges), dict(self.holds))
        if instead is not None:
            trial.close(instead, HoldState.RELEASED)
        trial.holds[hold.id] = hold
        for place, had in before.items():
            for info in GAUGES:
                value = self.limits.get(place, {}).get(info.dimension)
                if value is None:
                    continue
                top = value * hold.target.multipliers.limit_milli // 1000 if info.basis is Basis.BURST else value
                has = trial.total(place)[info.gauge]
                if has > had[info.gauge] and has > top:
                    return False
        return True

    def settle(self, deployment: str, revision: int | None, what: Content | None) -> None:
        present = self.charges.get(deployment)
        revision = revision if revision is not None else (present.revision + 1 if present else 1)
        if present is None or revision > present.revision:
            where = what or (present.content if present else content())
            self.charges[deployment] = Charge(deployment, revision, where, gone=what is None)


def plainly(plain: Plain, events: list[Recorded | Told]) -> set[str]:  # noqa: C901, PLR0912, PLR0915  one plain list of rules
    """Return the reserves that are refused."""
    refused: set[str] = set()
    lost: set[str] = set()  # reserves that were allowed then
    absent: set[str] = set()
    granted: dict[str, str] = {}
    for event in events:
        plain.expire(event.at)
        if isinstance(event, Told):
            name, gone = event.change.deployment, event.change.gone
            if gone or name not in absent:
                absent.discard(name)
                plain.settle(name, event.change.revision, None if gone else event.change.content)
            continue
        ask = event.ask
        match ask.verb:
            case Verb.RESERVE:
                assert ask.target is not None
                there = plain.open_of(ask.deployment)
                instead = granted.get(ask.deployment, ask.supersedes)
                hold = Hold(ask.request_id, ask.deployment, ask.target, event.at + timedelta(seconds=ask.ttl_seconds))
                blocked = there is not None and there.id != instead
                if blocked or (not plain.fits(hold, there) and ask.mode is Mode.ENFORCE):
                    refused.add(ask.request_id)
                    if event.allowed:
                        lost.add(ask.request_id)
                        absent.add(ask.deployment)
                    continue
                if there is not None:
                    plain.close(there, HoldState.RELEASED)
                plain.holds[hold.id] = hold
                absent.discard(ask.deployment)
                granted.pop(ask.deployment, None)
                if not event.allowed:
                    granted[ask.deployment] = ask.request_id
            case Verb.COMMIT | Verb.RELEASE:
                known = plain.holds.get(ask.hold)
                if ask.hold in lost or known is None:
                    continue
                if ask.verb is Verb.RELEASE and known.state is HoldState.OPEN:
                    plain.close(known, HoldState.RELEASED)
                elif ask.verb is Verb.COMMIT and known.state in (HoldState.OPEN, HoldState.EXPIRED):
                    present = plain.charges.get(known.deployment)
                    same = present is not None and ask.revision == present.revision
                    conflict = same and present is not None and (
                        present.gone or replace(present.content, multipliers=known.target.multipliers) != known.target
                    )  # fmt: skip
                    if not conflict:
                        plain.settle(known.deployment, ask.revision, known.target)
                        plain.close(known, HoldState.COMMITTED)
            case Verb.ADJUST:
                if ask.target is None:
                    absent.discard(ask.deployment)
                elif ask.deployment in absent:
                    continue
                plain.settle(ask.deployment, ask.revision, ask.target)
    return refused


_KINDS = ("reserve", "reserve", "reserve instead", "commit", "commit", "release", "adjust", "fact", "fact", "wait")
plain_steps = st.builds(Step, st.sampled_from(_KINDS), deployments, contents, st.integers(0, 9))


@given(st.lists(plain_steps, min_size=4, max_size=24), limit_tables, limit_tables)
def test_under_other_limits_it_comes_to_what_adding_up_by_hand_does(
    history: list[Step], table: Limits, tried: Limits
) -> None:
    log = Log(Tenant(table, policy=NO_BILLING))
    begin = log.state()
    for step in history:
        log.step(step)
    proposal = Proposal({place: {d: Declared(v.value) for d, v in of.items()} for place, of in tried.items()})
    report = replayed(begin, log, proposal).report

    values = {place: {d: v.value for d, v in of.items()} for place, of in table.items()}
    for place, of in tried.items():
        values[place] = {**values.get(place, {}), **{d: v.value for d, v in of.items()}}
    refused = plainly(Plain(values), log.in_order())

    reserves = [e for e in log.in_order() if isinstance(e, Recorded) and e.ask.verb is Verb.RESERVE]
    then = {each.ask.request_id for each in reserves if not each.allowed}
    assert not report.differs
    assert {each.recorded.ask.request_id for each in report.refusals} == refused - then
    assert {each.recorded.ask.request_id for each in report.admissions} == then - refused
    assert (report.newly_refused, report.newly_allowed) == (len(report.refusals), len(report.admissions))
    assert all(covers(TENANT, each.recorded.ask.target or content()) for each in report.refusals)


def tried(**values: int | None) -> Proposal:
    """Limits of the tenant."""
    return Proposal({TENANT: {Dimension(name): Declared(value) for name, value in values.items()}})


def story(**had: int) -> tuple[Log, tuple[TenantState, dict[str, Hold]]]:
    log = Log(Tenant({TENANT: limits(**had)}))
    return log, log.state()


def test_a_lower_limit_names_whom_it_would_have_refused_and_by_how_much() -> None:
    log, begin = story(cpu=10)
    log.ask(reserve("a", "d1", content(BLOG, cpu=3)))
    log.ask(reserve("b", "d2", content(PROD, cpu=4)))
    log.ask(reserve("c", "d3", content(cpu=9)))
    report = replayed(begin, log, tried(cpu=5)).report
    assert (report.replayed, report.refused_then, report.refused_proposed, report.newly_refused) == (3, 1, 2, 1)
    (found,) = report.refusals
    assert (found.recorded.ask.request_id, found.place, found.deployment) == ("b", PROD, "d2")
    assert (found.code, found.violations[0].asked, found.violations[0].headroom) == (codes.CPU_EXCEEDED.code, 4, 2)


def test_what_would_have_been_refused_would_not_have_run() -> None:
    log, begin = story()
    log.ask(reserve("a", "d1", content(cpu=6)))
    log.ask(commit("b", "a"))
    log.tell("d1", 5, content(cpu=7))
    log.ask(adjust("c", "d1", content(cpu=8), 6))
    log.ask(reserve("e", "d2", content(cpu=4)))
    report = replayed(begin, log, tried(cpu=5)).report
    assert [each.recorded.ask.request_id for each in report.refusals] == ["a"], "there was room for e without a"
    assert report.left_out == 3
    log.tell("d1", 9, None)
    log.tell("d1", 10, content(cpu=3))  # a new life
    log.ask(reserve("f", "d3", content(cpu=1)))
    assert [each.recorded.ask.request_id for each in replayed(begin, log, tried(cpu=5)).report.refusals] == ["a", "f"]


def test_what_is_gone_keeps_its_revision_in_a_replay_too() -> None:
    for early in (True, False):
        log, begin = story(cpu=5)
        log.tell("d1", 5, content(cpu=4))
        log.tell("d1", 6, None)
        if early:
            log = log.since_now()
            begin = log.state()
        log.ask(adjust("a", "d1", content(cpu=4), 3))  # too old to count
        log.ask(reserve("b", "d2", content(cpu=3)))
        assert not replayed(begin, log).report.differs


def test_a_higher_limit_lets_in_and_whoever_asks_again_is_not_refused_for_it() -> None:
    log, begin = story(cpu=5)
    log.ask(reserve("a", "d1", content(cpu=6)))
    log.ask(reserve("b", "d1", content(cpu=4)))
    report = replayed(begin, log, tried(cpu=8)).report
    assert [each.recorded.ask.request_id for each in report.admissions] == ["a"]
    assert report.newly_refused == 0
    assert replayed(begin, log, tried(cpu=None)).report.newly_allowed == 1


def test_limits_that_moved_meanwhile_are_followed_but_for_those_proposed() -> None:
    log, begin = story(cpu=5)
    log.relimit(TENANT, Dimension.CPU, limit(9))
    log.ask(reserve("a", "d1", content(cpu=8, vapps=2)))
    log.relimit(TENANT, Dimension.VAPPS, limit(2))
    log.ask(reserve("b", "d2", content(vapps=1)))
    assert not replayed(begin, log).report.differs
    report = replayed(begin, log, tried(cpu=6)).report
    assert [each.recorded.ask.request_id for each in report.refusals] == ["a"]
    assert [each.recorded.ask.request_id for each in report.admissions] == ["b"], "a was not there any more"


def test_defaults_are_proposed_too_and_hold_where_nothing_else_is_said() -> None:
    log, begin = story(memory=5)
    log.ask(reserve("a", "d1", content(cpu=6)))
    log.ask(reserve("b", "d2", content(memory=4)))
    defaults = Proposal(defaults={Dimension.CPU: Declared(5), Dimension.MEMORY: Declared(1)})
    assert [each.recorded.ask.request_id for each in replayed(begin, log, defaults).report.refusals] == ["a"]
    moved = Relimited(TENANT, Dimension.CPU, limit(3), NOW + timedelta(seconds=-1), None)
    log.relimited = [moved]
    assert replayed(begin, log).report.differs == {"unexplained": 1}


def test_what_gates_and_nodes_refused_stays_refused_and_another_plan_is_said() -> None:
    log, begin = story(cpu=5)
    ask = reserve("a", "d1", content(cpu=9))
    log.events = [Recorded(ask, NOW, 1, allowed=False, code=codes.POOL_FULL.code)]
    report = replayed(begin, log, tried(cpu=99)).report
    assert (report.not_replayed, report.refused_then, report.refused_proposed, report.newly_allowed) == (1, 1, 1, 0)
    log.events = [Recorded(ask, NOW, 1, allowed=True, entitlement_version=3)]
    report = replayed(begin, log, tried(cpu=99)).report
    assert (report.differs, report.newly_refused) == ({"the plan was another": 1}, 0)


def test_what_would_be_over_now() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    tenant.run("d1", content(BLOG, cpu=6))
    tenant.ask(reserve("h", "d2", content(BLOG, cpu=3)))
    found = over_now(tenant.state, tried(cpu=5), NOW, NO_BILLING)
    reserved, burst = found
    assert (reserved.place, reserved.ceiling, reserved.used, reserved.held, -reserved.headroom) == (TENANT, 5, 6, 3, 4)
    assert (burst.info.basis, burst.ceiling, -burst.headroom) == (Basis.BURST, 7, 2)
    assert over_now(tenant.state, NOTHING_ELSE, NOW, NO_BILLING) == []
    assert tenant.state.tenant == ACME
    assert Report().replayed == 0
