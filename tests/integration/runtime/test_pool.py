import asyncio

import asyncpg
import pytest

from plimsoll_runtime import pool


async def opened(dsn: str, **sizes: int) -> asyncpg.Pool:
    return await pool.create(dsn, application_name="quota-enforcer-0", schema="quota", **sizes)


async def test_sessions_carry_their_name_and_their_limits(owner_dsn: str) -> None:
    async with await opened(owner_dsn) as connections:
        shown = {
            name: await connections.fetchval(f"SHOW {name}")
            for name in (
                "application_name",
                "search_path",
                "statement_timeout",
                "lock_timeout",
                "idle_in_transaction_session_timeout",
                "jit",
                "timezone",
            )
        }

    assert shown == {
        "application_name": "quota-enforcer-0",
        "search_path": "quota",
        "statement_timeout": "5s",
        "lock_timeout": "2s",
        "idle_in_transaction_session_timeout": "10s",
        "jit": "off",
        "timezone": "UTC",
    }


async def test_limits_survive_what_a_borrower_set(owner_dsn: str) -> None:
    async with await opened(owner_dsn, max_size=1) as connections:
        await connections.execute("SET lock_timeout = 0; SET search_path = public")

        assert await connections.fetchval("SHOW lock_timeout") == "2s"
        assert await connections.fetchval("SHOW search_path") == "quota"


async def test_a_wait_for_a_lock_ends_by_itself(owner_dsn: str) -> None:
    async with await opened(owner_dsn) as connections, connections.acquire() as holder:
        await holder.execute("CREATE SCHEMA quota; CREATE TABLE guard (id int); INSERT INTO guard VALUES (1)")
        async with holder.transaction():
            await holder.execute("SELECT FROM guard FOR UPDATE")
            began = asyncio.get_running_loop().time()
            with pytest.raises(asyncpg.LockNotAvailableError):
                await connections.execute("UPDATE guard SET id = 2")

    assert 1.5 < asyncio.get_running_loop().time() - began < 4


async def test_a_schema_name_is_checked_before_anything_is_opened() -> None:
    with pytest.raises(ValueError, match="not a schema name"):
        await pool.create("postgresql://nowhere/x", application_name="x", schema="a,b")
