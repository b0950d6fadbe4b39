"""Each import contract breaks on what it forbids: a rule that cannot fail would only look like one."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted(ROOT.glob("libs/*/src")) + sorted(ROOT.glob("services/*/src"))
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]

PLANTED = [
    ("ladder", "plimsoll_contracts/codes.py", "import plimsoll_runtime.config"),
    ("ladder", "plimsoll_client/outcomes.py", "import plimsoll_streams.records"),
    ("ladder", "plimsoll_streams/records.py", "import plimsoll_quota_enforcer.config"),
    ("ladder", "plimsoll_quota_enforcer/config.py", "import plimsoll_devkit"),
    ("service-shape", "plimsoll_quota_enforcer/domain/model.py", "import plimsoll_quota_enforcer.metrics"),
    ("service-shape", "plimsoll_quota_enforcer/storage/rows.py", "import plimsoll_quota_enforcer.handlers"),
    ("service-shape", "plimsoll_quota_enforcer/in_no_layer.py", ""),
    ("pure-domain", "plimsoll_quota_enforcer/domain/model.py", "import time"),
    ("pure-domain", "plimsoll_quota_enforcer/domain/decide.py", "import asyncpg"),
    ("pure-domain", "plimsoll_streams/ownership.py", "import asyncio"),
    ("domain-knows-no-engine", "plimsoll_quota_enforcer/domain/model.py", "import plimsoll_streams.records"),
    ("kafka-in-one-place", "plimsoll_quota_enforcer/storage/rows.py", "import aiokafka"),
    ("kafka-in-one-place", "plimsoll_quota_enforcer/handlers.py", "import faststream"),
    ("client-is-light", "plimsoll_client/outcomes.py", "import asyncpg"),
    ("client-is-light", "plimsoll_client/outcomes.py", "import plimsoll_runtime.config"),
    ("contracts-are-data", "plimsoll_contracts/codes.py", "import socket"),
]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what is linted, so that nothing is ever planted in the working tree."""
    folder = tmp_path_factory.mktemp("copied")
    for source in SOURCES:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(folder: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), *(f"--contract={contract}" for contract in contracts)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_contract_has_a_planted_violation() -> None:
    assert {contract["id"] for contract in CONTRACTS} == {contract for contract, _, _ in PLANTED}


def test_the_copy_is_clean(copied: Path) -> None:
    done = lint(copied, *(contract["id"] for contract in CONTRACTS))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("contract", "file", "statement"), PLANTED)
def test_a_planted_violation_breaks_its_contract(copied: Path, contract: str, file: str, statement: str) -> None:
    path = copied / file
    before = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text(f"{before or ''}\n{statement}\n", encoding="utf-8")
    try:
        done = lint(copied, contract)
    finally:
        path.unlink() if before is None else path.write_text(before, encoding="utf-8")
    assert done.returncode == 1
    assert "BROKEN" in done.stdout or "in_no_layer" in done.stdout + done.stderr, done.stdout + done.stderr


DECIDES = "services/quota-enforcer/src/plimsoll_quota_enforcer/domain/planted.py"


@pytest.mark.parametrize(
    "statement",
    ["import time", "import random", "from uuid import uuid4", "from datetime import datetime\n\ndatetime.now()"],
)
@pytest.mark.parametrize(
    ("where", "banned"),
    [
        (DECIDES, True),
        ("libs/contracts/src/plimsoll_contracts/planted.py", True),
        ("libs/streams/src/plimsoll_streams/ownership.py", True),
        ("libs/streams/src/plimsoll_streams/planted.py", False),
        ("services/quota-enforcer/src/plimsoll_quota_enforcer/planted.py", False),
    ],
)
def test_clocks_and_chance_are_banned_where_decisions_are_made(statement: str, where: str, *, banned: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename", where, "-"],
        input=statement,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 1) == banned, done.stdout + done.stderr
    assert ("TID251" in done.stdout) == banned
