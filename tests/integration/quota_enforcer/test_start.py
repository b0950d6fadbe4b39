"""What a process does when it starts and ends: it refuses what is wrong in one clear line, and exports everything."""

import json
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import asyncpg
import pytest

from plimsoll_devkit.enforcer import PARTITIONS, Enforcer, series
from plimsoll_devkit.platform import Platform
from plimsoll_devkit.stack import database
from plimsoll_devkit.stack.database import Database, on_server
from plimsoll_devkit.stack.postgres import create_database
from plimsoll_devkit.wire import Wire, asking
from plimsoll_quota_enforcer import metrics as declared_by_the_service
from plimsoll_runtime import metrics
from plimsoll_streams import metrics as declared_by_the_engine

POISON = "SELECT count(*) FROM dead_letters WHERE code = 'X500002POISON'"


@pytest.fixture
async def empty(quota: Platform) -> AsyncIterator[Database]:
    """A database beside the platform's, with the roles and no schema."""
    name = f"start_{secrets.token_hex(4)}"
    await create_database(quota.stack.postgres_admin_dsn, name)
    yield on_server(quota.stack.postgres_admin_dsn, name)
    await database.drop(quota.stack.postgres_admin_dsn, name)


def migrate(dsn: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "plimsoll_quota_enforcer", "migrate"],
        env={"PLIMSOLL_MIGRATE_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def refusal(quota: Platform, dsn: str, folder: Path, **environment: str) -> tuple[int, str]:
    """Start a process on this database and return its code and the problem that it names."""
    process = Enforcer(quota.stack.kafka_bootstrap, dsn, folder, quota.stack.credentials, instance=7)
    await process.start(**environment)
    try:
        code = await process.ended(20)
    finally:
        await process.kill()
    lines = [json.loads(line) for line in process.said().splitlines() if line.startswith("{")]
    assert "Traceback" not in process.said(), process.said()
    return code, " ".join(str(line.get("problem", "")) for line in lines)


async def test_a_database_that_is_away_is_said_in_one_line(quota: Platform, tmp_path: Path) -> None:
    code, problem = await refusal(quota, "postgresql://quota_enforcer@127.0.0.1:1/plimsoll", tmp_path)

    assert code == 1
    assert "Connect call failed" in problem


async def test_a_database_without_a_schema_is_refused(quota: Platform, empty: Database, tmp_path: Path) -> None:
    code, problem = await refusal(quota, empty.dsn(), tmp_path)

    assert code == 1
    assert "quota/0001_model is missing (run `migrate`)" in problem


async def test_a_schema_that_was_changed_or_is_newer_is_refused(
    quota: Platform, empty: Database, tmp_path: Path
) -> None:
    done = migrate(empty.owner_dsn)
    assert done.returncode == 0, done.stderr
    assert "up to date" in done.stdout
    owner = await asyncpg.connect(empty.owner_dsn)
    try:
        await owner.execute("UPDATE quota.migrations SET checksum = 'x' WHERE component = 'quota' AND version = 1")
        await owner.execute(
            "INSERT INTO quota.migrations (component, version, name, checksum) VALUES ('quota', 999, 'later', 'y')"
        )
    finally:
        await owner.close()

    code, problem = await refusal(quota, empty.dsn(), tmp_path)

    assert code == 1
    assert "quota/0001_model has changed since it was applied" in problem
    assert "quota/0999_later is applied but unknown here" in problem
    again = migrate(empty.owner_dsn)
    assert again.returncode != 0, "and no migration runs on top of it"


async def test_a_key_set_that_is_none_is_refused(quota: Platform, tmp_path: Path) -> None:
    dsn, file = quota.stack.database.dsn(), tmp_path / "jwks.json"
    code, problem = await refusal(quota, dsn, tmp_path, PLIMSOLL_AUTH_JWKS=str(file))
    assert (code, problem) == (1, f"{file}: No such file or directory")
    file.write_text('{"keys": []}')
    code, problem = await refusal(quota, dsn, tmp_path, PLIMSOLL_AUTH_JWKS=str(file))
    assert code == 1
    assert problem.startswith("no usable key")


async def test_migrating_twice_changes_nothing(empty: Database) -> None:
    first, second = migrate(empty.owner_dsn), migrate(empty.owner_dsn)

    assert (first.returncode, second.returncode) == (0, 0)
    assert "applied quota/0001_model" in first.stdout
    assert "applied" not in second.stdout


async def test_the_service_role_cannot_migrate(empty: Database) -> None:
    assert migrate(empty.dsn()).returncode != 0


def test_every_wrong_setting_is_named_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "plimsoll_quota_enforcer"],
        env={
            "PLIMSOLL_POSTGRES_DSN": "mysql://user:secret@host/x",
            "PLIMSOLL_HTTP_PORT": "99999",
            "PLIMSOLL_ENTITLEMENTS": "maybe",
            "PLIMSOLL_WINDOW_HOURS": "0",
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 2
    for name in ("KAFKA_BOOTSTRAP", "POSTGRES_DSN", "HTTP_PORT", "ENTITLEMENTS", "WINDOW_HOURS"):
        assert f"PLIMSOLL_{name}" in done.stderr
    assert "secret" not in done.stderr


async def test_a_fresh_process_exports_every_declared_series_at_zero(fresh: dict[str, float]) -> None:
    assert declared_by_the_service.decisions
    assert declared_by_the_engine.records
    moved = {"streams_claims_total", "streams_batches_total"}  # it has claimed its partitions by then
    declared = [each for each in metrics.catalogue() if each.name.startswith(("quota_", "streams_"))]
    assert len(declared) > 20
    for each in declared:
        names = [f"{each.name}_count"] if each.kind == "histogram" else [each.name]
        for name, values in product(names, product(*each.labels.values())):
            one = series(name, **dict(zip(each.labels, values, strict=True)))
            assert one in fresh, one
            if each.kind != "gauge" and each.name not in moved:
                assert fresh[one] == 0, one


async def test_a_process_that_starts_after_its_partitions_ran_out_makes_them_first(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    days = await quota.database.fetch(
        "SELECT c.relname AS name, i.inhparent::regclass::text AS parent FROM pg_inherits i"
        " JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind = 'r'"
    )
    before = await quota.database.fetchval(POISON)
    await quota.enforcer().stop()
    for day in days:
        await quota.database.execute(f"ALTER TABLE {day['parent']} DETACH PARTITION {day['name']}")
        await quota.database.execute(f"ALTER TABLE {day['name']} RENAME TO old_{day['name']}")
    correlation = await wire.request(asking("reserve", tenant))
    try:
        await quota.enforcer().start()
        assert (await wire.replies(correlation, seconds=30))[0].allowed
    finally:
        for day in days:
            await quota.database.execute(f"INSERT INTO {day['parent']} SELECT * FROM old_{day['name']}")  # noqa: S608
            await quota.database.execute(f"DROP TABLE old_{day['name']}")
    assert await quota.database.fetchval(POISON) == before
    assert "bug" not in quota.enforcer().said()


async def test_an_engine_that_fails_ends_the_process_with_1(quota: Platform) -> None:
    await quota.enforcer().stop()
    await quota.database.execute("REVOKE UPDATE ON consumer_offsets FROM quota_enforcer")
    try:
        await quota.enforcer().start()
        assert await quota.enforcer().ended() == 1
        assert "engine failed" in quota.enforcer().said()
    finally:
        await quota.database.execute("GRANT UPDATE ON consumer_offsets TO quota_enforcer")


async def test_it_ends_in_order_when_asked_to_and_goes_on_where_it_was(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    sent = [await wire.post(asking("adjust", tenant, deployment=f"d{n}")) for n in range(200)]
    await quota.enforcer().stop()
    assert await quota.enforcer().ended() == 0
    assert await quota.database.fetchval("SELECT count(*) FROM outbox") == 0, "what was told is published first"
    await quota.enforcer().start()
    await quota.enforcer().ready(PARTITIONS)

    for correlation in sent:
        assert (await wire.replies(correlation))[0].allowed
    assert await quota.used(tenant, "cpu") == (20_000, 0)
    assert len(await quota.decisions(tenant)) == 200
