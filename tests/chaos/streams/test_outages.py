"""Database and broker go and come back under load: no member of ours is started again, and few lines are written."""

import asyncio
from pathlib import Path

from plimsoll_devkit.stack.private import PrivateStack
from plimsoll_devkit.workbench import Bench, Member, eventually, open_bench

KEYS = [f"k{number}" for number in range(20)]
BOTH_CLAIMED = "SELECT count(DISTINCT owner) = 2 FROM consumer_offsets"
LINES_MAX = 150
"""aiokafka alone writes 1,300 to 1,600 lines in such an outage."""


async def load(bench: Bench, stop: asyncio.Event) -> int:
    sent = 0
    while not stop.is_set():
        for key in KEYS:
            await bench.add(key, 2)
            sent += 2
        await asyncio.sleep(0.1)
    return sent


async def test_outages_are_waited_out(tmp_path: Path) -> None:
    with PrivateStack(("kafka", "postgres")) as stack:
        async with open_bench(stack.kafka_bootstrap, stack.database.owner_dsn) as bench:
            out = await bench.make_topic(f"{bench.name}.out")
            members = [Member(bench, instance, tmp_path, out=out) for instance in (0, 1)]
            for member in members:
                await member.start()
            stop = asyncio.Event()
            loading = asyncio.create_task(load(bench, stop))
            bench.cleanup.callback(loading.cancel)
            await eventually(lambda: bench.database.fetchval(BOTH_CLAIMED))
            await bench_has_applied(bench, 100)
            pids = [member.pid for member in members]
            for part, end in (("postgres", stack.kill), ("kafka", stack.kill), ("postgres", stack.stop)):
                await asyncio.to_thread(end, part)
                await asyncio.sleep(6)
                await asyncio.to_thread(stack.start, part)
                await bench_grows(bench)
            stop.set()
            sent = await loading

            await bench.sums_to(sent, 30)

            assert {(total, records) for total, records, _ in (await bench.rows()).values()} == {
                (sent // len(KEYS), sent // len(KEYS))
            }
            assert {disorder for _, _, disorder in (await bench.rows()).values()} == {0}
            assert await bench.published(out) == dict.fromkeys(KEYS, sent // len(KEYS))
            assert all(member.is_running for member in members)
            assert [member.pid for member in members] == pids
            for member in members:
                assert len(member.lines()) < LINES_MAX, "\n".join(member.lines()[:200])


async def bench_has_applied(bench: Bench, count: int) -> None:
    async with asyncio.timeout(30):
        while await applied(bench) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def bench_grows(bench: Bench) -> None:
    """Wait until what was produced after the outage is applied, too."""
    await bench_has_applied(bench, await applied(bench) + 2 * len(KEYS))


async def applied(bench: Bench) -> int:
    try:
        found: int = await bench.database.fetchval("SELECT coalesce(sum(records), 0) FROM sums")
    except OSError:
        return 0
    return found
