"""The pure functions by themselves."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.model.model import GAUGES, Body, Place
from tests.model.system import (
    ORDER,
    POLICY,
    Rows,
    Told,
    Wish,
    amounts_of,
    became,
    decoded,
    facts_of,
    gauge_of,
    reported,
    snapshot_of,
    what_is,
)

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import EnforcementReply, Mode
from plimsoll_devkit.builders import Tenant
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.decide import decide, expire, measure, settle_facts
from plimsoll_quota_enforcer.domain.entitle import entitle
from plimsoll_quota_enforcer.domain.model import TENANT, Limit, Measured, Node
from plimsoll_quota_enforcer.domain.relimit import LimitRefused, relimit
from plimsoll_quota_enforcer.domain.state import Decision, Outcome


class Pure:
    """The pure functions, with dicts for tables; a state is carried along as in the cache, until a restart."""

    tenant = "acme"

    def __init__(self) -> None:
        self._rows = Tenant(policy=POLICY, carried=True)
        self._usage: dict[Place, Any] = {}

    def _absorb(self, outcome: Outcome) -> None:
        self._rows.absorb(outcome)
        self._usage |= {place: outcome.state.tally.usage(place) for place in outcome.places}

    def now(self) -> datetime:
        return self._rows.now

    def advance(self, seconds: float) -> None:
        self._rows.wait(seconds)

    def restart(self, process: int) -> None:
        del process
        self._rows.restart()

    def _answer(self, decision: Decision) -> EnforcementReply:
        """Tell a decision, and keep what was told as the storage does."""
        reply = answers.reply(decision, self.now())
        assert answers.told(decision, self.now()) == reply.model_dump_json(exclude_defaults=True)
        if decision.stored and decision.repeats is None:
            stored = self._rows.decisions[decision.ask.request_id]
            text = reply.model_dump_json(exclude_defaults=True).encode()
            self._rows.decisions[decision.ask.request_id] = replace(stored, reply=text)
        return reply

    def batch(self, bodies: list[Body], facts: list[Body], process: int, *, lost: bool = False) -> Told:
        del process
        asks, deltas = [decoded(body)[0] for body in bodies], facts_of(facts)
        decided = decide(self._rows.state, asks, self.now(), POLICY, self._rows.locked(asks, deltas))
        if lost:
            return Told(self.now())
        self._absorb(decided)
        replies = [self._answer(one) for one in decided.decisions]
        settled = settle_facts(self._rows.state, deltas, self.now(), POLICY, self._rows.locked(asks, deltas))
        self._absorb(settled)
        woken = [self._answer(one) for one in (*decided.woken, *settled.woken)]
        return Told(self.now(), replies, [became(one) for one in settled.settlements], woken)

    def entitle(self, snapshots: list[Body], process: int) -> Told:
        del process
        entitled = entitle(
            self._rows.state, [snapshot_of(one) for one in snapshots], self.now(), POLICY, self._rows.locked()
        )
        self._absorb(entitled.outcome)
        self._rows.entitlement = entitled.outcome.state.entitlement
        woken = [self._answer(one) for one in entitled.outcome.woken]
        return Told(self.now(), (), [one.value for one in entitled.projected], woken)

    def measure(self, place: Place, bytes_: int, order: tuple[int, int], process: int, *, complete: bool) -> Told:
        del process
        found = [(place, Measured(bytes_, order, self.now(), "walk", complete))]
        outcome, standings = measure(self._rows.state, found, self.now(), POLICY, self._rows.locked())
        self._absorb(outcome)
        return Told(self.now(), (), [one.value for one in standings], [self._answer(one) for one in outcome.woken])

    def report(self, body: Body, process: int) -> None:
        del process
        self._rows.nodes[body["node"]] = reported(body, self._rows.nodes.get(body["node"], Node(body["node"])))

    def look(self, process: int) -> Told:
        del process
        outcome = expire(self._rows.state, self.now(), POLICY, (TENANT,), self._rows.locked(), wake=True)
        self._absorb(outcome)
        return Told(self.now(), (), (), [self._answer(one) for one in outcome.woken])

    def relimit(self, place: Place, wanted: Mapping[str, Wish], process: int, *, force: bool) -> datetime | None:
        del process
        limits = {Dimension(d): Limit(w[0], Mode(w[1])) if w is not None else None for d, w in wanted.items()}
        try:
            expired = expire(self._rows.state, self.now(), POLICY, nodes=self._rows.locked())
            changed, _ = relimit(expired.state, {place: limits}, self.now(), POLICY, force=force)
        except LimitRefused:
            return None
        self._absorb(expired)
        self._rows.limits = {where: dict(of_place) for where, of_place in changed.limits.items()}
        self._absorb(expire(changed, self.now(), POLICY, also=(place,)))
        return self.now()

    def set_default(self, dimension: str, value: int | None) -> None:
        self._rows.defaults[Dimension(dimension)] = Limit(value)

    def sweep(self, process: int) -> datetime:
        del process
        self._absorb(expire(self._rows.state, self.now(), POLICY, (TENANT,), self._rows.locked()))
        return self.now()

    def rows(self) -> Rows:
        usage = {
            place: {gauge: (found.used[n], found.total[n]) for gauge, n in zip(GAUGES, ORDER, strict=True)}
            for place, found in self._usage.items()
        }
        over = {(place, gauge_of(number), mark) for place, number, mark in self._rows.over}
        changes = [
            {
                "seq": change.seq,
                "kind": change.kind.value,
                "deployment": change.deployment,
                "hold": change.hold,
                "replaces": change.replaces,
                "surge": change.surge,
                "what": None if change.gone else what_is(change.content.place, change.content.app, amounts_of(change)),
            }
            for change in self._rows.changes
        ]
        charges = {
            name: (c.revision, None if c.gone else what_is(c.content.place, c.content.app, amounts_of(c)))
            for name, c in self._rows.charges.items()
        }
        holds = {name: (hold.deployment, hold.state.value) for name, hold in self._rows.holds.items()}
        nodes = {name: node.allocated for name, node in self._rows.nodes.items()}
        measured = {place: found.bytes for place, found in self._rows.measured.items()}
        waiters = [waiter.ask.request_id for waiter in self._rows.waiters]
        return Rows(charges, holds, usage, over, changes, self._rows.seq, nodes, measured, waiters)

    def close(self) -> None: ...
