"""What happens to deployments: installed, upgraded, moved, refused by nodes, waiting for room, asking for more."""

import asyncio
import json
import uuid
from datetime import UTC, datetime
from typing import Any

from plimsoll_client import Allowed, Denied
from plimsoll_contracts import codes
from plimsoll_contracts.envelope import Envelope
from plimsoll_contracts.topics import NODE_REPORTS
from plimsoll_devkit.demo.story import verdict
from plimsoll_devkit.demo.world import World, until
from plimsoll_devkit.stack.context import ROOT

_FILES = ROOT / "examples" / "compose"
_CORES = 4


async def install(world: World) -> None:
    """Two compose files are installed; each charges what Docker will be asked to honour."""
    umbrella = world.tenant("umbrella")
    world.story.chapter(
        "Compose files are installed, upgraded and moved",
        "A request may carry the rendered compose file: it charges exactly what Docker will be asked to honour."
        " examples/compose has the arithmetic of each file.",
    )
    await world.entitle(umbrella, 1, plan="team", features={"deployments": True})
    await until(lambda: _is_entitled(world, umbrella), seconds=10)
    await world.plimsoll("quota", "set", f"{umbrella}/env:prod", "cpu=6", "--reason", "two apps")
    for name in ("wordpress", "scaled-workers"):
        await _install(world, name, deployment=name, environment="prod")
    used, held = await world.figures(umbrella, "prod", "cpu")
    world.story.expect("cpu of wordpress + scaled-workers", "3750m used, 0m held", f"{used}m used, {held}m held")
    upgrade: dict[str, Any] = {"deployment": "workers-v2", "replaces": ["scaled-workers"]}
    surge = await _reserve(world, "scaled-workers", environment="prod", surge=True, **upgrade)
    world.story.expect("upgrade that starts before it stops", codes.CPU_EXCEEDED.code, verdict(surge))
    await _install(world, "scaled-workers", environment="prod", **upgrade)
    used, held = await world.figures(umbrella, "prod", "cpu")
    world.story.expect("cpu after an upgrade that replaces", "3750m used, 0m held", f"{used}m used, {held}m held")
    await _install(world, "wordpress", deployment="wordpress", environment="staging")
    there = [(await world.figures(umbrella, place, "cpu"))[0] for place in ("prod", "staging")]
    world.story.expect("cpu of prod, staging after a move", "2750m, 1000m", ", ".join(f"{each}m" for each in there))


async def capacity(world: World) -> None:
    """Quota has room and the nodes have not; and a request that waits is answered when one has."""
    umbrella, pool = world.tenant("umbrella"), world.tenant("rack")
    nodes = [f"{pool}-{n}" for n in (1, 2)]
    world.story.chapter(
        "Room on nodes is judged beside quota, and may be waited for",
        f"Two nodes report {_CORES} cores each. Six cores in one piece fit on neither, whatever the quota says.",
    )
    for node in nodes:
        await _report(world, node, pool)
    await until(lambda: _are_known(world, pool, len(nodes)), seconds=10)
    where: dict[str, Any] = {"tenant": umbrella, "environment": "lab", "stack": "batch", "app": "batch"}
    big = await world.reserve(**where, deployment="big", footprint={"cpu": "6"}, placement={"pool": pool})
    world.story.expect("reserve of 6 cores in one piece", codes.REPLICA_TOO_LARGE.code, verdict(big))
    first = await world.reserve(**where, deployment="first", footprint={"cpu": "3"}, placement={"node": nodes[0]})
    later: dict[str, Any] = {"deployment": "later", "footprint": {"cpu": "3"}, "placement": {"node": nodes[0]}}
    waiting = asyncio.create_task(world.reserve(**where, **later, wait_seconds=20))
    await asyncio.sleep(1)
    is_waiting = not waiting.done()
    await world.client.release(tenant=umbrella, hold=first.request_id)
    outcome = await waiting
    world.story.expect("3 more cores there, willing to wait", "waits, then allowed", _waited(outcome, is_waiting))


async def ask_for_more(world: World) -> None:
    """A tenant asks for another limit, somebody says yes, and what a lower one would do is tried first."""
    umbrella = world.tenant("umbrella")
    scope = f"{umbrella}/env:prod"
    world.story.chapter(
        "A limit is asked for, granted, and another tried on what was",
        "Requests for limits are decided once, by somebody, for a reason. simulate decides the log again under other"
        " limits; nothing is changed by it.",
    )
    asked = ("limits", "requests", "ask", scope, "cpu=8", "--reason", "the sale", "-o", "json")
    _, printed = await world.plimsoll(*asked)
    request = json.loads(printed)["id"]
    await world.plimsoll("limits", "requests", "approve", str(request), "--reason", "paid for")
    status = await world.status(umbrella, "prod")
    limit = next(line.limit for line in status.dimensions if line.dimension == "cpu")
    world.story.expect("limit after it was approved", "8000m", f"{limit.value}m")
    code, printed = await world.plimsoll("quota", "simulate", "--set", scope, "cpu=2", "--since", "1h")
    world.story.expect("simulation of 2 cores", "exit 5, refused then", f"exit {code}, {_refused(printed)}")


def _waited(outcome: object, is_waiting: bool) -> str:
    return f"{'waits, then ' if is_waiting else ''}{verdict(outcome)}"


def _refused(printed: str) -> str:
    return "refused then" if codes.CPU_EXCEEDED.code in printed else "nothing refused"


async def _is_entitled(world: World, tenant: str) -> bool:
    return (await world.status(tenant)).entitlement_version == 1


async def _are_known(world: World, pool: str, count: int) -> bool:
    """Ask for what no pool has: the refusal says how many nodes were looked at."""
    footprint, placement = {"cpu": "10000"}, {"pool": pool}
    umbrella = world.tenant("umbrella")
    outcome = await world.client.check(
        tenant=umbrella, deployment="any", footprint=footprint, placement=placement, on_unknown="closed"
    )
    shortfalls = outcome.reply.capacity if isinstance(outcome, Denied) and outcome.reply is not None else ()
    return any(each.eligible == count for each in shortfalls)


async def _reserve(world: World, name: str, **fields: Any) -> Any:
    where = {"tenant": world.tenant("umbrella"), "stack": "apps", "app": name}
    return await world.reserve(**where, **fields, compose=(_FILES / f"{name}.yaml").read_text(encoding="utf-8"))


async def _install(world: World, name: str, **fields: Any) -> None:
    outcome = await _reserve(world, name, **fields)
    if isinstance(outcome, Allowed):
        await world.commit(world.tenant("umbrella"), outcome.request_id)


async def _report(world: World, node: str, pool: str) -> None:
    """Let a node's agent tell what it can take."""
    body = {"node": node, "version": 1, "pool": pool, "capacity": {"cpu": f"{_CORES}", "memory": "16g"}}
    world.story.sent(NODE_REPORTS.name, body)
    headers = Envelope(uuid.uuid4().hex, "node.report.v1", "node-agent", datetime.now(UTC)).headers()
    await world.producer.send_and_wait(NODE_REPORTS.name, json.dumps(body).encode(), key=node.encode(), headers=headers)
