"""The offset rows and the transactions around them, on a real PostgreSQL, also where its answers get lost."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from plimsoll_devkit import sums
from plimsoll_devkit.faults import Proxy
from plimsoll_devkit.stack.database import Database
from plimsoll_devkit.workbench import Bench, eventually
from plimsoll_streams import ledger
from plimsoll_streams.failures import Transient, is_transient
from plimsoll_streams.ledger import Ledger, Session
from plimsoll_streams.ownership import Claim
from plimsoll_streams.records import Partition

A, B = Partition("t", 0), Partition("t", 1)


@dataclass
class Rows:
    """Two members' ledgers over one database."""

    mine: Ledger
    others: Ledger
    database: asyncpg.Pool

    async def claim(self, of: Ledger, first: Mapping[Partition, int]) -> Mapping[Partition, Claim]:
        async with of.transaction() as session:
            return await session.claim(first)


@pytest.fixture
async def rows(database: Database) -> AsyncIterator[Rows]:
    await sums.migrate(database.owner_dsn)
    settings = {"search_path": "sums", "lock_timeout": "300", "idle_in_transaction_session_timeout": "1000"}
    async with AsyncExitStack() as cleanup:
        made = await asyncpg.create_pool(database.owner_dsn, min_size=1, max_size=6, server_settings=settings)
        cleanup.push_async_callback(made.close)
        made_rows = Rows(Ledger(made, consumer="c", owner="mine"), Ledger(made, consumer="c", owner="others"), made)
        cleanup.push_async_callback(made_rows.mine.close)
        cleanup.push_async_callback(made_rows.others.close)
        yield made_rows


async def test_a_claim_begins_at_the_log_and_raises_the_epoch(rows: Rows) -> None:
    assert await rows.claim(rows.mine, {A: 7, B: 0}) == {A: Claim(7, 1), B: Claim(0, 1)}

    assert await rows.claim(rows.others, {A: 9}) == {A: Claim(7, 2)}


async def test_a_claim_passes_over_rows_that_somebody_has_locked(rows: Rows) -> None:
    await rows.claim(rows.mine, {A: 0, B: 0})

    async with rows.mine.transaction() as session:
        await session.lock([A])
        assert await rows.claim(rows.others, {A: 0, B: 0}) == {B: Claim(0, 2)}


async def test_a_lock_waits_and_then_sees_what_was_committed(rows: Rows) -> None:
    await rows.claim(rows.mine, {A: 0})

    async def wait() -> Mapping[Partition, Claim]:
        async with rows.others.transaction() as session:
            return await session.lock([A])

    async with rows.mine.transaction() as session:
        await session.lock([A])
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await session.advance({A: 5})

    assert await waiting == {A: Claim(5, 1)}


async def test_a_lock_that_is_not_had_in_time_is_a_bad_moment(rows: Rows) -> None:
    await rows.claim(rows.mine, {A: 0})

    async with rows.mine.transaction() as session:
        await session.lock([A])
        with pytest.raises(asyncpg.LockNotAvailableError) as raised:
            async with rows.others.transaction() as other:
                await other.lock([A])
    assert is_transient(raised.value)


async def test_what_raises_is_rolled_back_and_the_next_transaction_works(rows: Rows) -> None:
    await rows.claim(rows.mine, {A: 0})

    async def fail() -> None:
        async with rows.mine.transaction() as session:
            await session.advance({A: 5})
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail()

    async with rows.mine.transaction() as session:
        assert await session.lock([A]) == {A: Claim(0, 1)}


async def test_an_idle_transaction_is_ended_and_frees_its_rows(rows: Rows) -> None:
    """It is what ends the transaction of a frozen process."""
    await rows.claim(rows.mine, {A: 0})

    async def freeze() -> None:
        async with rows.mine.transaction() as session:
            await session.lock([A])
            await asyncio.sleep(1.3)
            assert await rows.claim(rows.others, {A: 0}) == {A: Claim(0, 2)}
            await session.advance({A: 5})

    with pytest.raises(Transient):
        await freeze()

    async with rows.mine.transaction() as session:
        assert await session.lock([A]) == {A: Claim(0, 2)}


async def test_an_operator_sets_an_offset_and_the_owner_is_fenced(rows: Rows) -> None:
    await rows.claim(rows.mine, {A: 7})

    async with rows.database.acquire() as connection:
        assert await ledger.reset(connection, "c", A, 3)
        assert not await ledger.reset(connection, "c", B, 3)

    async with rows.mine.transaction() as session:
        assert await session.lock([A]) == {A: Claim(3, 2)}


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
