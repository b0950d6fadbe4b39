"""How fast is the usual way: one transaction a request, rows locked one by one, in the same schema and database."""

import asyncio
import time
from itertools import count

import asyncpg

from plimsoll_streams.transactions import Connection

STACKS = 10
_LOCK = "SELECT seq FROM tenants WHERE tenant = $1 FOR UPDATE"
_EARLIER = "SELECT reply FROM decisions WHERE day = current_date AND tenant = $1 AND request_id = $2"
_USAGE = "SELECT used, held FROM usage WHERE tenant = $1 AND environment = $2 AND stack = $3 FOR UPDATE"
_LIMIT = """SELECT value FROM limits WHERE tenant = $1 AND environment = $2 AND stack = $3
UNION ALL SELECT value FROM defaults WHERE dimension = 'cpu'"""
_SAVE_USAGE = """INSERT INTO usage VALUES ($1, $2, $3, $4, $5, now())
ON CONFLICT (tenant, environment, stack) DO UPDATE SET held = excluded.held, changed_at = now()"""
_HOLD = """INSERT INTO holds (tenant, request_id, deployment, environment, stack, app, cpu_reserved, cpu_limit,
memory_reserved, memory_limit, disk, vapps, reservation_milli, limit_milli, replaces, surge, expires_at, state,
changed_at) VALUES ($1, $2, $3, $4, $5, 'app', 500, 500, 1, 1, 0, 1, 1000, 1500, '{}', false,
now() + interval '10 minutes', 'open', now())"""
_CLOSE = "UPDATE holds SET state = 'released', changed_at = now() WHERE tenant = $1 AND request_id = $2"
_DECISION = """INSERT INTO decisions VALUES (current_date, $1, $2, $3, '', $4, $4, NULL, true, NULL,
'{}', $5, NULL, 0, now())"""
_CHANGE = """INSERT INTO changes VALUES (current_date, $1, $2, now(), 'hold_opened', $3, $4, $5, 'app',
'{500,500,1,1,0,1}', 1000, 1500, $6, 'open', NULL, false, '{}', false, $6)"""
_SEQ = "UPDATE tenants SET seq = $2 WHERE tenant = $1"
_BODY = '{"request_id":"x","verb":"reserve","tenant":"t","allowed":true,"hold":{"id":"x","deployment":"d"}}'


async def require_durable(connection: Connection) -> None:
    """Refuse to compare with a database that does not keep its promises.

    Raises:
        SystemExit: fsync or synchronous_commit is off.
    """
    for setting in ("fsync", "synchronous_commit"):
        if await connection.fetchval(f"SHOW {setting}") != "on":
            raise SystemExit(f"{setting} is off: figures of such a database say nothing, so nothing is measured")


async def rate(dsn: str, tenants: int, clients: int, seconds: float) -> float:
    """Return decided requests a second, reserve and release in turn, by so many clients at once."""
    pool = await asyncpg.create_pool(dsn, min_size=clients, max_size=clients, server_settings={"search_path": "quota"})
    async with pool.acquire() as connection:
        await require_durable(connection)
        names = [f"tenant-{number}" for number in range(tenants)]
        await connection.execute("INSERT INTO tenants SELECT unnest($1::text[]) ON CONFLICT DO NOTHING", names)
    numbers, done, until = count(), 0, time.perf_counter() + seconds

    async def work() -> None:
        nonlocal done
        async with pool.acquire() as connection:
            while time.perf_counter() < until:
                number = next(numbers)
                tenant = f"tenant-{number * 7919 % tenants}"
                place = ("prod", f"stack-{number % STACKS}")
                await _reserve(connection, tenant, place, f"n{clients}-{number}")
                await _release(connection, tenant, place, f"n{clients}-{number}")
                done += 2

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    elapsed = time.perf_counter() - started
    await pool.close()
    return done / elapsed


async def _reserve(connection: Connection, tenant: str, place: tuple[str, str], name: str) -> None:
    async with connection.transaction():
        seq = await connection.fetchval(_LOCK, tenant) + 1
        await connection.fetchval(_EARLIER, tenant, name)
        for where in (place, (place[0], ""), ("", "")):
            usage = await connection.fetchrow(_USAGE, tenant, *where)
            limit = await connection.fetchval(_LIMIT, tenant, *where)
            used = usage["used"] if usage is not None else [0] * 9
            held = list(usage["held"]) if usage is not None else [0] * 9
            if limit is not None and used[0] + held[0] + 500 > limit:
                return
            held[0] += 500
            await connection.execute(_SAVE_USAGE, tenant, *where, used, held)
        await connection.execute(_HOLD, tenant, name, name, *place)
        await connection.execute(_DECISION, tenant, name, "reserve", _BODY, seq)
        await connection.execute(_CHANGE, tenant, seq, name, *place, name)
        await connection.execute(_SEQ, tenant, seq)


async def _release(connection: Connection, tenant: str, place: tuple[str, str], name: str) -> None:
    async with connection.transaction():
        seq = await connection.fetchval(_LOCK, tenant) + 1
        await connection.fetchval(_EARLIER, tenant, f"{name}-release")
        for where in (place, (place[0], ""), ("", "")):
            (usage,) = await connection.fetch(_USAGE, tenant, *where)
            held = list(usage["held"])
            held[0] -= 500
            await connection.execute(_SAVE_USAGE, tenant, *where, usage["used"], held)
        await connection.execute(_CLOSE, tenant, name)
        await connection.execute(_DECISION, tenant, f"{name}-release", "release", _BODY, seq)
        await connection.execute(_CHANGE, tenant, seq, name, *place, name)
        await connection.execute(_SEQ, tenant, seq)
