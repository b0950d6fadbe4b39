import asyncio
from pathlib import Path

import asyncpg
import pytest

from plimsoll_runtime import migrations, pool
from plimsoll_runtime.migrations import Source, WrongSchemaError, migrate, verify

OFFSETS = "CREATE TABLE offsets (topic text PRIMARY KEY);"
LIMITS = """
CREATE TABLE limits (tenant text PRIMARY KEY);
GRANT USAGE ON SCHEMA quota TO quota_enforcer;
GRANT SELECT, INSERT ON offsets, limits TO quota_enforcer;
"""


def write(directory: Path, *files: str) -> Path:
    directory.mkdir(exist_ok=True)
    for number, sql in enumerate(files, start=1):
        (directory / f"{number:04}_step.sql").write_text(sql)
    return directory


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    return [
        ("streams", write(tmp_path / "streams", OFFSETS)),
        ("quota", write(tmp_path / "quota", LIMITS)),
    ]


async def test_two_components_share_a_schema_and_each_file_is_applied_once(
    owner_dsn: str, sources: list[Source]
) -> None:
    first = await migrate(owner_dsn, schema="quota", sources=sources)
    second = await migrate(owner_dsn, schema="quota", sources=sources)

    assert [str(migration) for migration in first] == ["streams/0001_step", "quota/0001_step"]
    assert second == ()

    sources[0][1].joinpath("0002_more.sql").write_text("CREATE TABLE outbox (id bigint);")
    third = await migrate(owner_dsn, schema="quota", sources=sources)
    assert [str(migration) for migration in third] == ["streams/0002_more"]


async def test_the_login_role_can_verify_and_work_but_not_migrate(
    owner_dsn: str, service_dsn: str, sources: list[Source]
) -> None:
    await migrate(owner_dsn, schema="quota", sources=sources)
    service = await pool.create(service_dsn, application_name="quota-enforcer-0", schema="quota")
    async with service:
        await verify(service, schema="quota", sources=sources)
        await service.execute("INSERT INTO limits VALUES ('acme')")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await service.execute("CREATE TABLE mine (id int)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await service.execute("UPDATE migrations SET checksum = ''")


async def test_two_at_once_apply_each_file_once(owner_dsn: str, sources: list[Source]) -> None:
    applied = await asyncio.gather(*(migrate(owner_dsn, schema="quota", sources=sources) for _ in range(4)))

    assert sorted(len(each) for each in applied) == [0, 0, 0, 2]


async def test_a_file_that_fails_leaves_nothing_of_itself(owner_dsn: str, sources: list[Source]) -> None:
    bad = sources[1][1] / "0002_bad.sql"
    bad.write_text("CREATE TABLE half (id int); SELECT 1/0;")

    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(owner_dsn, schema="quota", sources=sources)

    connection = await asyncpg.connect(owner_dsn)
    assert await connection.fetchval("SELECT to_regclass('quota.half')") is None
    assert await connection.fetchval("SELECT to_regclass('quota.limits')") is not None
    with pytest.raises(WrongSchemaError, match=r"quota/0002_bad is missing \(run `migrate`\)"):
        await verify(connection, schema="quota", sources=sources)
    await connection.close()
    bad.write_text("CREATE TABLE whole (id int);")
    assert len(await migrate(owner_dsn, schema="quota", sources=sources)) == 1


async def test_a_file_and_its_row_are_one_transaction(owner_dsn: str, sources: list[Source]) -> None:
    """The file's SQL runs well; what fails is the row that says so."""
    (sources[1][1] / "0002_bad.sql").write_text(
        "CREATE TABLE half (id int); INSERT INTO migrations VALUES ('quota', 2, 'forged', '');"
    )

    with pytest.raises(asyncpg.UniqueViolationError):
        await migrate(owner_dsn, schema="quota", sources=sources)

    connection = await asyncpg.connect(owner_dsn)
    assert await connection.fetchval("SELECT to_regclass('quota.half')") is None
    await connection.close()


async def test_a_changed_file_is_refused_by_both(owner_dsn: str, sources: list[Source]) -> None:
    await migrate(owner_dsn, schema="quota", sources=sources)
    (sources[1][1] / "0001_step.sql").write_text(LIMITS + "-- an afterthought")
    (sources[1][1] / "0002_new.sql").write_text("CREATE TABLE never (id int);")

    with pytest.raises(WrongSchemaError, match="quota/0001_step has changed"):
        await migrate(owner_dsn, schema="quota", sources=sources)

    connection = await asyncpg.connect(owner_dsn)
    with pytest.raises(WrongSchemaError, match="quota/0001_step has changed"):
        await verify(connection, schema="quota", sources=sources)
    assert await connection.fetchval("SELECT to_regclass('quota.never')") is None
    await connection.close()


async def test_a_newer_database_is_refused_by_both(owner_dsn: str, sources: list[Source]) -> None:
    newer = sources[0][1] / "0002_later.sql"
    newer.write_text("CREATE TABLE later (id int);")
    await migrate(owner_dsn, schema="quota", sources=sources)
    newer.unlink()

    connection = await asyncpg.connect(owner_dsn)
    for attempt in (
        migrate(owner_dsn, schema="quota", sources=sources),
        verify(connection, schema="quota", sources=sources),
    ):
        with pytest.raises(WrongSchemaError, match="streams/0002_later is applied but unknown here"):
            await attempt
    await connection.close()


async def test_an_empty_database_is_named_as_such(owner_dsn: str, sources: list[Source]) -> None:
    connection = await asyncpg.connect(owner_dsn)

    with pytest.raises(WrongSchemaError) as wrong:
        await verify(connection, schema="quota", sources=sources)

    assert len(wrong.value.problems) == 2
    await connection.close()


async def test_every_schema_is_versioned_by_itself(owner_dsn: str, tmp_path: Path) -> None:
    one: list[Source] = [("streams", write(tmp_path / "streams", OFFSETS))]

    assert len(await migrate(owner_dsn, schema="quota", sources=one)) == 1
    assert len(await migrate(owner_dsn, schema="usage", sources=one)) == 1


@pytest.mark.parametrize("name", ["quota; DROP", "Quota", "1quota", ""])
def test_a_schema_name_that_would_need_quotes_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a schema name"):
        migrations.check_schema_name(name)


@pytest.mark.parametrize("names", [["0002_gap.sql"], ["0001_a.sql", "0003_b.sql"], ["1_a.sql"], ["0001_A.sql"], []])
def test_files_are_numbered_without_gaps(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("")

    with pytest.raises(ValueError, match="streams: "):
        migrations.read([("streams", tmp_path)])
