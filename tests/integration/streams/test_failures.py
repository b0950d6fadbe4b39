"""Bad records, bad moments and bad code: what is set aside, what is tried again, what is paused, what is refused."""

import asyncio
import json

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from structlog.testing import capture_logs

from plimsoll_contracts import codes
from plimsoll_devkit import sums
from plimsoll_devkit.workbench import TYPE, Bench, eventually
from plimsoll_streams import dead_letters, kafka, ledger, ownership
from plimsoll_streams.engine import Engine
from plimsoll_streams.records import Partition


def phases(engine: Engine[sums.Unit], topic: str) -> set[str]:
    return {holding.phase for partition, holding in engine._ownership().holdings.items() if partition.topic == topic}


async def test_poison_among_good_records_is_found_and_set_aside(bench: Bench) -> None:
    await bench.add("a", 40)
    await bench.add("a", 1, bug=True)
    await bench.add("a", 40)
    await bench.add("b", 40)

    await bench.start()
    await bench.sums_to(120)

    letters = await bench.letters()
    assert [(row["code"], row["detail"]) for row in letters] == [(codes.POISON.code, "ValueError: bug at a 41")]
    assert (await bench.rows())["a"] == (80, 80, 1)


async def test_a_dead_letter_is_published_with_its_bytes_and_reason(bench: Bench) -> None:
    headers = [("h", b"\xff\x00"), ("h", None), TYPE]
    sent = await bench.send(b"\xffnot json", key=b"\xfe", headers=headers)
    await bench.start()

    (found,) = await bench.read(f"{bench.facts}.dlq", 1)

    assert (found.key, found.value, list(found.headers[:3])) == (b"\xfe", b"\xffnot json", headers)
    reason = dict(found.headers[3:])
    assert reason["dlq-code"] == codes.UNDECODABLE.code.encode()
    assert (reason["dlq-topic"], reason["dlq-partition"], reason["dlq-offset"]) == (
        bench.facts.encode(),
        str(sent.partition).encode(),
        str(sent.offset).encode(),
    )


async def test_every_record_invalid_are_all_set_aside_and_nothing_stops(bench: Bench) -> None:
    for number in range(60):
        await bench.send(f"bad {number}".encode(), key=b"a")
    await bench.start()
    await bench.add("a", 3)

    await bench.sums_to(3)

    assert len(await bench.letters()) == 60


async def test_every_record_a_bug_pauses_the_partition_and_says_so(bench: Bench) -> None:
    await bench.add("a", 30, bug=True)
    keys = [f"k{n}" for n in range(8)]

    with capture_logs() as logs:
        engine = await bench.start()

        async def paused() -> bool:
            return "paused" in phases(engine, bench.facts)

        await eventually(paused)
    for key in keys:
        await bench.add(key, 1, topic=bench.requests)
    await bench.sums_to(8)

    letters = await bench.letters()
    assert 1 <= len(letters) <= 10
    assert any(line["event"].startswith("partition paused") for line in logs)
    status = json.dumps(engine.status(), default=str)
    assert "in a row failed by a bug" in status
    # A new process, which may have the mended code, begins where this one stopped.
    assert await bench.database.fetchval(
        "SELECT max(next_offset) FROM consumer_offsets WHERE topic = $1", bench.facts
    ) == len(letters)


async def test_a_topic_made_again_under_a_stored_offset_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading on from its beginning would silently drop the new records below the stored offset."""
    monkeypatch.setattr(ownership, "RECHECK_SECONDS", 0.5)
    await bench.add("a", 20)
    engine = await bench.start()
    await bench.sums_to(20)
    await bench.stop(engine)
    admin = AIOKafkaAdminClient(bootstrap_servers=bench.bootstrap)
    await admin.start()
    await admin.delete_topics([bench.facts])
    await admin.close()
    facts = sums.topics(bench.name)[1]
    async with asyncio.timeout(10):
        while await kafka.create_topics(bench.bootstrap, [facts]):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    bench._seqs["a"] = 20
    await bench.producer.client.force_metadata_update()
    await bench.add("a", 3)

    engine = await bench.start()

    async def refused() -> bool:
        return "refused" in phases(engine, bench.facts)

    await eventually(refused)
    assert "stored offset 20 lies outside the log, 0 to 3" in json.dumps(engine.status(), default=str)
    await asyncio.sleep(1)
    assert await bench.total("a") == 20
    for number in range(sums.PARTITIONS):
        async with bench.database.acquire() as connection:
            await ledger.reset(connection, bench.name, Partition(bench.facts, number), 0)
    await bench.sums_to(23)


async def test_a_partition_that_another_claimed_is_fenced_and_held_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "HOLD_OFF_SECONDS", 1.0)
    engine = await bench.start()
    await bench.add("a", 5)
    await bench.sums_to(5)
    await bench.database.execute("UPDATE consumer_offsets SET epoch = epoch + 1")

    await bench.add("a", 5)

    async def held_off() -> bool:
        return "held_off" in phases(engine, bench.facts)

    await eventually(held_off)
    assert await bench.total("a") == 5
    await bench.sums_to(10)
    assert await bench.rows() == {"a": (10, 10, 0)}


async def test_broken_connections_are_tried_again(bench: Bench) -> None:
    await bench.start()
    admin = await asyncpg.connect(bench.dsn)
    for _ in range(10):
        await bench.add("a", 50)
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", bench.name
        )
    await admin.close()

    await bench.sums_to(500, seconds=30)

    assert await bench.rows() == {"a": (500, 500, 0)}


async def test_a_frozen_writer_holds_up_only_its_own_partition(bench: Bench) -> None:
    """Its locked row is passed over by the claim, not waited for."""
    await bench.add("a", 1)
    engine = await bench.start()
    await bench.sums_to(1)
    await bench.stop(engine)
    frozen = await asyncpg.connect(bench.dsn, server_settings={"search_path": "sums"})
    transaction = frozen.transaction()
    await transaction.start()
    lock = "SELECT partition FROM consumer_offsets WHERE topic = $1 LIMIT 1 FOR UPDATE"
    locked = Partition(bench.facts, await frozen.fetchval(lock, bench.facts))

    engine = await bench.start()

    async def owned() -> bool:
        return len(engine._ownership().claims()) == 2 * sums.PARTITIONS - 1

    await eventually(owned, 5)
    assert locked not in engine._ownership().claims()
    await transaction.rollback()
    await frozen.close()

    async def all_owned() -> bool:
        return len(engine._ownership().claims()) == 2 * sums.PARTITIONS

    await eventually(all_owned, 5)


async def test_dead_letters_are_listed_shown_and_replayed(bench: Bench) -> None:
    await bench.send(b"not json", key=b"a", headers=[TYPE, ("h", b"\xff")])
    engine = await bench.start()

    async def buried() -> bool:
        return len(await bench.letters()) == 1

    await eventually(buried)
    (kept,) = await dead_letters.find(bench.database, topic=bench.facts)
    assert await dead_letters.show(bench.database, kept.id) == kept
    assert await dead_letters.show(bench.database, kept.id + 1) is None
    assert (kept.record.value, kept.record.headers) == (b"not json", (TYPE, ("h", b"\xff")))

    async with bench.database.acquire() as connection, connection.transaction():
        assert await dead_letters.replay(connection, [kept.id], dry_run=True) == [kept]
        with pytest.raises(LookupError):
            await dead_letters.replay(connection, [kept.id, 999], dry_run=True)
    assert await dead_letters.find(bench.database, topic=bench.facts) == [kept]

    async with bench.database.acquire() as connection, connection.transaction():
        await dead_letters.replay(connection, [kept.id], dry_run=False)
    engine.wake_relay()

    # Still not JSON: it comes back as a second dead letter, with the same bytes at a new offset.
    async def twice() -> bool:
        return len(await bench.letters()) == 2

    await eventually(twice)
    (again,) = await dead_letters.find(bench.database, topic=bench.facts)
    assert again.record.offset > kept.record.offset
    assert (again.record.key, again.record.value, again.record.headers) == (
        kept.record.key,
        kept.record.value,
        kept.record.headers,
    )
