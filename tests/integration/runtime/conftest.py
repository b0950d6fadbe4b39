"""A temporary cluster, until the session's shared one can be had from the devkit."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest


def _run(*command: str | Path) -> None:
    user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
    subprocess.run(command, check=True, user=user, stdout=subprocess.DEVNULL, cwd="/")


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    home = Path(tempfile.mkdtemp(prefix="plimsoll-pg-"))
    data = home / "data"
    if os.getuid() == 0:
        shutil.chown(home, "nobody")
    _run("initdb", "-A", "trust", "-U", "postgres", "-N", data)
    options = f"-c listen_addresses= -c unix_socket_directories={home} -c fsync=off"
    _run("pg_ctl", "-D", data, "-w", "-l", home / "log", "-o", options, "start")
    try:
        yield f"postgresql://postgres@/postgres?host={home}"
    finally:
        _run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(home)


@pytest.fixture
async def owner_dsn(cluster: str) -> AsyncIterator[str]:
    name = f"t_{uuid4().hex}"
    admin = await asyncpg.connect(cluster)
    for role in ("plimsoll_owner", "quota_enforcer"):
        if not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role):
            await admin.execute(f"CREATE ROLE {role} LOGIN")
    await admin.execute(f"CREATE DATABASE {name} OWNER plimsoll_owner")
    yield cluster.replace("/postgres?", f"/{name}?").replace("postgres@", "plimsoll_owner@")
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture
def service_dsn(owner_dsn: str) -> str:
    return owner_dsn.replace("plimsoll_owner@", "quota_enforcer@")
