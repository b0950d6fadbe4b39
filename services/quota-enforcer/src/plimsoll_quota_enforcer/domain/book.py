"""How does a tenant's state move: the one place that writes charges, holds and usage while a batch is decided."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, SettleOutcome
from plimsoll_quota_enforcer.domain.limits import ceiling, resolve
from plimsoll_quota_enforcer.domain.model import GAUGES, TENANT, Charge, Content, Hold, Place
from plimsoll_quota_enforcer.domain.state import (
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
from plimsoll_quota_enforcer.domain.tally import Share

INT64_MAX = 2**63 - 1


class Book:
    """One tenant's state while a batch is decided: a copy that is written, and a record of what was."""

    def __init__(self, state: TenantState, now: datetime, policy: Policy) -> None:
        """Branch the state; the one that was given is never changed."""
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
        self._limits: dict[Place, Mapping[Dimension, Resolved]] = {}
        self._changes: list[Change] = []
        self._charges: set[str] = set()
        self._holds: set[str] = set()

    def share(self, deployment: str) -> Share:
        """Return what one deployment has now."""
        hold = self.open_holds.get(deployment)
        return Share(self.charges.get(deployment), self.holds[hold] if hold is not None else None)

    def open_hold(self, hold: Hold) -> None:
        """Let a hold begin; the deployment's open one, if any, must have been closed."""
        before = self.share(hold.deployment)
        self.holds[hold.id] = hold
        self.open_holds[hold.deployment] = hold.id
        if self.next_expiry is None or hold.expires_at < self.next_expiry:
            self.next_expiry = hold.expires_at
        self.tally.replace(before, Share(before.charge, hold))
        self._holds.add(hold.id)
        self._record(ChangeKind.HOLD_OPENED, hold.deployment, hold.target, hold=hold.id, hold_state=HoldState.OPEN)

    def close_hold(self, hold: Hold, state: HoldState, settlement: Settlement | None = None) -> Hold:
        """End a hold, open or expired, and keep what its commit came to."""
        if hold.state is HoldState.OPEN:
            before = self.share(hold.deployment)
            del self.open_holds[hold.deployment]
            self.tally.replace(before, Share(before.charge, None))
        closed = replace(hold, state=state)
        if settlement is not None:
            closed = replace(closed, settled_revision=settlement.revision, settled_outcome=settlement.outcome)
        self.holds[hold.id] = closed
        self._holds.add(hold.id)
        self._record(ChangeKind.HOLD_CLOSED, hold.deployment, hold.target, hold=hold.id, hold_state=state)
        return closed

    def settle(self, deployment: str, revision: int | None, content: Content, *, gone: bool = False) -> Settlement:
        """Set a deployment's charge, if the revision is newer (DESIGN 5.2).

        A revision of None is the present one + 1. An equal revision is unchanged with the same content, and kept
        out as a conflict with any other. What would overflow is kept out too.
        """
        present = self.charges.get(deployment)
        if revision is None:
            revision = present.revision + 1 if present is not None else 1
        if present is not None and revision <= present.revision:
            if revision < present.revision:
                return Settlement(deployment, present.revision, SettleOutcome.STALE)
            if present.gone == gone and (gone or _same(present.content, content)):
                return Settlement(deployment, revision, SettleOutcome.UNCHANGED)
            return Settlement(deployment, revision, None, codes.REVISION_CONFLICT)
        if gone and present is not None:
            content = present.content
        before = self.share(deployment)
        charge = Charge(deployment, revision, content, gone, self.seq + 1)
        if not gone and not self.fits_in_64_bits(before, Share(charge, before.hold), content):
            return Settlement(deployment, revision, None, codes.AMOUNT_OVERFLOW)
        self._record(ChangeKind.SETTLED, deployment, content, revision=revision, gone=gone)
        self.charges[deployment] = charge
        self.tally.replace(before, Share(charge, before.hold))
        self._charges.add(deployment)
        return Settlement(deployment, revision, SettleOutcome.SETTLED)

    def fits_in_64_bits(self, before: Share, after: Share, content: Content) -> bool:
        """Tell whether every figure stays an int64 with one share instead of the other; the tenant's are largest."""
        total = self.tally.totals(TENANT)
        if max(total) + max(content.footprint.charged(content.multipliers)) <= INT64_MAX:
            return True  # even on top of all there is, which is cheaper to know than the difference
        rise = self.tally.rise(before, after)[TENANT]
        return all(have + more <= INT64_MAX for have, more in zip(total, rise, strict=True))

    def expire_holds(self) -> None:
        """Close every hold whose time has passed (DESIGN 5.3 rule 1)."""
        if self.next_expiry is None or self.next_expiry > self.now:
            return
        still_open = sorted(
            (self.holds[id_] for id_ in self.open_holds.values()), key=lambda hold: (hold.expires_at, hold.id)
        )
        self.next_expiry = next((hold.expires_at for hold in still_open if hold.expires_at > self.now), None)
        for hold in still_open:
            if hold.expires_at <= self.now:
                self.close_hold(hold, HoldState.EXPIRED)

    def is_over(self, places: Iterable[Place]) -> bool:
        """Tell whether any of these places is over a limit now."""
        return any(True for place in places for _ in self._overs(place))

    def limits(self, place: Place) -> Mapping[Dimension, Resolved]:
        """Return the limits that hold at a place; they do not change while a book is open."""
        found = self._limits.get(place)
        if found is None:
            found = self._limits[place] = resolve(self.state, place, self.now)
        return found

    def _overs(self, place: Place) -> Iterable[tuple[OverKey, int, int]]:
        total = self.tally.totals(place)
        if not any(total):
            return  # nothing is never over a limit
        limits = self.limits(place)
        for info in GAUGES:
            top = ceiling(limits.get(info.dimension), info, self.policy.multipliers)
            if top is not None and total[info.gauge] > top:
                yield (place, info.gauge), top, total[info.gauge]

    def cross(self, places: Iterable[Place], cause: str) -> tuple[Crossing, ...]:
        """Tell each limit that was crossed at these places, once, in either direction (DESIGN 5.3 rule 11)."""
        crossings: list[Crossing] = []
        for place in sorted(places):
            over = {key: (top, usage) for key, top, usage in self._overs(place)}
            if not over and not self.over:
                continue
            for info in GAUGES:
                key = (place, info.gauge)
                if key in over and key not in self.over:
                    self.over[key] = self.now
                    crossings.append(Crossing(place, info, Edge.STARTED, *over[key], self.now, cause))
                elif key in self.over and key not in over:
                    limit = self.limits(place).get(info.dimension)
                    top = ceiling(limit, info, self.policy.multipliers)
                    usage = self.tally.totals(place)[info.gauge]
                    crossings.append(Crossing(place, info, Edge.ENDED, top, usage, self.over.pop(key), cause))
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
        )

    def _record(
        self,
        kind: ChangeKind,
        deployment: str,
        content: Content,
        *,
        hold: str = "",
        hold_state: HoldState | None = None,
        revision: int | None = None,
        gone: bool = False,
    ) -> None:
        """Take the next sequence number for one step of history."""
        self.seq += 1
        self._changes.append(Change(self.seq, kind, deployment, content, hold, hold_state, revision, gone))


def _same(stored: Content, told: Content) -> bool:
    """Compare what a deployment is; multipliers are ours, not part of what was told."""
    return stored.place == told.place and stored.app == told.app and stored.footprint == told.footprint
