"""The offset rows and their transactions, on PostgreSQL and on the simulation's stand-in; answers that get lost."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from plimsoll_devkit import sums
from plimsoll_devkit.faults import Proxy
from plimsoll_devkit.simulation import database as simulation
from plimsoll_devkit.simulation.network import Network
from plimsoll_devkit.simulation.virtual import VirtualLoop
from plimsoll_devkit.stack.database import Database
from plimsoll_devkit.workbench import Bench, eventually
from plimsoll_streams import ledger
from plimsoll_streams.failures import Transient, is_transient
from plimsoll_streams.ledger import Ledger, Session
from plimsoll_streams.ownership import Claim
from plimsoll_streams.records import Partition

A, B = Partition("t", 0), Partition("t", 1)


@dataclass(frozen=True, slots=True)
class Two:
    """Two members' ledgers over one database; `idle` is how long it bears an idle transaction, and some more."""

    mine: Any
    others: Any
    idle: float

    async def claim(self, of: Any, first: Mapping[Partition, int]) -> Mapping[Partition, Claim]:
        async with of.transaction() as session:
            found: Mapping[Partition, Claim] = await session.claim(first)
            return found


async def a_claim_begins_at_the_log_and_raises_the_epoch(two: Two) -> None:
    assert await two.claim(two.mine, {A: 7, B: 0}) == {A: Claim(7, 1), B: Claim(0, 1)}

    assert await two.claim(two.others, {A: 9}) == {A: Claim(7, 2)}


async def a_claim_passes_over_rows_that_somebody_has_locked(two: Two) -> None:
    await two.claim(two.mine, {A: 0, B: 0})

    async with two.mine.transaction() as session:
        await session.lock({A: Claim(0, 1)})
        assert await two.claim(two.others, {A: 0, B: 0}) == {B: Claim(0, 2)}


async def a_lock_waits_and_then_sees_what_was_committed(two: Two) -> None:
    await two.claim(two.mine, {A: 0})

    async def wait() -> Mapping[Partition, Claim]:
        async with two.others.transaction() as session:
            found: Mapping[Partition, Claim] = await session.lock({A: Claim(0, 1)})
            return found

    async with two.mine.transaction() as session:
        await session.lock({A: Claim(0, 1)})
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await session.advance({A: 5})

    assert await waiting == {A: Claim(5, 1)}


async def a_lock_that_is_not_had_in_time_is_a_bad_moment(two: Two) -> None:
    await two.claim(two.mine, {A: 0})

    async def lock() -> None:
        async with two.others.transaction() as session:
            await session.lock({A: Claim(0, 1)})

    async with two.mine.transaction() as session:
        await session.lock({A: Claim(0, 1)})
        with pytest.raises(asyncpg.LockNotAvailableError) as raised:
            await lock()
    assert is_transient(raised.value)


async def what_raises_is_rolled_back_and_the_next_transaction_works(two: Two) -> None:
    await two.claim(two.mine, {A: 0})

    async def fail() -> None:
        async with two.mine.transaction() as session:
            await session.lock({A: Claim(0, 1)})
            await session.advance({A: 5})
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail()

    async with two.mine.transaction() as session:
        assert await session.lock({A: Claim(0, 1)}) == {A: Claim(0, 1)}


async def an_idle_transaction_is_ended_and_frees_its_rows(two: Two) -> None:
    """It is what ends the transaction of a frozen process."""
    await two.claim(two.mine, {A: 0})

    async def freeze() -> None:
        async with two.mine.transaction() as session:
            await session.lock({A: Claim(0, 1)})
            await asyncio.sleep(two.idle)
            assert await two.claim(two.others, {A: 0}) == {A: Claim(0, 2)}
            await session.advance({A: 5})

    with pytest.raises(Transient):
        await freeze()

    async with two.mine.transaction() as session:
        assert await session.lock({A: Claim(0, 1)}) == {A: Claim(0, 2)}


SCENARIOS = [
    a_claim_begins_at_the_log_and_raises_the_epoch,
    a_claim_passes_over_rows_that_somebody_has_locked,
    a_lock_waits_and_then_sees_what_was_committed,
    a_lock_that_is_not_had_in_time_is_a_bad_moment,
    what_raises_is_rolled_back_and_the_next_transaction_works,
    an_idle_transaction_is_ended_and_frees_its_rows,
]
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@pytest.fixture
async def rows(database: Database) -> AsyncIterator[asyncpg.Pool]:
    await sums.migrate(database.owner_dsn)
    settings = {"search_path": "sums", "lock_timeout": "300", "idle_in_transaction_session_timeout": "1000"}
    made = await asyncpg.create_pool(database.owner_dsn, min_size=1, max_size=6, server_settings=settings)
    yield made
    made.terminate()


@each_scenario
async def test_the_real_ledger(rows: asyncpg.Pool, scenario: Callable[[Two], Awaitable[None]]) -> None:
    mine, others = (Ledger(rows, consumer="c", owner=owner) for owner in ("mine", "others"))

    await scenario(Two(mine, others, idle=1.3))


@each_scenario
def test_the_simulated_ledger_behaves_alike(scenario: Callable[[Two], Coroutine[Any, Any, None]]) -> None:
    """Or the simulation would prove promises about another database."""

    async def run() -> None:
        network = Network(random.Random(1))
        database = simulation.Database(random.Random(1), note=lambda _: None, violate=pytest.fail)
        mine, others = (simulation.Ledger(database, network, process) for process in ("mine", "others"))
        await scenario(Two(mine, others, idle=simulation.IDLE_SECONDS + 0.3))

    loop = VirtualLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


async def test_an_operator_sets_an_offset_and_the_owner_is_fenced(rows: asyncpg.Pool) -> None:
    mine = Ledger(rows, consumer="c", owner="mine")
    async with mine.transaction() as session:
        await session.claim({A: 7})

    async with rows.acquire() as connection:
        assert await ledger.reset(connection, "c", A, 3)
        assert not await ledger.reset(connection, "c", B, 3)

    async with mine.transaction() as session:
        assert await session.lock({A: Claim(0, 1)}) == {A: Claim(3, 2)}


async def test_a_lost_answer_to_a_commit_is_found_out_and_its_replies_are_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = await bench.make_topic(f"quota.replies.{bench.name}")
    address = urlsplit(bench.dsn)
    async with Proxy(address.hostname or "", address.port or 0) as proxy, AsyncExitStack() as cleanup:
        through = urlunsplit(address._replace(netloc=f"{address.username}@127.0.0.1:{proxy.port}"))
        bench.database = await asyncpg.create_pool(
            through, min_size=1, max_size=4, command_timeout=1, server_settings={"search_path": "sums"}
        )
        cleanup.push_async_callback(bench.database.close)
        await bench.start()
        await bench.add("warm", 1)
        await bench.sums_to(1)
        original, lost = Session.advance, 0

        async def advance(self: Session, targets: Mapping[Partition, int]) -> None:
            nonlocal lost
            await original(self, targets)
            if lost == 0:
                lost += 1
                proxy.mode = "half-open"  # the COMMIT arrives, its answer does not

        monkeypatch.setattr(Session, "advance", advance)
        await bench.add("a", 3, topic=bench.requests, headers=[("reply_to", replies.encode())])

        async def is_lost() -> bool:
            return lost == 1

        await eventually(is_lost)
        await asyncio.sleep(0.2)
        proxy.mode = "pass"

        answers = [json.loads(each.value)["total"] for each in await bench.read(replies, 3)]
        await asyncio.sleep(0.5)
        assert len(await bench.read_all(replies)) == 3
        assert answers == [1, 2, 3]
        assert (await bench.rows())["a"] == (3, 3, 0)
        await bench.stop_all()
