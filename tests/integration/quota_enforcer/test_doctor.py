"""Every fault that ``plimsoll doctor`` knows is made for real, and the sentence and the exit code are what they are."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from plimsoll_contracts.doctor import CHECKS
from plimsoll_contracts.topics import CATALOGUE, NODE_REPORTS, QUOTA_LIMITS, REPLIES_FLOWS, USAGE_DELTAS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, unique
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.storage import doctor, refold
from plimsoll_streams import kafka

OK, FAILED, LOOK = 0, 1, 4


@dataclass(frozen=True)
class Told:
    """What the command said of one check."""

    code: int
    verdict: str
    told: str
    next: str
    findings: Sequence[dict[str, str]]


async def plimsoll(quota: Platform, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "plimsoll_client.cli", *arguments, "--url", quota.enforcer().url]
    command += ["--token-file", str(quota.stack.credentials.token_file)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=40, check=False)
    assert "Traceback" not in done.stderr
    return done


async def ask(quota: Platform, check: str) -> Told:
    """Ask for one check; the database and whatever else it needs must be well."""
    done = await plimsoll(quota, "doctor", "--only", check, "-o", "json")
    findings = json.loads(done.stdout)["findings"]
    mine = next(each for each in findings if each["check"] == check)
    return Told(done.returncode, mine["verdict"], mine["told"], mine["next"], findings)


@asynccontextmanager
async def locked(quota: Platform, sql: str, *arguments: object) -> AsyncIterator[None]:
    """Hold locks in a transaction of the owner's, so that the service cannot go on there."""
    connection = await asyncpg.connect(quota.stack.database.owner_dsn, server_settings={"search_path": "quota"})
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(sql, *arguments)
        yield
    finally:
        await transaction.rollback()
        await connection.close()


async def test_where_all_is_well_it_says_so_with_figures(quota: Platform) -> None:
    for check in ("database", "migrations", "days", "durability", "clock", "broker", "topics", "instances",
                  "ownership", "stopped", "progress", "lag", "holds", "limits", "waiters", "usage",
                  "nodes"):  # fmt: skip
        found = await ask(quota, check)
        assert (found.code, found.verdict, found.next) == (OK, "ok", ""), found
    assert (await ask(quota, "topics")).told == f"{len(CATALOGUE)} topics as declared"
    assert (await ask(quota, "instances")).told == "1 replica: quota-enforcer-0"


async def test_all_checks_at_once_come_in_their_order(quota: Platform) -> None:
    done = await plimsoll(quota, "doctor", "-o", "json")
    assert [each["check"] for each in json.loads(done.stdout)["findings"]] == [check.name for check in CHECKS]


async def test_a_missing_partition_of_tomorrow_fails_and_is_made_by_what_it_says(quota: Platform) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    await quota.database.execute(f"DROP TABLE changes_{tomorrow:%Y%m%d}")
    try:
        found = await ask(quota, "days")
    finally:
        await quota.database.fetchval("SELECT maintain_partitions(14, 35)")
    assert (found.code, found.verdict) == (FAILED, "fail")
    assert found.told == f"1 partition missing: changes of {tomorrow}"
    assert "maintain_partitions" in found.next
    later = (datetime.now(UTC) + timedelta(days=5)).date()
    await quota.database.execute(f"DROP TABLE decisions_{later:%Y%m%d}")
    found = await ask(quota, "days")
    assert (found.code, found.verdict) == (LOOK, "warn")
    await quota.database.fetchval("SELECT maintain_partitions(14, 35)")
    assert (await ask(quota, "days")).verdict == "ok"


async def test_a_migration_that_was_changed_makes_the_rest_pointless(quota: Platform) -> None:
    await quota.database.execute("UPDATE migrations SET checksum = checksum || 'x' WHERE component = 'quota'")
    try:
        found = await ask(quota, "usage")
    finally:
        await quota.database.execute("UPDATE migrations SET checksum = rtrim(checksum, 'x') WHERE component = 'quota'")
    assert (found.code, found.verdict) == (FAILED, "unknown")
    assert found.told == "not looked at: migrations comes first"
    cause = next(each for each in found.findings if each["check"] == "migrations")
    assert (cause["verdict"], cause["told"]) == ("fail", "1 problem: quota/0001_model has changed since it was applied")


async def test_a_database_that_may_lose_what_it_acknowledged(quota: Platform) -> None:
    admin = await asyncpg.connect(quota.stack.database.admin_dsn)
    try:
        await admin.execute("ALTER SYSTEM SET full_page_writes = off")
        await admin.execute("SELECT pg_reload_conf()")

        async def is_seen() -> bool:
            return (await ask(quota, "durability")).verdict == "fail"

        await eventually(is_seen, what="the setting")
        found = await ask(quota, "durability")
        assert found.code == FAILED
        assert found.told == "full_page_writes is off: a crash may lose what was acknowledged"
    finally:
        await admin.execute("ALTER SYSTEM RESET full_page_writes")
        await admin.execute("SELECT pg_reload_conf()")
        await admin.close()


@pytest.mark.parametrize(
    ("seconds", "verdict", "side"), [(90, "fail", "ahead of"), (-90, "fail", "behind"), (-3, "warn", "behind")]
)
async def test_a_clock_that_is_wrong(quota: Platform, seconds: int, verdict: str, side: str) -> None:
    """No process here may set a clock, so this one is asked with another."""
    async with quota.database.acquire() as connection:
        found = await doctor.clock(connection, _nothing(), lambda: datetime.now(UTC) + timedelta(seconds=seconds))
    assert found.verdict == verdict
    assert f" {side} the database's" in found.told
    assert found.next == "timedatectl status"


def _nothing(**more: Any) -> doctor.Examined:
    nothing: Any = None
    return doctor.Examined(nothing, more.get("policy", Policy()), "", (), nothing)


async def test_topics_that_are_missing_or_kept_otherwise(quota: Platform) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=quota.stack.kafka_bootstrap)
    await admin.start()
    try:
        resource = ConfigResource(ConfigResourceType.TOPIC, QUOTA_LIMITS.name, {"retention.ms": "60000"})
        await admin.alter_configs([resource])
        found = await ask(quota, "topics")
        assert (found.code, found.verdict) == (FAILED, "fail")
        assert "quota.limits: retention.ms is 60000, declared 604800000" in found.told
        assert found.next == "python -m plimsoll_streams topics --check"
        await admin.delete_topics([REPLIES_FLOWS.name])
        found = await ask(quota, "topics")
        assert "quota.replies.flows: missing" in found.told
    finally:
        settings = kafka.settings_of(QUOTA_LIMITS)
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, QUOTA_LIMITS.name, settings)])
        await admin.close()

        async def is_made() -> bool:
            return not await kafka.create_topics(quota.stack.kafka_bootstrap, [REPLIES_FLOWS])

        await eventually(is_made, what="the topic again")


async def test_two_processes_under_one_ordinal(quota: Platform) -> None:
    twin = await asyncpg.connect(
        quota.stack.database.dsn(), server_settings={"application_name": "quota-enforcer-0 elsewhere:7"}
    )
    try:
        found = await ask(quota, "instances")
    finally:
        await twin.close()
    assert (found.code, found.verdict) == (FAILED, "fail")
    assert found.told.startswith("2 processes run as quota-enforcer-0: ")
    assert "elsewhere:7" in found.told


async def test_a_partition_whose_owner_is_gone(quota: Platform) -> None:
    mark = "UPDATE consumer_offsets SET owner = $1 WHERE topic = 'usage.deltas' AND partition = 3"
    await quota.database.execute(mark, "quota-enforcer-5")
    try:
        found = await ask(quota, "ownership")
    finally:
        await quota.database.execute(mark, "quota-enforcer-0")
    assert (found.code, found.verdict) == (FAILED, "fail")
    assert found.told.endswith("belong to no live replica: usage.deltas/3 of quota-enforcer-5")


async def test_what_is_unread_for_long(quota: Platform, wire: Wire, tenant: str) -> None:
    await wire.ask(asking("check", tenant))
    await quota.set_limits(tenant, {"cpu": 100_000})
    async with locked(quota, "SELECT FROM tenants WHERE tenant = $1 FOR UPDATE", tenant):
        long_ago = int((datetime.now(UTC) - timedelta(minutes=10)).timestamp() * 1000)
        body = {"tenant": tenant, "deployment": "d1", "revision": 1, "after": {"cpu": 10}}
        await wire.producer.send_and_wait(
            USAGE_DELTAS.name, json.dumps(body).encode(), key=tenant.encode(), timestamp_ms=long_ago,
            headers=[("ce_type", b"usage.delta.v1"), ("ce_id", b"1"), ("ce_source", b"t"), ("ce_specversion", b"1.0"),
                     ("ce_time", b"2026-12-01T00:00:00Z")],
        )  # fmt: skip
        found = await ask(quota, "lag")
    assert (found.code, found.verdict) == (FAILED, "fail")
    assert found.told == "unread: 1 of usage.deltas, the oldest for 10 min"
    assert found.next.endswith("StreamLagHigh.md")

    async def applied() -> bool:
        return await quota.used(tenant, "cpu") == (10, 0)

    await eventually(applied, what="the delta")
    assert (await ask(quota, "lag")).verdict == "ok"


async def test_a_partition_that_is_refused(quota: Platform) -> None:
    move = (
        "UPDATE consumer_offsets SET next_offset = next_offset + $1"
        " WHERE consumer = 'quota-enforcer' AND topic = 'entitlement.events' AND partition = 0"
    )
    await quota.enforcer().stop()
    await quota.database.execute(move, 999_999)
    await quota.enforcer().start()
    try:

        async def is_refused() -> bool:
            return quota.enforcer().runs and (await ask(quota, "stopped")).verdict == "fail"

        await quota.enforcer().ready(1)
        await eventually(is_refused, what="the refusal", seconds=30)
        found = await ask(quota, "stopped")
        assert found.code == FAILED
        assert found.told.startswith("1 partition not read on: entitlement.events/0 refused: ")
        assert found.next.endswith("StreamPartitionStopped.md")
    finally:
        await quota.enforcer().stop()
        await quota.database.execute(move, -999_999)
        await quota.enforcer().start()
        await quota.enforcer().ready(1)


async def test_an_outbox_that_nobody_drains(quota: Platform) -> None:
    drain = "SELECT pg_advisory_xact_lock(hashtext('quota.outbox'), shard) FROM generate_series(0, 15) AS shard"
    async with locked(quota, drain):
        await quota.database.execute(
            "INSERT INTO outbox (shard, topic, messages, parcel, created_at)"
            " SELECT n, 'quota.limits', 2, 'v', now() - interval '5 minutes'"
            " FROM generate_series(1, 3) AS n"
        )
        found = await ask(quota, "outbox")
        assert (found.code, found.verdict) == (FAILED, "fail")
        assert found.told == "6 messages to be published, the oldest for 5 min"
        assert found.next.endswith("StreamOutboxStuck.md")
        await quota.database.execute("DELETE FROM outbox WHERE parcel = 'v'")


async def test_records_that_were_set_aside(quota: Platform, wire: Wire, tenant: str) -> None:
    await wire.send(USAGE_DELTAS, b"poison", key=tenant.encode())
    await eventually(
        lambda: quota.database.fetchval("SELECT count(*) FROM dead_letters WHERE key = $1", tenant.encode())
    )
    found = await ask(quota, "dead-letters")
    assert (found.code, found.verdict, found.next) == (LOOK, "warn", "plimsoll dlq list")
    assert " of usage.deltas" in found.told


async def test_a_hold_past_its_time(quota: Platform, wire: Wire, tenant: str) -> None:
    await wire.ask(asking("reserve", tenant))
    async with locked(quota, "SELECT FROM tenants WHERE tenant = $1 FOR UPDATE", tenant):
        await quota.database.execute(
            "UPDATE holds SET expires_at = now() - interval '3 minutes' WHERE tenant = $1", tenant
        )
        found = await ask(quota, "holds")
    assert (found.code, found.verdict) == (FAILED, "fail")
    assert found.told == f"1 hold past its time, by up to 3 min: {tenant}"


async def test_a_limit_past_its_time(quota: Platform, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 5})
    async with locked(quota, "SELECT FROM tenants WHERE tenant = $1 FOR UPDATE", tenant):
        await quota.database.execute(
            "UPDATE limits SET expires_at = now() - interval '20 seconds' WHERE tenant = $1", tenant
        )
        found = await ask(quota, "limits")
    assert (found.code, found.verdict) == (LOOK, "warn")
    assert found.told.startswith("1 limit past its time, by up to 2")


async def test_usage_that_is_not_what_charges_add_up_to(quota: Platform, wire: Wire, tenant: str) -> None:
    await wire.ask(asking("adjust", tenant, footprint={"cpu": 700}))
    await wire.ask(asking("reserve", tenant, deployment="d2", footprint={"memory": 1 << 30}))
    spoil = "UPDATE usage SET used[1] = used[1] + $2 WHERE tenant = $1 AND stack = 'blog'"
    await quota.database.execute(spoil, tenant, 50)
    found = await ask(quota, "usage")
    await quota.database.execute(spoil, tenant, -50)
    assert (found.code, found.verdict) == (FAILED, "fail")
    assert found.told.startswith(f"1 scope wrong: {tenant}/blog/prod cpu used is 750m, should be 700m; ")
    assert found.told.endswith(" checked")

    spoil = "UPDATE usage SET held[4] = held[4] + $2 WHERE tenant = $1 AND environment = ''"
    await quota.database.execute(spoil, tenant, 1 << 30)
    found = await ask(quota, "usage")
    await quota.database.execute(spoil, tenant, -(1 << 30))
    assert f"1 scope wrong: {tenant} memory held is 2GiB, should be 1GiB" in found.told

    row = await quota.database.fetchrow("DELETE FROM usage WHERE tenant = $1 AND environment = '' RETURNING *", tenant)
    assert row is not None
    found = await ask(quota, "usage")
    await quota.database.execute("INSERT INTO usage VALUES ($1, $2, $3, $4, $5, $6)", *row)
    assert f"1 scope wrong: {tenant} cpu used is 0m, should be 700m" in found.told
    assert (await ask(quota, "usage")).verdict == "ok"


async def test_a_refold_without_time_for_all_goes_on_where_it_stopped(quota: Platform, wire: Wire) -> None:
    names = [unique(f"z{number:02}") for number in range(refold.BITE + 5)]
    for sent in [await wire.post(asking("adjust", name)) for name in names]:
        await wire.replies(sent)
    spoil = "UPDATE usage SET used[1] = used[1] + $2 WHERE tenant = $1 AND environment = ''"
    await quota.database.execute(spoil, names[-1], 1)
    nothing: Any = None
    examined = doctor.Examined(quota.database, Policy(), "", (), nothing)
    total = await quota.database.fetchval("SELECT count(*) FROM tenants")
    told: list[str] = []
    while not told or ("others when asked again" in told[-1] and len(told) < total):
        told.append((await refold.usage(examined, 0)).told)
        if names[-1] in told[-1]:
            break
    await quota.database.execute(spoil, names[-1], -1)
    assert told[0] == (
        f"{refold.BITE} tenants checked of {total:,}, the others when asked again: "
        "usage is what charges, holds and measurements add up to"
    )
    assert f"1 scope wrong: {names[-1]} cpu used is 101m, should be 100m" in told[-1]


async def test_gates_that_failed_open_and_tenants_without_entitlement(quota: Platform, wire: Wire, tenant: str) -> None:
    assert (await wire.ask(asking("reserve", tenant))).allowed
    found = await ask(quota, "gates")
    assert (found.code, found.verdict) == (LOOK, "warn")
    assert found.told.startswith("failed open within the last hour: ")
    assert " times, last " in found.told
    assert found.next.endswith("QuotaGateFailOpenAny.md")
    found = await ask(quota, "entitlements")
    assert (found.code, found.verdict) == (LOOK, "warn")
    assert "without one, so that gates fail open: " in found.told


async def test_a_scope_over_its_limit(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 5}, environment="prod")
    await wire.ask(asking("adjust", tenant, footprint={"cpu": 700}))
    try:
        found = await ask(quota, "over-limits")
        assert (found.code, found.verdict) == (LOOK, "warn")
        assert " crossed: " in found.told
        await quota.database.execute(
            "UPDATE over_limits SET since = now() - interval '9 days' WHERE tenant = $1", tenant
        )
        found = await ask(quota, "over-limits")
        assert f"{tenant}/env:prod cpu for 9 d" in found.told
        assert found.next == f"plimsoll quota status {tenant}/env:prod"
    finally:
        await wire.ask(asking("adjust", tenant, footprint=None))


async def test_a_waiting_request_past_its_time(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 10})
    waiting = await wire.post(asking("reserve", tenant, wait_seconds=200))
    await eventually(lambda: quota.database.fetchval("SELECT count(*) FROM waiters WHERE tenant = $1", tenant))
    async with locked(quota, "SELECT FROM tenants WHERE tenant = $1 FOR UPDATE", tenant):
        late = "UPDATE waiters SET until = now() - interval '2 minutes' WHERE tenant = $1"
        await quota.database.execute(late, tenant)
        found = await ask(quota, "waiters")
    assert (found.code, found.verdict) == (FAILED, "fail")
    assert found.told == f"1 waiting request past its time, by up to 2 min: {tenant}"
    # The replica remembers the tenant as it was; with another seq it looks again.
    await quota.database.execute("UPDATE tenants SET seq = seq + 1 WHERE tenant = $1", tenant)
    assert not (await wire.replies(waiting))[0].allowed


async def test_a_node_that_has_more_than_is_there(quota: Platform, wire: Wire, tenant: str) -> None:
    node = f"n-{tenant}"
    report = {"node": node, "version": 1, "pool": "p", "capacity": {"cpu": 4000, "memory": 1 << 30}}
    await wire.tell(NODE_REPORTS, report, key=node)
    placed = {"placement": {"node": node}, "footprint": {"cpu": 700}}
    assert (await wire.ask(asking("reserve", tenant, **placed))).allowed
    assert (await ask(quota, "nodes")).verdict == "ok"
    spoil = "UPDATE nodes SET cpu_allocated = cpu_allocated + $2 WHERE node = $1"
    await quota.database.execute(spoil, node, 50)
    found = await ask(quota, "nodes")
    await quota.database.execute(spoil, node, -50)
    assert (found.code, found.verdict) == (FAILED, "fail")
    assert found.told == f"1 node wrong: {node} cpu allocated is 750m, should be 700m"


async def test_a_question_about_nobody_makes_no_tenant(quota: Platform, wire: Wire, tenant: str) -> None:
    known = "SELECT count(*) FROM tenants WHERE tenant = $1"
    assert (await wire.ask(asking("check", tenant))).allowed
    assert await quota.database.fetchval(known, tenant) == 0
    # What comes next is as for anybody who was never heard of, also right behind a question in one batch.
    posted = [await wire.post(asking(verb, tenant)) for verb in ("check", "reserve", "check")]
    for each in posted:
        await wire.replies(each)
    assert await quota.database.fetchval(known, tenant) == 1
    assert await quota.used(tenant, "cpu") == (0, 100)
