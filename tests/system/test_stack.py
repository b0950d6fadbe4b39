"""`make up`, `status`, `down`, `logs` and `reset`, in a data folder of this test's own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from plimsoll_devkit.stack.context import ROOT, read_json
from plimsoll_devkit.stack.private import PrivateStack
from plimsoll_devkit.stack.process import descendants, start_time

PARTS = ("kafka", "postgres", "valkey")


@dataclass
class Commands:
    """The stack's command line with a data folder."""

    folder: Path

    def __call__(self, *words: str, code: int = 0) -> str:
        argv = [sys.executable, "-m", "plimsoll_devkit.stack", "--data", str(self.folder / "stack"), *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=self.environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PLIMSOLL_STACK": "local"}

    def up(self, *parts: str) -> dict[str, str]:
        self("up", "--only", ",".join(parts or PARTS))
        context: dict[str, str] = json.loads((self.folder / "context.json").read_text())
        return context

    @property
    def supervisor(self) -> int:
        pid = read_json(self.folder / "stack" / "stack.pid")["pid"]
        assert isinstance(pid, int)
        return pid


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.fixture
def stack_commands() -> Iterator[Commands]:
    folder = Path(tempfile.mkdtemp(prefix="plimsoll-test-"))
    folder.chmod(0o755)
    commands = Commands(folder)
    yield commands
    commands("reset")
    shutil.rmtree(folder)


async def _make_something(context: dict[str, str]) -> None:
    owner = context["postgres"].replace("quota_enforcer@", "plimsoll_owner@")
    connection = await asyncpg.connect(owner)
    await connection.execute("CREATE SCHEMA quota; CREATE TABLE quota.kept AS SELECT 42 AS answer")
    await connection.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=context["kafka"])
    await admin.start()
    await admin.create_topics([NewTopic("kept", 3, 1)])
    await admin.close()


async def _is_there(context: dict[str, str]) -> bool:
    owner = context["postgres"].replace("quota_enforcer@", "plimsoll_owner@")
    connection = await asyncpg.connect(owner)
    answer = await connection.fetchval("SELECT answer FROM quota.kept")
    await connection.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=context["kafka"])
    await admin.start()
    topics = await admin.list_topics()
    await admin.close()
    return bool(answer == 42 and "kept" in topics)


async def test_state_and_addresses_survive_down_and_up(stack_commands: Commands) -> None:
    began = time.monotonic()
    context = stack_commands.up()
    # The promise is for a machine of one's own: others' load on a shared one is given its share of time.
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert time.monotonic() - began < 12 * crowd
    await _make_something(context)
    status = stack_commands("status")
    for part in PARTS:
        assert any(line.startswith(part) and " ready " in line for line in status.splitlines()), status
    assert stack_commands.up() == context, "a second up finds it running"
    children = descendants(stack_commands.supervisor)
    assert len(children) >= len(PARTS)

    assert "its data stays" in stack_commands("down")
    assert not any(start_time(pid) for pid in children)
    assert not (stack_commands.folder / "context.json").exists()
    assert "nothing is running" in stack_commands("status", code=1)
    assert "nothing is running" in stack_commands("down")

    assert stack_commands.up() == context
    assert await _is_there(context)
    assert "postgres       | " in stack_commands("logs")


async def test_nothing_outlives_a_supervisor_that_is_killed(stack_commands: Commands) -> None:
    context = stack_commands.up()
    await _make_something(context)
    supervisor = stack_commands.supervisor
    children = descendants(supervisor)
    assert len(children) >= len(PARTS)
    os.kill(supervisor, signal.SIGKILL)
    _wait_until(lambda: not any(start_time(pid) for pid in children))
    assert [pid for pid in children if start_time(pid)] == []
    assert "nothing is running" in stack_commands("status", code=1)
    assert stack_commands.up() == context
    assert await _is_there(context)


def test_a_part_that_ends_by_itself_is_started_again(stack_commands: Commands) -> None:
    stack_commands.up("valkey")
    (child,) = descendants(stack_commands.supervisor)
    os.kill(child, signal.SIGKILL)
    state = stack_commands.folder / "stack" / "state.json"

    def valkey() -> tuple[object, ...]:
        one = read_json(state)["parts"]["valkey"]  # type: ignore[index]
        return one["restarts"], one["phase"], one["pid"]

    _wait_until(lambda: valkey()[:2] == (1, "ready"))
    assert valkey() == (1, "ready", *descendants(stack_commands.supervisor))
    assert "valkey: ended with code -9" in stack_commands("logs")


def test_a_part_that_cannot_start_is_named_with_its_last_output(stack_commands: Commands) -> None:
    cluster = stack_commands.folder / "stack" / "postgres"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("9.1\n")
    shown = stack_commands("up", "--only", "postgres,valkey", code=1)
    assert "postgres: it ended before it was ready" in shown
    assert "postgresql.conf" in shown
    assert "postgres failed" in shown
    assert "nothing is running" in stack_commands("status", code=1)


def test_reset_throws_the_data_away_and_stops(stack_commands: Commands) -> None:
    stack_commands.up("valkey")
    child = descendants(stack_commands.supervisor)
    stack_commands("reset")
    assert not any(start_time(pid) for pid in child)
    assert not (stack_commands.folder / "stack").exists()


def test_a_misspelt_part_is_refused_with_the_names_there_are(stack_commands: Commands) -> None:
    shown = stack_commands("up", "--only", "kafak", code=2)
    assert "no such part: kafak; there are kafka, postgres" in shown


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is missing: apt-get install prometheus")
def test_prometheus_loads_our_rules(stack_commands: Commands) -> None:
    address = stack_commands.up("prometheus")["prometheus"]
    groups = httpx.get(f"{address}/api/v1/rules").json()["data"]["groups"]
    loaded = {Path(group["file"]).name for group in groups}
    assert loaded == {file.name for file in (ROOT / "deploy" / "monitoring").glob("*.yaml")}


def test_an_interrupted_start_leaves_nothing_behind(stack_commands: Commands) -> None:
    """Ctrl-C while parts start: each is stopped, also one that is not ready yet."""
    folder = str(stack_commands.folder / "stack")
    argv = [sys.executable, "-m", "plimsoll_devkit.stack", "--data", folder, "supervise", "--only", ",".join(PARTS)]
    supervisor = subprocess.Popen(argv, env=stack_commands.environment, start_new_session=True)
    _wait_until(lambda: len(descendants(supervisor.pid)) > 1)
    children = descendants(supervisor.pid)
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(20) == 0
    assert children
    assert [pid for pid in children if start_time(pid)] == []


def test_ctrl_c_while_it_comes_up_stops_it_and_says_so(stack_commands: Commands) -> None:
    folder = str(stack_commands.folder / "stack")
    argv = [sys.executable, "-m", "plimsoll_devkit.stack", "--data", folder, "up", "--only", ",".join(PARTS)]
    up = subprocess.Popen(
        argv, env=stack_commands.environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    _wait_until(lambda: len(descendants(up.pid)) > 2)
    started = {pid: start_time(pid) for pid in descendants(up.pid)}
    for _ in range(2):
        up.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, said = up.communicate(timeout=20)
    assert up.returncode == 130
    assert "interrupted: what was started is stopped" in said
    assert len(started) > 2
    assert [pid for pid, began in started.items() if start_time(pid) == began] == []
    assert "nothing is running" in stack_commands("status", code=1)


def test_two_starts_at_once_are_one_start(stack_commands: Commands) -> None:
    folder = str(stack_commands.folder / "stack")
    argv = [sys.executable, "-m", "plimsoll_devkit.stack", "--data", folder, "up", "--only", "valkey"]
    both = [subprocess.Popen(argv, env=stack_commands.environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [each.communicate(timeout=40)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert said[0] == said[1]
    assert "valkey" in said[0]
    supervising = subprocess.run(["pgrep", "-f", f"{folder} supervise"], capture_output=True, text=True, check=False)
    assert supervising.stdout.split() == [str(stack_commands.supervisor)]


def test_a_private_stack_writes_a_context_and_leaves_no_folder() -> None:
    with PrivateStack(["valkey"]) as stack:
        assert json.loads(stack.write_context().read_text()) == {"valkey": stack.valkey_url}
        folder, pid = stack.folder, stack.pid("valkey")
    assert not folder.exists()
    assert start_time(pid) is None
