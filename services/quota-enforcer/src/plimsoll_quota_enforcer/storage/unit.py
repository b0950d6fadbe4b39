"""What does one transaction load, change and save: the states of its tenants, under their guards."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from plimsoll_contracts.enforcement import HoldState
from plimsoll_quota_enforcer import answers, metrics
from plimsoll_quota_enforcer.domain import placing
from plimsoll_quota_enforcer.domain.model import Ask, Fact, Node, Place, Waiter, chain
from plimsoll_quota_enforcer.domain.state import OVER, Change, Crossing, Decision, Edge, Outcome, Policy, TenantState
from plimsoll_quota_enforcer.domain.values import value
from plimsoll_quota_enforcer.storage import loading, rows
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.queries import QUERIES, by_literals
from plimsoll_streams.dispatch import Transaction
from plimsoll_streams.records import OutboxMessage, Reply
from plimsoll_streams.statements import Statements
from plimsoll_streams.transactions import Connection

Emit = Callable[[OutboxMessage], None]


@dataclass(slots=True)
class _Written:
    """What the outcomes so far have written of one tenant."""

    changes: list[Change] = field(default_factory=list)
    charges: set[str] = field(default_factory=set)
    holds: set[str] = field(default_factory=set)
    places: set[Place] = field(default_factory=set)
    measured: set[Place] = field(default_factory=set)
    scans: set[Place] = field(default_factory=set)
    crossings: list[Crossing] = field(default_factory=list)


@value
class Kept:
    """A decision to be stored: with its request as it came and its reply as it goes."""

    decision: Decision
    request: str
    reply: str


class Unit:
    """The tenants of one transaction. Nothing of it is seen outside before ``committed``."""

    def __init__(
        self,
        connection: Connection,
        cache: StateCache,
        policy: Policy,
        *,
        now: datetime,
        states: dict[str, TenantState],
        nodes: dict[str, Node],
        defaults_version: int,
        instance: str,
    ) -> None:
        """Take what ``open_unit`` has locked and loaded."""
        self.connection = connection
        self.policy = policy
        self.now = now
        self.defaults_version = defaults_version
        self._instance = instance
        self._cache = cache
        self.nodes = nodes
        """Every node that this transaction may need, locked, as the batch has left it so far."""
        self._states = states
        self._waiters = {tenant: state.waiters for tenant, state in states.items()}
        self._written_nodes: set[str] = set()
        self._seqs = {tenant: state.seq for tenant, state in states.items()}
        self._written: dict[str, _Written] = {}
        self._recalled: dict[str, set[str]] = {}
        self._kept: list[Kept] = []
        self._woken: list[Decision] = []
        self._snapshots: dict[str, str] = {}
        self._judged: set[str] = set()
        self._nobodies: Collection[str] = ()
        self._fail_opens: Counter[str] = Counter()

    @property
    def tenants(self) -> Iterable[str]:
        """Every tenant whose guard this unit has."""
        return self._states.keys()

    def state(self, tenant: str) -> TenantState:
        """Return a tenant's state as the batch has left it so far."""
        return self._states[tenant]

    def note_nobodies(self, tenants: Collection[str]) -> None:
        """Note tenants without a guard row, of whom nothing is written."""
        self._nobodies = tenants

    def note_recalled(self, recalled: Mapping[str, set[str]]) -> None:
        """Note which tombstones were brought up for this batch only."""
        self._recalled = dict(recalled)

    def absorb(self, outcome: Outcome) -> None:
        """Take over what was decided about one tenant."""
        tenant = outcome.state.tenant
        self._states[tenant] = outcome.state
        written = self._written.setdefault(tenant, _Written())
        written.changes.extend(outcome.changes)
        written.charges |= outcome.charges
        written.holds |= outcome.holds
        written.places |= outcome.places
        written.measured |= outcome.measured
        written.scans |= outcome.scans
        written.crossings.extend(outcome.crossings)
        for name, moved in outcome.nodes.items():
            self.set_node(name, self.nodes[name].allocating(*moved))
        self._woken.extend(outcome.woken)

    def set_node(self, name: str, node: Node) -> None:
        """Take over what became of a node."""
        self.nodes[name] = node
        self._written_nodes.add(name)

    def keep(self, decision: Decision, request: str, reply: str) -> None:
        """Store a decision, so that a repeat of its request gets the same answer."""
        self._kept.append(Kept(decision, request, reply))

    def keep_snapshot(self, tenant: str, snapshot: str) -> None:
        """Store the snapshot that the tenant's entitlement was read from."""
        self._snapshots[tenant] = snapshot

    def count_fail_opens(self, decisions: Iterable[Decision]) -> None:
        """Count gates that failed open, in the transaction that lets the requests through."""
        self._fail_opens.update(str(gate) for decision in decisions for gate in answers.failed_open(decision))

    def judged_by_present_defaults(self, tenant: str) -> None:
        """Note that crossings of the present global defaults were told for a tenant."""
        self._judged.add(tenant)

    async def save(self, tx: Transaction) -> None:
        """Write everything together with the other last acts of a batch's transaction."""
        self._write(tx.statements, tx.emit, tx.reply)

    async def write(self, emit: Emit, reply: Callable[[Reply], None] | None = None) -> None:
        """Write everything in one statement, and tell what was crossed and who need not wait any more.

        Args:
            emit: publishes with the transaction.
            reply: answers after the commit; needed where waiters may be woken.
        """
        statements = Statements()
        self._write(statements, emit, reply)
        await statements.run(self.connection)

    def _write(self, statements: Statements, emit: Emit, reply: Callable[[Reply], None] | None) -> None:
        self.count_fail_opens(self._woken)
        for decision in self._woken:
            self._tell_woken(decision, emit, reply)
        written = {tenant: w for tenant, w in self._written.items() if w.changes or w.crossings or w.places}
        for name, cells, *rest in self._parts(written):
            if cells:
                statements.add(by_literals(name), *rows.literals(cells), *rest)
        for tenant, w in written.items():
            for crossing in w.crossings:
                emit(answers.crossing_message(tenant, crossing, self.now))
            for place in sorted({each for leaf in w.scans for each in chain(leaf)}):
                emit(answers.scan_message(tenant, place, w.changes[-1].seq, self.now))

    def _tell_woken(self, decision: Decision, emit: Emit, reply: Callable[[Reply], None] | None) -> None:
        patience = decision.ask.patience
        if patience is None or reply is None:
            raise LookupError(f"{decision.ask.request_id} cannot be answered")
        body = answers.told(decision, self.now)
        self.keep(decision, patience.body, body)
        reply(answers.addressed(patience.reply_to, decision.ask.tenant.encode(), body))
        emit(answers.decision_message(decision, body, answers.wrapping("quota.decision.v1", self.now)))

    def _parts(self, written: Mapping[str, _Written]) -> Iterable[tuple[Any, ...]]:
        """Yield each statement with its rows and its further arguments."""
        now, day = self.now, self.now.date()
        states = self._states
        # Every change counts at the tenant itself, where the defaults apply: whoever moved is judged by them too.
        yield (
            "save_tenants",
            [
                (tenant, state.seq, self.defaults_version)
                for tenant, state in states.items()
                if state.seq != self._seqs[tenant] or tenant in self._judged
            ],
        )
        charges = [(tenant, states[tenant].charges[name]) for tenant, w in written.items() for name in w.charges]
        yield "save_charges", [rows.charge_cells(*each) for each in charges], now
        holds = [(tenant, states[tenant].holds[id_]) for tenant, w in written.items() for id_ in w.holds]
        holds.sort(key=lambda each: each[1].state is HoldState.OPEN)
        yield "save_holds", [rows.hold_cells(*each) for each in holds], now
        yield (
            "save_changes",
            [rows.change_cells(tenant, c) for tenant, w in written.items() for c in w.changes],
            now,
            day,
        )
        places = [(tenant, place) for tenant, w in written.items() for place in w.places]
        yield "save_usage", [rows.usage_cells(t, place, states[t].tally.usage(place)) for t, place in places], now
        # Requests may end what facts of the same transaction begin again: the last edge is what holds.
        last = {(tenant, *c.place, c.info.gauge, c.threshold): c for tenant, w in written.items() for c in w.crossings}
        yield "save_over_limits", [(*key, c.since) for key, c in last.items() if c.edge is Edge.STARTED]
        yield "forget_over_limits", [key for key, c in last.items() if c.edge is Edge.ENDED]
        found = [(tenant, place) for tenant, w in written.items() for place in w.measured]
        yield "save_measured", [rows.measured_cells(t, place, states[t].measured[place]) for t, place in found]
        yield "save_nodes", [rows.node_cells(self.nodes[name]) for name in sorted(self._written_nodes)], now
        yield from self._waiting()
        yield "save_fail_opens", [(self._instance, gate, total) for gate, total in self._fail_opens.items()]
        yield "save_entitlements", [self._entitlement_cells(*each) for each in self._snapshots.items()], now
        yield "save_decisions", [_decision_cells(kept) for kept in self._kept], self.defaults_version, now, day

    def _waiting(self) -> Iterable[tuple[Any, ...]]:
        """Yield who waits from now on, or waits differently, and who waits no more."""
        come: list[tuple[object, ...]] = []
        gone: list[tuple[object, ...]] = []
        for tenant, before in self._waiters.items():
            state = self._states[tenant]
            if state.waiters is before or state.waiters == before:
                continue
            waited, waiting = _by_id(before), _by_id(state.waiters)
            come.extend(rows.waiter_cells(tenant, each) for id_, each in waiting.items() if waited.get(id_) != each)
            gone.extend((tenant, id_) for id_ in waited if id_ not in waiting)
        yield "save_waiters", come, self.now
        yield "forget_waiters", gone

    def _entitlement_cells(self, tenant: str, snapshot: str) -> tuple[object, ...]:
        entitlement = self._states[tenant].entitlement
        if entitlement is None:
            raise LookupError(f"{tenant} has no entitlement to write")
        return rows.entitlement_cells(tenant, entitlement, snapshot)

    def committed(self) -> None:
        """Let the cache have the new states, which are what the database has now, and count what was crossed."""
        for tenant, state in self._states.items():
            if tenant in self._nobodies:
                continue  # what is cached is taken to have its guard row
            settled = self._written[tenant].charges if tenant in self._written else set()
            self._cache.put(loading.without_recalled(state, settled | self._recalled.get(tenant, set())))
        for written in self._written.values():
            for crossing in written.crossings:
                if crossing.threshold == OVER:
                    metrics.crossings.inc(edge=crossing.edge)
        metrics.count_decisions(self._woken)
        metrics.count(metrics.waits, ["allowed" if each.allowed else "denied" for each in self._woken])


def _by_id(waiters: Iterable[Waiter]) -> Mapping[str, Waiter]:
    return {each.ask.request_id: each for each in waiters}


def _decision_cells(kept: Kept) -> tuple[object, ...]:
    decision = kept.decision
    opened = decision.hold.id if decision.hold is not None else None
    return (
        decision.ask.tenant,
        decision.ask.request_id,
        decision.ask.verb,
        decision.ask.fingerprint,
        kept.request,
        kept.reply,
        opened,
        decision.allowed,
        decision.code.code if decision.code is not None else None,
        rows.array(answers.failed_open(decision)),
        decision.seq,
        decision.entitlement_version,
    )


@dataclass(frozen=True, slots=True)
class Wants:
    """What a transaction is about to work on, besides its tenants."""

    asks: Sequence[Ask] = ()
    facts: Sequence[Fact] = ()
    nodes: Sequence[str] = ()
    """Nodes that are reported."""
    only_asked: Collection[str] = ()
    """Tenants about whom only a question is asked: a name that nobody knows does not become a tenant by that."""


async def open_unit(
    connection: Connection,
    tenants: Sequence[str],
    cache: StateCache,
    policy: Policy,
    wants: Wants = Wants(),
    *,
    idle: bool = False,
    instance: str = "",
) -> Unit:
    """Lock the guards of these tenants in order, take the clock after them, load what the cache lacks, lock nodes.

    Args:
        connection: inside the transaction.
        tenants: whose guards to take, in any order.
        cache: states of earlier batches.
        policy: the platform's.
        wants: what the tenants' states and the nodes are needed for.
        idle: whether guards that somebody has are passed over, as the sweep does.
        instance: which replica this is: gates that fail open are counted for it.
    """
    unknown = [tenant for tenant in tenants if not cache.knows(tenant) and tenant not in wants.only_asked]
    if unknown:
        await connection.execute(QUERIES["open_tenants"], unknown)
    locked = await loading.lock(connection, tenants, wants.asks, policy.window + policy.clock_skew, idle=idle)
    if locked.defaults_version != cache.defaults_version:
        cache.defaults = await loading.load_defaults(connection)
        cache.defaults_version = locked.defaults_version
    states: dict[str, TenantState] = {}
    stale: dict[str, int] = {}
    for tenant, seq in locked.seqs.items():
        state = cache.get(tenant, seq)
        if state is None:
            stale[tenant] = seq
        else:
            states[tenant] = loading.with_defaults(state, cache.defaults)
    nobodies = frozenset(wants.only_asked) - states.keys() - stale.keys()
    stale |= dict.fromkeys(nobodies, 0)
    if stale:
        states.update(await loading.load(connection, stale, cache.defaults, policy))
    recalled: dict[str, set[str]] = {}
    if wants.asks or wants.facts:
        named = loading.named_by(wants.asks, wants.facts, states)
        for tenant, state in (await loading.recall(connection, named, locked.decisions, states)).items():
            recalled[tenant] = state.charges.keys() - states[tenant].charges.keys()
            states[tenant] = state
    nodes = await loading.lock_nodes(
        connection, placing.needed(states, wants.asks, wants.facts, locked.now), wants.nodes
    )
    unit = Unit(
        connection,
        cache,
        policy,
        now=locked.now,
        states=states,
        nodes=nodes,
        defaults_version=locked.defaults_version,
        instance=instance,
    )
    unit.note_recalled(recalled)
    unit.note_nobodies(nobodies)
    return unit
