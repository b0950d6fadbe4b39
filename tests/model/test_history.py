"""Usage at any instant, on a real PostgreSQL: random histories over days, then the first days are dropped."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from tests.model.model import GAUGES, PLACES, Body, Gauge, Place
from tests.model.stored import Stored
from tests.model.system import ORDER

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_devkit.builders import POLICY
from plimsoll_devkit.stack.private import LoopThread
from plimsoll_quota_enforcer.domain.declare import Declared
from plimsoll_quota_enforcer.domain.model import GAUGES as FIGURES
from plimsoll_quota_enforcer.storage.history import HistoryRefused, usage_at
from plimsoll_quota_enforcer.storage.simulating import Tried, simulate

STEPS = 70
KINDS: tuple[str, ...] = (
    ("reserve",) * 4 + ("commit",) * 3 + ("release", "fact", "fact", "gone", "adjust", "limit", "sweep")
)
Usage = dict[Place, dict[Gauge, tuple[int, int]]]
_NUMBERS = {(info.dimension.value, info.basis and info.basis.value): info.gauge for info in FIGURES}


class Story:
    """A tenant to whom things happen by chance, and what the usage table said after each of them."""

    def __init__(self, name: str, pool: asyncpg.Pool, thread: LoopThread, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pool = pool
        self.thread = thread
        self.began = datetime.now(UTC)
        self.tenant = Stored(name, pool, thread.run)
        self.holds: list[str] = ["none"]
        self.seen: list[tuple[datetime, Usage]] = []

    def run(self) -> None:
        for number in range(STEPS):
            self.step(f"r{number}")
            self.seen.append((self.tenant.now(), self.tenant.rows().usage))
            self.tenant.advance(self.chance.choice((0, 1, 300, 700, 9_000, 40_000)))

    def step(self, name: str) -> None:
        process = self.chance.randrange(2)
        deployment = f"d{self.chance.randrange(6)}"
        environment, stack = self.chance.choice(PLACES)
        place = {k: v for k, v in (("environment", environment), ("stack", stack)) if v}
        amounts = {"cpu": self.chance.randrange(9), "disk": self.chance.randrange(9), "vapps": self.chance.randrange(3)}
        head: Body = {"request_id": name, "issued_at": self.tenant.now().isoformat(), "tenant": self.tenant.tenant}
        kind = self.chance.choice(KINDS)
        match kind:
            case "reserve":
                asked = {"verb": "reserve", "deployment": deployment, "app": "a", "footprint": amounts, **place}
                self.tenant.batch([head | asked], [], process)
                self.holds.append(name)
            case "commit" | "release":
                self.tenant.batch([head | {"verb": kind, "hold": self.chance.choice(self.holds[-4:])}], [], process)
            case "adjust":
                asked = {"verb": "adjust", "deployment": deployment, "footprint": amounts, **place}
                self.tenant.batch([head | asked], [], process)
            case "limit":
                dimension, value = self.chance.choice(("cpu", "disk", "vapps")), self.chance.choice((None, 3, 6, 12))
                wish = {dimension: (value, self.chance.choice(("enforce", "enforce", "shadow")))}
                self.tenant.relimit((environment, stack), wish, process, force=True)
            case "sweep":
                self.tenant.sweep(process)
            case _:
                after = None if kind == "gone" else amounts
                told = {"deployment": deployment, "revision": len(self.seen), "after": after, **place}
                self.tenant.batch([], [{"tenant": self.tenant.tenant, **told}], process)

    def told(self, at: datetime | None) -> Usage:
        """What the past says of every place."""
        found: Usage = {}
        for place in PLACES:
            usage = self.thread.run(usage_at(self.pool, self.tenant.tenant, place, at))
            figures: dict[int, Any] = {
                _NUMBERS[line.dimension.value, line.basis and line.basis.value]: (line.used, line.used + line.held)
                for line in usage.dimensions
            }
            found[place] = {gauge: figures[n] for gauge, n in zip(GAUGES, ORDER, strict=True) if n in figures}
        return found

    def close(self) -> None:
        self.tenant.close()


def _same(told: Usage, seen: Usage) -> None:
    nothing = dict.fromkeys(GAUGES, (0, 0))
    for place, figures in told.items():
        assert figures == {gauge: seen.get(place, nothing)[gauge] for gauge in figures}


@pytest.mark.parametrize("seed", range(2))
def test_any_instant_has_the_usage_that_the_table_had_then(
    connections: asyncpg.Pool, stack_thread: LoopThread, seed: int
) -> None:
    story = Story(f"t{seed}", connections, stack_thread, seed)
    try:
        story.run()
        _same(story.told(None), story.seen[-1][1])  # the present is the past up to now
        days = (story.seen[-1][0] - story.began).days
        assert days >= 4
        for at, usage in story.seen:
            _same(story.told(at), usage)
        for dropped in (1, days // 2, days):  # the same as waiting that long with a shorter retention
            stack_thread.run(connections.fetchval("SELECT maintain_partitions(14, $1)", -dropped))
            begin = datetime.combine(story.began.date(), datetime.min.time(), UTC) + timedelta(days=dropped)
            for at, usage in story.seen:
                if at >= begin:
                    _same(story.told(at), usage)
                else:
                    with pytest.raises(HistoryRefused) as refused:
                        story.told(at)
                    assert refused.value.code is codes.BEFORE_RETENTION
        live = stack_thread.run(connections.fetchval("SELECT count(*) FROM baselines"))
        assert 0 < live <= 7, "only what is still there is kept: at most a row a deployment, and holds that are open"
    finally:
        story.close()


@pytest.mark.parametrize("seed", range(10, 13))
def test_the_log_decided_again_from_any_instant_comes_to_what_was_recorded(
    connections: asyncpg.Pool, stack_thread: LoopThread, seed: int
) -> None:
    story = Story(f"s{seed}", connections, stack_thread, seed)
    name = story.tenant.tenant
    try:
        story.run()
        count = "SELECT count(*), count(*) FILTER (WHERE NOT allowed) FROM decisions WHERE tenant = $1"
        refused = 0
        for at, _ in story.seen[:-1:7]:
            found = stack_thread.run(simulate(connections, POLICY, Tried(at, scopes={name: {}})))
            expected = stack_thread.run(connections.fetchrow(f"{count} AND decided_at > $2", name, at))
            assert expected is not None
            assert (found.replayed, found.refused_then) == tuple(expected)
            assert (found.differs, found.refused_proposed) == ({}, found.refused_then)
            assert (found.newly_refused, found.newly_allowed, found.left_out, found.cut) == (0, 0, 0, False)
            refused = max(refused, found.refused_then)
        assert refused > 1, "without refusals this would prove little"
        nothing = Tried(story.seen[0][0], scopes={name: {("", ""): {Dimension.CPU: Declared(0)}}})
        found = stack_thread.run(simulate(connections, POLICY, nothing))
        assert found.newly_refused == len(found.refusals) > 3
        assert found.left_out > 0
    finally:
        story.close()


def test_there_is_no_answer_about_a_time_before_anything_was_known(
    connections: asyncpg.Pool, stack_thread: LoopThread
) -> None:
    story = Story("acme", connections, stack_thread, 0)
    try:
        before = story.tenant.now()
        story.step("r0")
        for at, code in (
            (before, codes.NOTHING_KNOWN_THEN),
            (before - timedelta(days=3), codes.BEFORE_RETENTION),
            (story.tenant.now() + timedelta(minutes=1), codes.INVALID_REQUEST),
        ):
            with pytest.raises(HistoryRefused) as refused:
                story.told(at)
            assert refused.value.code is code
        with pytest.raises(HistoryRefused) as refused:
            stack_thread.run(usage_at(connections, "nobody", ("", ""), None))
        assert refused.value.code is codes.NOT_FOUND
    finally:
        story.close()


def test_a_day_that_somebody_reads_is_dropped_another_time(connections: asyncpg.Pool, stack_thread: LoopThread) -> None:
    async def upkeep_while_reading() -> tuple[int, int]:
        async with connections.acquire() as reader, reader.transaction():
            await reader.execute("LOCK TABLE changes IN ACCESS SHARE MODE")
            await connections.fetchval("SELECT maintain_partitions(14, -2)")
            during = await reader.fetchval("SELECT count(*) FROM pg_inherits WHERE inhparent = 'changes'::regclass")
        await connections.fetchval("SELECT maintain_partitions(14, -2)")
        after = await connections.fetchval("SELECT count(*) FROM pg_inherits WHERE inhparent = 'changes'::regclass")
        return during, after

    assert stack_thread.run(upkeep_while_reading()) == (16, 13)
