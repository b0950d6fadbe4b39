"""What the doctor says while a part is away: the part first, in bounded time, and nothing of what cannot be known."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from plimsoll_devkit.enforcer import free_port
from plimsoll_devkit.platform import Platform, eventually

BOUND_SECONDS = 14
"""Ten for the service, the rest for the command itself on a busy machine."""


async def doctor(quota: Platform) -> tuple[int, Mapping[str, Mapping[str, Any]]]:
    command = [sys.executable, "-m", "plimsoll_client.cli", "doctor", "-o", "json", "--url", quota.enforcer().url]
    command += ["--token-file", str(quota.stack.credentials.token_file)]
    began = time.monotonic()
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert time.monotonic() - began < BOUND_SECONDS
    assert "Traceback" not in done.stderr
    return done.returncode, {each["check"]: each for each in json.loads(done.stdout)["findings"]}


async def back(quota: Platform) -> None:
    async def is_well() -> bool:
        _, found = await doctor(quota)
        return {found[name]["verdict"] for name in ("database", "broker", "lag")} == {"ok"}

    await eventually(is_well, seconds=60, what="everything back")


@pytest.mark.parametrize("how", ["stop", "freeze"])
@pytest.mark.parametrize(("part", "check"), [("kafka", "broker"), ("postgres", "database")])
async def test_a_part_that_is_away_is_what_is_told_first(quota: Platform, part: str, check: str, how: str) -> None:
    await quota.enforcer().start()
    await quota.enforcer().ready()
    await back(quota)
    getattr(quota.stack, how)(part)
    try:
        code, found = await doctor(quota)
    finally:
        getattr(quota.stack, "start" if how == "stop" else "thaw")(part)
    assert code == 1
    assert [name for name, each in found.items() if each["verdict"] == "fail"] == [check]
    assert found[check]["next"].endswith("StreamOutage.md")
    assert found[check]["told"].startswith("no answer")
    pointless = {name for name, each in found.items() if each["told"] == f"not looked at: {check} comes first"}
    assert pointless == ({"topics", "lag"} if part == "kafka" else pointless)
    assert ("usage" in pointless) == (part == "postgres")
    other = "database" if part == "kafka" else "broker"
    assert found[other]["verdict"] == "ok"
    await back(quota)


async def test_a_service_that_was_killed_is_told_after_its_address(quota: Platform) -> None:
    await quota.enforcer().start()
    await quota.enforcer().ready()
    await quota.enforcer().kill()
    code, found = await doctor(quota)
    assert code == 8
    assert [name for name, each in found.items() if each["verdict"] == "fail"] == ["service"]
    assert "does not answer" in found["service"]["told"]


async def test_a_replica_that_was_killed_leaves_partitions_to_nobody_until_the_others_have_them(
    quota: Platform,
) -> None:
    await quota.enforcer(0).start()
    await quota.enforcer(0).ready()
    await quota.enforcer(1).start()
    await quota.enforcer(1).ready()

    async def is_shared() -> bool:
        _, found = await doctor(quota)
        told = found["ownership"]["told"]
        return "quota-enforcer-0" in told and "quota-enforcer-1" in told and found["ownership"]["verdict"] == "ok"

    await eventually(is_shared, seconds=60, what="two owners")
    await quota.enforcer(1).kill()
    code, found = await doctor(quota)
    assert code == 1
    assert found["ownership"]["verdict"] == "fail"
    assert found["ownership"]["told"].endswith(" more")
    assert " of quota-enforcer-1, " in found["ownership"]["told"]

    async def is_taken_over() -> bool:
        _, found = await doctor(quota)
        return bool(found["ownership"]["verdict"] == "ok" and found["instances"]["told"].startswith("1 replica"))

    await eventually(is_taken_over, seconds=60, what="one owner")


async def test_two_live_processes_under_one_ordinal_are_named(quota: Platform) -> None:
    await quota.enforcer(0).start()
    await quota.enforcer(0).ready()
    folder = quota.stack.folder / "twin"
    twin = replace(quota.enforcer(0), folder=folder, port=free_port(), process=None)
    twin.folder.mkdir()
    await twin.start()
    try:

        async def is_told() -> bool:
            _, found = await doctor(quota)
            return str(found["instances"]["verdict"]) == "fail"

        await eventually(is_told, seconds=40, what="the twin")
        code, found = await doctor(quota)
        assert code == 1
        for process in (quota.enforcer(0).pid, twin.pid):
            assert f":{process}" in found["instances"]["told"]
        assert found["instances"]["told"].startswith("2 processes run as quota-enforcer-0: ")
    finally:
        await twin.kill()
