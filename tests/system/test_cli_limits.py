"""Limits as files, their history and requests for them, as an operator works with them against the real service."""

import asyncio
import json
import os
import pty
import sys
from pathlib import Path

import pytest
from tests.system.command import plimsoll

from plimsoll_client.cli.quotas_file import read
from plimsoll_devkit.platform import Platform
from plimsoll_devkit.wire import unique


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have room for every column, whatever terminal the tests are run on."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def tenant() -> str:
    return unique("file")


@pytest.fixture
def file(tmp_path: Path, tenant: str) -> str:
    path = tmp_path / "quotas.yaml"
    path.write_text(f"scopes:\n  {tenant}: {{cpu: 4}}\n  {tenant}/env:dev: {{memory: 8GiB, apps: 3}}\n")
    return str(path)


async def test_a_file_is_planned_applied_applied_again_and_undone(
    running: Platform, tenant: str, file: str, tmp_path: Path
) -> None:
    await running.set_limits(tenant, {"cpu": 2000})
    await running.set_limits(tenant, {"apps": 3}, environment="dev")
    lines = f"{tenant}  cpu  2 -> 4\n{tenant}/env:dev  memory  inherit -> 8GiB\n"

    plan = await plimsoll(running, "quota", "apply", "-f", file, "--dry-run")
    assert (plan.code, plan.out) == (0, lines)
    assert "dry run: nothing was changed" in plan.err
    assert (
        f"  {tenant}:\n    cpu:\n      value: 2\n      reason: test\n  {tenant}/env:dev:\n    memory: null" in plan.err
    )

    undo = tmp_path / "undo.yaml"
    refused = await plimsoll(running, "quota", "apply", "-f", file, "--inverse", str(undo))
    assert (refused.code, undo.exists()) == (2, False)
    assert "--yes" in refused.err
    done = await plimsoll(running, "quota", "apply", "-f", file, "--yes", "--reason", "Q3", "--inverse", str(undo))
    assert (done.code, done.out) == (0, lines)
    assert "2 changed, 1 were as declared" in done.err
    assert set(read(undo.read_bytes(), "undo").scopes) == {tenant, f"{tenant}/env:dev"}

    again = await plimsoll(running, "quota", "apply", "-f", file, "--yes")
    assert (again.code, again.out.strip()) == (0, "")
    assert "nothing to do: 3 limits are as declared" in again.err

    taken = await plimsoll(running, "quota", "apply", "-f", file, "--yes", "--inverse", str(undo))
    assert taken.code == 0, "there is nothing to undo, so the file is not touched"
    back = await plimsoll(running, "quota", "apply", "-f", str(undo), "--yes", "-o", "json")
    assert json.loads(back.out)["applied"]
    listed = json.loads((await plimsoll(running, "quota", "list", tenant, "--limits", "-o", "json")).out)["limits"]
    assert [(x["scope"], x["dimension"], x["limit"]["value"]) for x in listed] == [
        (tenant, "cpu", 2000),
        (f"{tenant}/env:dev", "apps", 3),
    ]

    once_more = await plimsoll(running, "quota", "apply", "-f", file, "--yes", "--inverse", str(undo))
    assert once_more.code == 1
    assert "cannot be written: File exists; nothing was changed" in once_more.err
    assert (await plimsoll(running, "quota", "apply", "-f", file, "--dry-run")).out == lines


async def test_history_tells_it_all(running: Platform, tenant: str, file: str) -> None:
    await running.set_limits(tenant, {"cpu": 2000}, mode="shadow", reason="to see")
    assert (await plimsoll(running, "quota", "apply", "-f", file, "--yes", "--reason", "Q3")).code == 0
    assert (await plimsoll(running, "quota", "unset", tenant, "cpu", "--reason", "over")).code == 0
    found = (await plimsoll(running, "quota", "history", tenant, "cpu")).out.splitlines()
    assert [line.rstrip().split("  ")[-1] for line in found[1:]] == ["over", "Q3", "to see"]
    assert ["4 -> inherit" in found[1], "2 (shadow) -> 4" in found[2], "inherit -> 2 (shadow)" in found[3]] == [
        True
    ] * 3
    assert all("admin" in line for line in found[1:])
    everything = await plimsoll(running, "quota", "history", tenant, "--below", "-o", "csv")
    assert len(everything.out.splitlines()) == 1 + 5
    assert (await plimsoll(running, "quota", "history", "--last", "1")).out.count("\n") == 2
    nothing = await plimsoll(running, "quota", "history", tenant, "disk")
    assert (nothing.code, "was ever changed" in nothing.err) == (0, True)
    assert (await plimsoll(running, "quota", "history", tenant, "dsik")).code == 2


async def test_shadow_is_seen_wherever_a_limit_is(running: Platform, tenant: str) -> None:
    done = await plimsoll(running, "quota", "set", tenant, "cpu=2", "--shadow", "--reason", "to see")
    assert "shadow" in done.out
    listed = await plimsoll(running, "quota", "list", "--shadow", "--dimension", "cpu")
    (line,) = (line for line in listed.out.splitlines() if line.startswith(tenant))
    assert "admin" in line
    assert "shadow" in line
    assert line.endswith("to see")
    status = await plimsoll(running, "quota", "status", tenant)
    (line, _) = (line for line in status.out.splitlines() if line.startswith("cpu"))
    assert "shadow: to see" in line


async def test_below_usage_and_bad_files_have_their_exit_codes(
    running: Platform, tenant: str, file: str, tmp_path: Path
) -> None:
    await running.client.adjust(tenant=tenant, deployment="d", footprint={"cpu": "5"})
    plan = await plimsoll(running, "quota", "apply", "-f", file, "--dry-run")
    assert plan.code == 6
    assert "below used 5000m" in plan.out
    refused = await plimsoll(running, "quota", "apply", "-f", file, "--yes")
    assert (refused.code, "--force" in refused.err) == (6, True)
    listed = await plimsoll(running, "quota", "list", tenant, "--limits", "-o", "json")
    assert json.loads(listed.out) == {"limits": []}
    assert (await plimsoll(running, "quota", "apply", "-f", file, "--yes", "--force")).code == 0

    bad = tmp_path / "bad.yaml"
    bad.write_text(f"scopes:\n  {tenant}:\n    cpu: 9\n    gpu: 1\n")
    wrong = await plimsoll(running, "quota", "apply", "-f", str(bad), "--yes")
    assert wrong.code == 2
    assert f"{bad}:4: there is no dimension 'gpu'" in wrong.err
    assert (await plimsoll(running, "quota", "apply", "-f", str(tmp_path / "none.yaml"))).code == 2
    reserved = await plimsoll(running, "quota", "set", "defaults/env:prod", "cpu=1")
    assert (reserved.code, "X400112NAMRES" in reserved.err) == (2, True)


async def test_requests_are_asked_listed_and_decided_once(running: Platform, tenant: str) -> None:
    asked = await plimsoll(
        running, "limits", "requests", "ask", f"{tenant}/env:prod", "memory=16g", "--reason", "the sale"
    )
    assert asked.code == 0
    assert f"asked  {tenant}/env:prod  memory  16GiB\n  asked by admin" in asked.out
    (request,) = (
        str(x["id"])
        for x in json.loads((await plimsoll(running, "limits", "requests", "list", tenant, "-o", "json")).out)[
            "requests"
        ]
    )
    listed = await plimsoll(running, "limits", "requests", "list", "--state", "asked")
    assert any(line.split()[0] == request for line in listed.out.splitlines())
    approved = await plimsoll(
        running, "limits", "requests", "approve", request, "--value", "8g", "--until", "3d", "--reason", "half"
    )
    assert approved.code == 0
    assert "set to 8GiB (version 1, until " in approved.out
    again = await plimsoll(running, "limits", "requests", "reject", request, "--reason", "no")
    assert (again.code, "X409011REQDEC" in again.err) == (6, True)
    shown = await plimsoll(running, "limits", "requests", "show", request)
    assert "approved by admin" in shown.out
    assert (await plimsoll(running, "limits", "requests", "show", "999999999")).code == 3
    assert (await plimsoll(running, "limits", "requests", "ask", tenant, "gpu=1", "--reason", "x")).code == 2


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
async def test_somebody_at_a_terminal_is_asked(
    running: Platform, tenant: str, file: str, answer: bytes, code: int
) -> None:
    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-m", "plimsoll_client.cli", "quota", "apply", "-f", file]
    command += ["--url", running.enforcer().url, "--token-file", str(running.stack.credentials.token_file)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=terminal, stderr=terminal, stdout=asyncio.subprocess.PIPE
    )
    os.write(keyboard, answer)
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    os.close(terminal)
    os.close(keyboard)
    assert process.returncode == code
    assert f"{tenant}  cpu  inherit -> 4" in out.decode(), "the plan is seen before the question"
    listed = json.loads((await plimsoll(running, "quota", "list", tenant, "--limits", "-o", "json")).out)["limits"]
    assert bool(listed) is (code == 0)
