"""The generic projection on a real table."""

import asyncpg

from plimsoll_devkit.workbench import Bench
from plimsoll_streams.projection import Version, VersionedTable


async def test_newest_versions_are_kept_over_batches_in_any_order(bench: Bench) -> None:
    await bench.database.execute("CREATE TABLE plans (tenant text PRIMARY KEY, rev bigint NOT NULL, snapshot text)")
    table = VersionedTable("plans", key="tenant", version="rev", body="snapshot")
    async with bench.database.acquire() as connection:
        await table.apply(connection, [Version("a", 3, "three"), Version("a", 1, "one"), Version("b", 1, "x")])
        folded = await table.apply(
            connection,
            [Version("a", 2, "two"), Version("a", 3, "other"), Version("a", 3, "three"), Version("b", 2, None)],
        )

    assert (folded.stale, folded.repeated, folded.conflicts) == (1, 1, (Version("a", 3, "other"),))
    rows: list[asyncpg.Record] = await bench.database.fetch("SELECT * FROM plans ORDER BY tenant")
    assert [tuple(row) for row in rows] == [("a", 3, "three"), ("b", 2, None)]


async def test_a_row_that_moved_on_meanwhile_is_not_set_back(bench: Bench) -> None:
    """The write is conditional by itself, also for a caller who forgot the guard."""
    await bench.database.execute("CREATE TABLE plans (key text PRIMARY KEY, version bigint NOT NULL, body text)")
    table = VersionedTable("plans")
    async with bench.database.acquire() as connection:
        await table.save(connection, [Version("a", 5, "five")])
        await table.save(connection, [Version("a", 4, "four")])

        assert await table.load(connection, ["a", "b"]) == {"a": Version("a", 5, "five")}
