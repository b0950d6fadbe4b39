"""``plimsoll`` about the past and its reasons, against the real service."""

import asyncio
import json
import signal
import sys
from datetime import UTC, datetime, timedelta

import pytest
from tests.system.command import plimsoll

from plimsoll_devkit.platform import Platform
from plimsoll_devkit.wire import asking, unique


@pytest.fixture
def tenant() -> str:
    return unique("past")


async def test_what_was_used_then_and_what_was_decided(running: Platform, tenant: str) -> None:
    await running.set_limits(tenant, {"cpu": 500}, environment="prod")
    place = {"environment": "prod", "stack": "blog"}
    reserve = asking("reserve", tenant, deployment="d1", footprint={"cpu": 300}, **place)
    await running.wire.ask(reserve)
    then = datetime.now(UTC) + timedelta(milliseconds=1)
    await running.wire.ask(asking("commit", tenant, hold=reserve["request_id"]))
    refused = asking("reserve", tenant, deployment="d2", footprint={"cpu": 300}, **place)
    await running.wire.ask(refused)

    now = await plimsoll(running, "quota", "usage", f"{tenant}/env:prod", "-o", "json")
    past = await plimsoll(running, "quota", "usage", f"{tenant}/env:prod", "--at", then.isoformat(), "-o", "json")
    figures = [json.loads(done.out)["dimensions"][0] for done in (past, now)]
    assert [(each["used"], each["held"]) for each in figures] == [(0, 300), (300, 0)]
    early = await plimsoll(running, "quota", "usage", tenant, "--at", "1h")
    assert early.code == 3
    assert f"{tenant} is known since" in early.err

    listed = await plimsoll(running, "decisions", "list", tenant)
    assert [line.split()[3] for line in listed.out.splitlines()] == ["DENIED", "ALLOWED", "ALLOWED"]
    denied = await plimsoll(running, "decisions", "list", tenant, "--denied", "--deployment", "d2", "-o", "csv")
    assert denied.out.splitlines()[1].split(",")[2] == refused["request_id"]
    shown = await plimsoll(running, "decisions", "show", refused["request_id"], "--tenant", tenant)
    assert shown.out.startswith(f"DENIED X403001CPUEXC  {tenant}/blog/prod  reserve {refused['request_id']}")
    assert "used 300m  held 0m  asked 300m  would fit 200m" in shown.out
    assert (await plimsoll(running, "decisions", "show", "nothing", "--tenant", tenant)).code == 3


async def test_a_figure_is_explained_and_other_limits_are_tried(running: Platform, tenant: str) -> None:
    await running.set_limits(tenant, {"cpu": 500}, environment="prod", reason="a pilot")
    place = {"environment": "prod", "stack": "blog"}
    await running.wire.ask(asking("adjust", tenant, deployment="d1", footprint={"cpu": 300}, **place))
    hold = asking("reserve", tenant, deployment="d2", footprint={"cpu": 150}, **place)
    await running.wire.ask(hold)

    explained = await plimsoll(running, "quota", "explain", f"{tenant}/env:prod", "cpu")
    assert explained.code == 0
    for told in (
        "cpu (reserved)  used 300m  held 150m  limit 500m  headroom 50m",
        "-> override 500m (override, ",
        ": a pilot",
        "charge   300m  d1 in ",
        "hold    +150m  d2 in ",
        "gate      deployments: fail_open",
    ):
        assert told in explained.out
    request = await plimsoll(running, "quota", "explain", hold["request_id"], "--tenant", tenant)
    assert request.out.startswith(f"ALLOWED  {tenant}/blog/prod  reserve {hold['request_id']}")

    tried = await plimsoll(running, "quota", "simulate", "--set", f"{tenant}/env:prod", "cpu=400m", "--since", "1h")
    assert tried.code == 5
    assert "newly refused 1   newly allowed 0" in tried.out
    assert f"REFUSED  {hold['request_id']}  {tenant}/blog/prod  d2  X403001CPUEXC" in tried.out
    assert f"OVER NOW  {tenant}/env:prod cpu (reserved) over by 50m: limit 400m  used 300m  held 150m" in tried.out
    same = await plimsoll(running, "quota", "simulate", "--set", f"{tenant}/env:prod", "cpu=500m", "--since", "1h")
    assert (same.code, "newly refused 0" in same.out) == (0, True)


async def test_decisions_are_followed_as_they_are_made(running: Platform, tenant: str) -> None:
    command = [sys.executable, "-m", "plimsoll_client.cli", "decisions", "tail", tenant, "-o", "json"]
    command += ["--url", running.enforcer().url, "--token-file", str(running.stack.credentials.token_file)]
    tail = await asyncio.create_subprocess_exec(
        *command, "--since", "1h", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert tail.stdout is not None
        for _ in range(2):
            asked = asking("adjust", tenant)
            await running.wire.ask(asked)
            line = await asyncio.wait_for(tail.stdout.readline(), 20)
            assert json.loads(line)["request_id"] == asked["request_id"]
        tail.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(tail.communicate(), 10)
        assert (tail.returncode, out, err) == (0, b"", b"")
    finally:
        if tail.returncode is None:
            tail.kill()


async def test_gates_of_one_and_of_all(running: Platform, tenant: str) -> None:
    await running.wire.ask(asking("reserve", tenant))
    one = await plimsoll(running, "gates", tenant)
    assert one.code == 4
    assert "fail_open" in one.out
    everybody = await plimsoll(running, "gates")
    assert everybody.code == 4
    assert any(line.split()[:2] == [tenant, "0"] for line in everybody.out.splitlines())
