"""The examples are run as a reader would run them, against the real service."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from plimsoll_contracts.topics import NODE_REPORTS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import asking

EXAMPLES = Path(__file__).parents[2] / "examples"


async def run(running: Platform, name: str, *arguments: str) -> str:
    environment = {**os.environ, "PLIMSOLL_KAFKA_BOOTSTRAP": running.stack.kafka_bootstrap}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_example_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "ask",
        "plain_caller",
        "faststream_publisher",
        "flow",
        "rollout",
    }


async def test_four_headers_and_json_are_enough(running: Platform) -> None:
    await running.set_limits("plain", {"cpu": 1000})
    assert await run(running, "plain_caller", "plain", "500m") == "allowed\n"
    assert await running.used("plain", "cpu") == (0, 0)  # given back
    denied = await run(running, "plain_caller", "plain", "2")
    assert denied.startswith("denied: X403001CPUEXC")
    assert "  plain cpu: 1000 would fit\n" in denied


async def test_a_plain_faststream_publisher_tells_facts(running: Platform) -> None:
    told = await run(running, "faststream_publisher", "facts")
    assert told.splitlines() == [
        "told entitlement.snapshot.v1 on entitlement.events",
        "told usage.delta.v1 on usage.deltas",
    ]

    async def arrived() -> bool:
        status = await running.status("facts")
        return bool(status["plan"] == "team" and status["deployments"] == 1)

    await eventually(arrived, what="the plan and the deployment")
    assert await running.used("facts", "cpu") == (1500, 0)


async def test_a_flow_commits_what_it_installed_and_gives_back_what_it_did_not(running: Platform) -> None:
    await running.set_limits("flow", {"cpu": 2000})
    failed = await run(running, "flow", "flow", "2", "4g", "--fail")
    assert failed == "installation failed, the hold is given back: the image could not be pulled\n"
    assert await running.used("flow", "cpu") == (0, 0)
    assert await run(running, "flow", "flow", "2", "4g") == "installed and committed\n"
    assert await running.used("flow", "cpu") == (2000, 0)
    denied = await run(running, "flow", "flow", "3", "4g")
    assert denied.startswith("not installed: X403001CPUEXC")
    await running.audit()


async def test_an_upgrade_takes_its_predecessors_room_waits_for_more_and_is_placed(running: Platform) -> None:
    await running.set_limits("rollout", {"cpu": 1000})
    node = {"node": "rollout-1", "version": 1, "pool": "rollout", "capacity": {"cpu": 900, "memory": "2g"}}
    await running.wire.tell(NODE_REPORTS, node, key="rollout-1")

    async def reported() -> bool:
        return bool(await running.database.fetchval("SELECT count(*) FROM nodes WHERE node = 'rollout-1'"))

    await eventually(reported, what="the node")
    old = {"environment": "prod", "stack": "blog", "deployment": "blog-v1", "revision": 1}
    await running.wire.ask(asking("adjust", "rollout", **old, footprint={"cpu": 600}))
    arguments = ("rollout", str(EXAMPLES / "compose" / "wordpress.yaml"), "--pool", "rollout")
    refused = await run(running, "rollout", *arguments)
    assert refused.startswith("not upgraded: X403012SWMPOL")
    assert "(largest free cpu: 900)" in refused
    waiting = asyncio.create_task(run(running, "rollout", *arguments, "--wait", "20"))

    async def waits() -> bool:
        return bool(await running.database.fetchval("SELECT count(*) FROM waiters WHERE tenant = 'rollout'"))

    await eventually(waits, what="the upgrade waits")
    larger = {**node, "version": 2, "capacity": {"cpu": 2000, "memory": "2g"}}
    await running.wire.tell(NODE_REPORTS, larger, key="rollout-1")
    told = (await waiting).splitlines()
    assert told == ["placed on rollout-1", "room came after a wait", "upgraded; blog-v1 has ended"]
    assert await running.used("rollout", "cpu") == (1000, 0)


async def test_the_example_of_the_readme_deploys_what_fits(running: Platform) -> None:
    await running.set_limits("acme", {"cpu": 4000})
    asked = await run(running, "ask", running.stack.kafka_bootstrap)
    assert asked.splitlines()[:2] == ["web-1: 3200m are held, deploying", "web-1: runs, committed"]
    assert "X403001CPUEXC" in asked
