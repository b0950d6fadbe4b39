"""What a runbook tells an operator to type is right: SQL against the real schema, PromQL against promtool."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import asyncpg
import pytest

from plimsoll_devkit.stack import context
from plimsoll_devkit.stack.database import Database
from plimsoll_runtime.migrations import Source, migrate
from plimsoll_streams import MIGRATIONS

RUNBOOKS = context.ROOT / "deploy" / "monitoring" / "runbooks"
SOURCES: list[Source] = [
    MIGRATIONS,
    ("quota", context.ROOT / "services/quota-enforcer/src/plimsoll_quota_enforcer/sql/migrations"),
]

PLACEHOLDERS = {"'TOPIC'": "'usage.deltas'", "= N": "= 0", "= P": "= 0", "(PID)": "(0)"}


def quoted() -> list[tuple[str, str]]:
    """Return (runbook, code) of everything in backticks."""
    return [
        (path.stem, code)
        for path in sorted(RUNBOOKS.glob("*.md"))
        for code in re.findall(r"`([^`\n]+)`", path.read_text())
    ]


def sql(code: str) -> str | None:
    found = re.match(r'psql "\$PLIMSOLL_POSTGRES_DSN" -c "(.+)"$', code)
    text = found[1] if found else code if re.match(r"(SELECT|UPDATE) ", code) else None
    if text is not None:
        for placeholder, value in PLACEHOLDERS.items():
            text = text.replace(placeholder, value)
    return text


async def test_every_statement_runs_on_the_schema(database: Database) -> None:
    await migrate(database.owner_dsn, schema="quota", sources=SOURCES)
    service = await asyncpg.connect(database.dsn())
    owner = await asyncpg.connect(database.owner_dsn)
    run = 0
    for runbook, code in quoted():
        statement = sql(code)
        if statement is None:
            continue
        run += 1
        try:
            await (owner if statement.startswith("UPDATE") else service).execute(statement)
        except asyncpg.PostgresError as error:
            pytest.fail(f"{runbook}: {code}: {error}")
    await service.close()
    await owner.close()
    assert run >= 6


def test_every_query_is_promql(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool checks the queries and is not here: apt-get install prometheus brings it")
    queries = [code for _, code in quoted() if re.search(r"\b(streams_|quota_gate_|gate:|process_start)\w", code)]
    queries = [query for query in queries if not query.startswith("curl")]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))

    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(queries) >= 15


def test_every_module_that_is_run_can_be_run() -> None:
    modules = {found[1] for _, code in quoted() if (found := re.match(r"python -m (\w+)", code))}

    assert modules == {"plimsoll_streams", "plimsoll_quota_enforcer"}
    for module in modules:
        assert importlib.util.find_spec(f"{module}.__main__") is not None, module


def test_every_make_target_exists() -> None:
    makefile = (context.ROOT / "Makefile").read_text()
    targets = {found[1] for _, code in quoted() if (found := re.match(r"make (\w+)$", code))}

    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
