"""The pure functions by themselves."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.model.model import GAUGES, Body, Place
from tests.model.system import (
    ORDER,
    Rows,
    Told,
    Wish,
    amounts_of,
    became,
    decoded,
    facts_of,
    gauge_of,
    snapshot_of,
    what_is,
)

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_devkit.builders import POLICY, Tenant
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.decide import decide, expire, settle_facts
from plimsoll_quota_enforcer.domain.entitle import entitle
from plimsoll_quota_enforcer.domain.model import TENANT, Limit
from plimsoll_quota_enforcer.domain.relimit import LimitRefused, relimit
from plimsoll_quota_enforcer.domain.state import Outcome


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

    def batch(self, bodies: list[Body], facts: list[Body], process: int, *, lost: bool = False) -> Told:
        del process
        now = self.now()
        decided = decide(self._rows.state, [decoded(body)[0] for body in bodies], now, POLICY)
        settled = settle_facts(decided.state, facts_of(facts), now, POLICY)
        replies = [answers.reply(decision, now) for decision in decided.decisions]
        for decision, reply in zip(decided.decisions, replies, strict=True):
            assert answers.told(decision, now) == reply.model_dump_json(exclude_defaults=True)
        if not lost:
            self._absorb(decided)
            self._absorb(settled)
            for decision, reply in zip(decided.decisions, replies, strict=True):
                if decision.stored:
                    text = reply.model_dump_json(exclude_defaults=True).encode()
                    stored = self._rows.decisions[decision.ask.request_id]
                    self._rows.decisions[decision.ask.request_id] = replace(stored, reply=text)
        return Told(now, replies, [became(one) for one in settled.settlements])

    def entitle(self, snapshots: list[Body], process: int) -> tuple[datetime, list[str]]:
        del process
        entitled = entitle(self._rows.state, [snapshot_of(one) for one in snapshots], self.now(), POLICY)
        self._absorb(entitled.outcome)
        self._rows.entitlement = entitled.outcome.state.entitlement
        return self.now(), [one.value for one in entitled.projected]

    def relimit(self, place: Place, wanted: Mapping[str, Wish], process: int, *, force: bool) -> datetime | None:
        del process
        limits = {Dimension(d): Limit(w[0], Mode(w[1])) if w is not None else None for d, w in wanted.items()}
        try:
            expired = expire(self._rows.state, self.now(), POLICY)
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
        self._absorb(expire(self._rows.state, self.now(), POLICY, also=(TENANT,)))
        return self.now()

    def rows(self) -> Rows:
        usage = {
            place: {gauge: (found.used[n], found.total[n]) for gauge, n in zip(GAUGES, ORDER, strict=True)}
            for place, found in self._usage.items()
        }
        over = {(place, gauge_of(number)) for place, number, _ in self._rows.over}
        changes = [
            {
                "seq": change.seq,
                "kind": change.kind.value,
                "deployment": change.deployment,
                "hold": change.hold,
                "what": None if change.gone else what_is(change.content.place, change.content.app, amounts_of(change)),
            }
            for change in self._rows.changes
        ]
        charges = {
            name: (c.revision, None if c.gone else what_is(c.content.place, c.content.app, amounts_of(c)))
            for name, c in self._rows.charges.items()
        }
        holds = {name: (hold.deployment, hold.state.value) for name, hold in self._rows.holds.items()}
        return Rows(charges, holds, usage, over, changes, self._rows.seq)

    def close(self) -> None: ...
