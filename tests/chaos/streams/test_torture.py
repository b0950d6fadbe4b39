"""Two members under load, killed at named points and at random, frozen and thawed: every sum is exact."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from plimsoll_devkit import faults
from plimsoll_devkit.stack.database import Database
from plimsoll_devkit.workbench import TYPE, Bench, Member, eventually, open_bench

INCREMENTS = 50_000
KEYS = 200
DUPLICATES = 0.1
BURST = 1_000
"""Sent at once, so that a member frozen right after it has fetched records in hand."""
PER_SECOND = 800
CRASH_POINTS = (
    "after_claim",
    "after_lock:15",
    "before_commit:15",
    "after_commit:15",
    "relay_between_batches:5",
    "relay_after_ack:5",
)
FROZEN_SECONDS = 9.0
FREEZES_MAX = 4
SEED = 20261130


@pytest.fixture
async def bench(kafka_bootstrap: str, database: Database) -> AsyncIterator[Bench]:
    async with open_bench(kafka_bootstrap, database.owner_dsn) as made:
        yield made


class Load:
    """Keyed increments at a steady pace, a tenth of them again; counts what it sent."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._rng = random.Random(SEED)
        self.sent: Counter[str] = Counter()
        self.seqs: Counter[str] = Counter()
        self.burst = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began, futures = loop.time(), []
        for number in range(INCREMENTS):
            key = f"k{self._rng.randrange(KEYS)}"
            self.seqs[key] += 1
            futures.append(await self._send(key, self.seqs[key]))
            if self._rng.random() < DUPLICATES:
                futures.append(await self._send(key, self._rng.randint(max(1, self.seqs[key] - 20), self.seqs[key])))
            if number % BURST == 0:
                self.burst.set()
                await asyncio.sleep(max(0.0, began + number / PER_SECOND - loop.time()))
                self.burst.clear()
        await asyncio.gather(*futures)

    async def _send(self, key: str, seq: int) -> "asyncio.Future[object]":
        self.sent[key] += 1
        # A key's increments are all in one topic: only there do they have an order.
        topic = self._bench.facts if int(key[1:]) % 2 else self._bench.requests
        body = json.dumps({"key": key, "seq": seq}).encode()
        future: asyncio.Future[object] = await self._bench.producer.send(topic, body, key=key.encode(), headers=[TYPE])
        return future


async def is_between_transactions(admin: asyncpg.Connection, instance: int) -> bool:
    states = await admin.fetch(
        "SELECT state FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()",
        f"sums-{instance}",
    )
    return bool(states) and all(row["state"] == "idle" for row in states)


async def freeze_and_thaw(member: Member, instance: int, admin: asyncpg.Connection, load: Load) -> bool:
    """Freeze between two transactions, beyond the session, and say whether that fenced anything.

    Frozen inside one, the member keeps its row locked, nobody can claim it, and its thawed commit is right.
    """
    while True:
        await load.burst.wait()
        faults.freeze(member.pid)
        if await is_between_transactions(admin, instance):
            break
        faults.thaw(member.pid)
        await asyncio.sleep(0.02)
    before = sum('"fenced"' in line for line in member.lines())
    await asyncio.sleep(FROZEN_SECONDS)
    faults.thaw(member.pid)
    await asyncio.sleep(3)
    return sum('"fenced"' in line for line in member.lines()) > before


async def test_sums_stay_exact_whatever_is_killed_or_frozen(bench: Bench, tmp_path: Path) -> None:
    out = await bench.make_topic(f"{bench.name}.out")
    members = [Member(bench, instance, tmp_path, out=out) for instance in (0, 1)]
    await members[0].start()
    await members[1].start(crash_at=CRASH_POINTS[0])
    admin = await asyncpg.connect(bench.dsn)
    bench.cleanup.push_async_callback(admin.close)
    load = Load(bench)
    loading = asyncio.create_task(load.run())
    bench.cleanup.callback(loading.cancel)

    for following in (*CRASH_POINTS[1:], ""):
        await members[1].ended(30)
        await members[1].start(crash_at=following)
        await asyncio.sleep(0.5)
    for _ in range(2):
        await asyncio.sleep(random.Random(SEED).uniform(1, 3))
        faults.kill(members[0].pid)
        await members[0].ended(5)
        await members[0].start()
    await asyncio.sleep(3)
    fenced = False
    for _ in range(FREEZES_MAX):
        fenced = fenced or await freeze_and_thaw(members[0], 0, admin, load)
        if fenced:
            break
    assert not loading.done(), "the load ended before the faults did"
    await loading
    total = sum(load.sent.values())

    async def all_applied() -> bool:
        applied: int = await bench.database.fetchval("SELECT coalesce(sum(records), 0) FROM sums")
        assert applied <= total
        return applied == total

    await eventually(all_applied, 40)
    written = [line for member in members for line in member.lines()]
    for point in CRASH_POINTS:
        assert f"crash point {point.partition(':')[0]}" in written
    assert fenced, "the freeze fenced nothing"
    assert await bench.rows() == {key: (load.seqs[key], load.sent[key], 0) for key in load.sent}
    assert await bench.published(out) == dict(load.seqs)


async def test_a_crash_between_commit_and_reply_costs_only_the_reply(bench: Bench, tmp_path: Path) -> None:
    replies = await bench.make_topic(f"quota.replies.{bench.name}")
    member = Member(bench, 0, tmp_path)
    await member.start(crash_at="after_commit")
    headers = [("reply_to", replies.encode())]
    await bench.add("a", 1, topic=bench.requests, headers=headers)
    await member.ended(30)
    assert "crash point after_commit" in member.lines()
    assert await bench.rows() == {"a": (1, 1, 0)}
    assert await bench.read_all(replies) == []

    await member.start()
    # The caller asks again with the same id (here: seq).
    await bench.send(b'{"key": "a", "seq": 1}', key=b"a", topic=bench.requests, headers=[TYPE, *headers])

    (answer,) = await bench.read(replies, 1, seconds=20)
    assert json.loads(answer.value) == {"key": "a", "total": 1}
    assert (await bench.rows())["a"][0] == 1


async def test_a_loop_that_fails_ends_its_process(bench: Bench, tmp_path: Path) -> None:
    """Half an engine would look alive to everybody but its callers."""
    member = Member(bench, 0, tmp_path)
    await member.start()
    await bench.add("a", 1)
    await bench.sums_to(1)
    await bench.database.execute("DROP TABLE dead_letters, consumer_offsets")

    await bench.add("a", 1)

    assert await member.ended(30) != 0
    assert any("engine failed" in line for line in member.lines())
