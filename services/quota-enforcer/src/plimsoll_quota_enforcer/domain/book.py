"""How does a tenant's state move: the one place that writes charges, holds and usage while a batch is decided."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, SettleOutcome
from plimsoll_contracts.quantities import MAX_AMOUNT
from plimsoll_contracts.versions import Standing
from plimsoll_quota_enforcer.domain import placing
from plimsoll_quota_enforcer.domain.limits import ceiling, resolve
from plimsoll_quota_enforcer.domain.model import (
    GAUGE_INFO,
    GAUGES,
    TENANT,
    Charge,
    Content,
    Footprint,
    Hold,
    Measured,
    Node,
    NodeShare,
    Place,
)
from plimsoll_quota_enforcer.domain.shares import Share, share_of
from plimsoll_quota_enforcer.domain.state import (
    OVER,
    Change,
    ChangeKind,
    Crossing,
    Decision,
    Edge,
    Outcome,
    OverKey,
    Policy,
    Resolved,
    Settlement,
    TenantState,
)
from plimsoll_quota_enforcer.domain.tally import INT64_MAX


class Book:
    """One tenant's state while a batch is decided: a copy that is written, and a record of what was."""

    def __init__(
        self, state: TenantState, now: datetime, policy: Policy, nodes: Mapping[str, Node] | None = None
    ) -> None:
        """Branch the state; what was given is never changed. ``nodes`` are those that may be needed, all locked."""
        self.state = state
        self.now = now
        self.policy = policy
        self.seq = state.seq
        self.charges = dict(state.charges)
        self.holds = dict(state.holds)
        self.open_holds = dict(state.open_holds)
        self.tally = state.tally.branch()
        self.over = dict(state.over)
        self.next_expiry = state.next_expiry
        self.measured = state.measured
        self.waiters = list(state.waiters)
        self.woken: list[Decision] = []
        self.nodes: dict[str, Node] = dict(nodes) if nodes else {}
        self.request_id = ""
        """The request at work, which history names as the cause."""
        self._moved_nodes: dict[str, placing.Room] = {}
        self._scans: set[Place] = set()
        self._measured: set[Place] = set()
        self._limits: dict[Place, Mapping[Dimension, Resolved]] = {}
        self._changes: list[Change] = []
        self._charges: set[str] = set()
        self._holds: set[str] = set()

    def share(self, deployment: str) -> Share:
        """Return what a deployment counts with now: its own charge, or the group that an open hold binds it to."""
        hold = self.open_holds.get(deployment)
        if hold is None:
            return Share(self.charges.get(deployment), None)
        return share_of(self.holds[hold], self.charges)

    def shares(self, deployments: Sequence[str]) -> list[Share]:
        """Return what these count with now, each group once."""
        if len(deployments) == 1:
            return [self.share(deployments[0])]
        found: dict[str, Share] = {}
        for deployment in deployments:
            found.setdefault(self.open_holds.get(deployment) or f" {deployment}", self.share(deployment))
        return list(found.values())

    def open_hold(self, hold: Hold) -> None:
        """Let a hold begin; the open ones that its deployments were in must have been closed."""
        before = self.shares(hold.members)
        self.holds[hold.id] = hold
        for member in hold.members:
            self.open_holds[member] = hold.id
        if self.next_expiry is None or hold.expires_at < self.next_expiry:
            self.next_expiry = hold.expires_at
        self._move(before, [self.share(hold.deployment)])
        self._holds.add(hold.id)
        self._record(ChangeKind.HOLD_OPENED, hold.deployment, hold.target, hold=hold, hold_state=HoldState.OPEN)

    def close_hold(self, hold: Hold, state: HoldState, settlement: Settlement | None = None) -> Hold:
        """End a hold, open or expired, and keep what its commit came to."""
        if hold.state is HoldState.OPEN:
            before = self.shares(hold.members)
            for member in hold.members:
                del self.open_holds[member]
            self._move(before, self.shares(hold.members))
        closed = replace(hold, state=state)
        if settlement is not None:
            closed = replace(closed, settled_revision=settlement.revision, settled_outcome=settlement.outcome)
        self.holds[hold.id] = closed
        self._holds.add(hold.id)
        self._record(ChangeKind.HOLD_CLOSED, hold.deployment, hold.target, hold=hold, hold_state=state)
        return closed

    def _move(self, before: Sequence[Share], after: Sequence[Share]) -> None:
        """Count these shares instead of those, at every scope and on every node."""
        self.tally.replace(before, after)
        for name, (cpu, memory) in placing.moved(before, after).items():
            if name not in self.nodes:
                raise LookupError(f"node {name} is not locked")
            self.nodes[name] = self.nodes[name].allocating(cpu, memory)
            have = self._moved_nodes.get(name, (0, 0))
            self._moved_nodes[name] = (have[0] + cpu, have[1] + memory)

    def settle(
        self,
        deployment: str,
        revision: int | None,
        content: Content,
        *,
        gone: bool = False,
        nodes: tuple[NodeShare, ...] | None = None,
    ) -> Settlement:
        """Set a deployment's charge, if the revision is newer (DESIGN 5.2).

        A revision of None is the present one + 1. An equal revision is unchanged with the same content, and kept
        out as a conflict with any other. What would overflow is kept out too. Where nothing is said of nodes, what the
        deployment has there stays.
        """
        present = self.charges.get(deployment)
        if revision is None:
            revision = present.revision + 1 if present is not None else 1
        if present is not None and revision <= present.revision:
            return _not_newer(present, revision, content, gone=gone)
        if (code := _unsettleable(revision, content, nodes if not gone else None)) is not None:
            return Settlement(deployment, present.revision if present is not None else 0, None, code)
        if gone and present is not None:
            content = present.content
        elif nodes is not None:
            content = replace(content, nodes=nodes)
        elif present is not None and not content.nodes and not present.gone:
            content = with_nodes_of(present, content)
        before = [self.share(deployment)]
        leaf = present.content.place if present is not None else content.place
        had = self.tally.settled_disk(leaf)
        self.charges[deployment] = Charge(deployment, revision, content, gone, self.seq + 1)
        after = [self.share(deployment)]
        if not gone and not self.fits_in_64_bits(before, after, content):
            if present is None:
                del self.charges[deployment]
            else:
                self.charges[deployment] = present
            return Settlement(deployment, revision, None, codes.AMOUNT_OVERFLOW)
        self._record(ChangeKind.SETTLED, deployment, content, revision=revision, gone=gone)
        self._move(before, after)
        self._charges.add(deployment)
        if self.tally.settled_disk(leaf) < had:
            self._scans.add(leaf)
        return Settlement(deployment, revision, SettleOutcome.SETTLED)

    def _fit_on_nodes(self, moved: Mapping[str, placing.Room]) -> bool:
        known = ((self.nodes.get(name) or Node(name), room) for name, room in moved.items())
        return all(max(node.allocating(*room).allocated) <= INT64_MAX for node, room in known)

    def fits_in_64_bits(self, before: Sequence[Share], after: Sequence[Share], content: Content) -> bool:
        """Tell whether every figure stays an int64 with these shares instead of those; the tenant's are largest."""
        if content.nodes and not self._fit_on_nodes(placing.moved(before, after)):
            return False
        total = self.tally.totals(TENANT)
        if max(total) + max(content.footprint.charged(content.multipliers)) <= INT64_MAX:
            return True  # even on top of all there is, which is cheaper to know than the difference
        rise = self.tally.rise(before, after).get(TENANT, ())
        return all(have + more <= INT64_MAX for have, more in zip(total, rise, strict=False))

    def measure(self, place: Place, measured: Measured) -> Standing:
        """Take in what a scope was found to have on disk; an incomplete measurement never lowers it (rule 9)."""
        known = self.measured.get(place)
        if known is not None and measured.order <= known.order:
            return Standing.REPEATED if measured == known else Standing.STALE
        if known is not None and not measured.complete and measured.bytes < known.bytes:
            return Standing.STALE
        self.measured = {**self.measured, place: measured}
        self._measured.add(place)
        self.tally.measure(place, measured.bytes)
        self._record(ChangeKind.MEASURED, "", Content(place, "", Footprint(disk=measured.bytes)))
        return Standing.APPLIED

    def expire_holds(self) -> None:
        """Close every hold whose time has passed (DESIGN 5.3 rule 1)."""
        if self.next_expiry is None or self.next_expiry > self.now:
            return
        still_open = sorted(
            (self.holds[id_] for id_ in set(self.open_holds.values())), key=lambda hold: (hold.expires_at, hold.id)
        )
        self.next_expiry = next((hold.expires_at for hold in still_open if hold.expires_at > self.now), None)
        for hold in still_open:
            if hold.expires_at <= self.now:
                self.close_hold(hold, HoldState.EXPIRED)

    def is_over(self, places: Iterable[Place]) -> bool:
        """Tell whether any of these places is over a limit now."""
        return any(key[2] == OVER for place in places for key, _, _ in self._reached(place))

    def limits(self, place: Place) -> Mapping[Dimension, Resolved]:
        """Return the limits that hold at a place; they do not change while a book is open."""
        found = self._limits.get(place)
        if found is None:
            found = self._limits[place] = resolve(self.state, place, self.now)
        return found

    def _reached(self, place: Place) -> Iterable[tuple[OverKey, int, int]]:
        """Yield each limit that is exceeded and each threshold that is reached here, with ceiling and usage."""
        limits, total = self.limits(place), self.tally.totals(place)
        if not limits or not any(total):
            return  # nothing is never over a limit
        for info in GAUGES:
            have = total[info.gauge]
            if not have or (resolved := limits.get(info.dimension)) is None:
                continue
            top = ceiling(resolved, info, self.policy.multipliers)
            if top is None:
                continue
            if have > top:
                yield (place, info.gauge, OVER), top, have
            for threshold in self.policy.thresholds:
                if threshold.reached(info.dimension, have, top):
                    yield (place, info.gauge, threshold.name), top, have

    def cross(self, places: Iterable[Place], cause: str) -> tuple[Crossing, ...]:
        """Tell each limit and threshold that was crossed here, once, in either direction (DESIGN 5.3 rule 11)."""
        crossings: list[Crossing] = []
        for place in sorted(places):
            reached = {key: (top, usage) for key, top, usage in self._reached(place)}
            if not reached and not self.over:
                continue
            for key in [key for key in reached if key not in self.over]:
                self.over[key] = self.now
                info = GAUGE_INFO[key[1]]
                crossings.append(Crossing(place, info, Edge.STARTED, *reached[key], self.now, cause, key[2]))
            for key in [key for key in self.over if key[0] == place and key not in reached]:
                info = GAUGE_INFO[key[1]]
                top = ceiling(self.limits(place).get(info.dimension), info, self.policy.multipliers)
                usage = self.tally.totals(place)[info.gauge]
                crossings.append(Crossing(place, info, Edge.ENDED, top, usage, self.over.pop(key), cause, key[2]))
        if crossings and self.seq == self.state.seq:
            self.seq += 1  # what is told is state too: a state without it must not be taken for this one
        return tuple(replace(crossing, seq=self.seq) for crossing in crossings)

    def finish(
        self,
        cause: str,
        *,
        decisions: Iterable[Decision] = (),
        settlements: Iterable[Settlement] = (),
        also: Iterable[Place] = (),
    ) -> Outcome:
        """Close the book: the state after it, and what of it is new. ``also`` names places whose limits moved."""
        places = {*self.tally.changed, *also}
        if self.seq != self.state.seq:
            places.add(TENANT)  # the storage notes whoever moved as judged by the present global defaults
        crossings = self.cross(places, cause)
        before = self.state
        state = TenantState(
            before.tenant,
            self.seq,
            self.charges,
            self.holds,
            self.open_holds,
            self.tally,
            before.limits,
            before.defaults,
            before.entitlement,
            self.over,
            self.next_expiry,
            before.decisions,
            self.measured,
            tuple(self.waiters),
        )
        return Outcome(
            state,
            tuple(decisions),
            tuple(settlements),
            tuple(self._changes),
            frozenset(self._charges),
            frozenset(self._holds),
            self.tally.changed,
            crossings,
            tuple(self.woken),
            frozenset(self._scans),
            frozenset(self._measured),
            self._moved_nodes,
        )

    def _record(
        self,
        kind: ChangeKind,
        deployment: str,
        content: Content,
        *,
        hold: Hold | None = None,
        hold_state: HoldState | None = None,
        revision: int | None = None,
        gone: bool = False,
    ) -> None:
        """Take the next sequence number for one step of history."""
        self.seq += 1
        named = (hold.id, hold.replaces, hold.surge) if hold is not None else ("", (), False)
        self._changes.append(
            Change(
                self.seq,
                kind,
                deployment,
                content,
                named[0],
                hold_state,
                revision,
                gone,
                named[1],
                named[2],
                self.request_id,
            )
        )


def with_nodes_of(charge: Charge, content: Content) -> Content:
    """Leave a deployment on its nodes, where nothing is said of them; what reserves nothing any more is on none."""
    footprint = content.footprint
    nodes = charge.content.nodes if footprint.cpu_reserved or footprint.memory_reserved else ()
    return replace(content, nodes=nodes) if nodes else content


def _unsettleable(revision: int, content: Content, nodes: tuple[NodeShare, ...] | None) -> Code | None:
    """Say why a settle is kept out for what it says of itself."""
    if revision > MAX_AMOUNT:
        return codes.REVISIONS_SPENT
    cpu, memory = sum(share[1] for share in nodes or ()), sum(share[2] for share in nodes or ())
    if cpu > content.footprint.cpu_reserved or memory > content.footprint.memory_reserved:
        return codes.MORE_ON_NODES
    return None


def _not_newer(present: Charge, revision: int, content: Content, *, gone: bool) -> Settlement:
    """Answer a settle that changes nothing. Multipliers and nodes are not part of what was told."""
    if revision < present.revision:
        return Settlement(present.deployment, present.revision, SettleOutcome.STALE)
    stored = present.content
    same = (stored.place, stored.app, stored.footprint) == (content.place, content.app, content.footprint)
    if present.gone == gone and (gone or same):
        return Settlement(present.deployment, revision, SettleOutcome.UNCHANGED)
    return Settlement(present.deployment, revision, None, codes.REVISION_CONFLICT)
