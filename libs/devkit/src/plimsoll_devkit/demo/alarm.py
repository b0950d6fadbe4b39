"""Is it noticed when a gate lets a request through because nothing is known of its tenant?"""

import time
import uuid
from collections.abc import Sequence

import httpx

from plimsoll_client import Allowed, Outcome
from plimsoll_contracts.enforcement import Gate
from plimsoll_devkit.demo.world import World, until

FASTER = 60
"""By how much the durations of the alert rules are divided."""
ALERT = "QuotaGateFailOpenAny"
_COUNTER = "quota_gate_fail_open_total"
_GATES = sorted(gate.value for gate in Gate)


async def fail_open(world: World) -> None:
    """A tenant without a row is let through; that is counted and raises an alert, which clears."""
    hooli = world.tenant("hooli")
    world.story.chapter(
        "A gate fails open, and somebody hears of it",
        "Nothing is known of hooli: billing has not spoken of it yet. Its request is let through, and every gate that"
        " could not judge it is named in the answer, counted and alerted on.",
    )
    before = await _counted(world, show=False)
    outcome = await _small(world, hooli)
    named = sorted(outcome.reply.fail_open) if isinstance(outcome, Allowed) else []
    _expect_gates(world, "gates that failed open for hooli", _GATES, named)
    after = await _counted(world)
    once = [gate for gate in _GATES if after.get(gate, 0) - before.get(gate, 0) == 1]
    _expect_gates(world, "gates that counted it in /metrics, once", _GATES, once)
    code, _ = await world.plimsoll("quota", "status", hooli)
    world.story.expect("plimsoll quota status says degraded", "exit 4", f"exit {code}")


async def alert(world: World, prometheus: str) -> None:
    """The alert fires in a real Prometheus, and clears once the tenant has a row."""
    hooli, rules = world.tenant("hooli"), "deploy/monitoring/gates.yaml"
    world.story.say(
        f"Prometheus ({prometheus}) evaluates {rules}, here with every duration divided by {FASTER}: what waits 5"
        " minutes in production waits 5 seconds."
    )
    _expect_gates(world, f"{ALERT} fires", _GATES, await _wait(world, prometheus, _GATES, 30))
    world.story.say("Billing's snapshot of hooli comes in. From here on nothing fails open, and the alert clears.")
    await world.entitle(hooli, 1, plan="team", features={"deployments": True})

    async def entitled() -> bool:
        return (await world.status(hooli)).entitlement_version == 1

    await until(entitled, seconds=10)
    outcome = await _small(world, hooli)
    named = sorted(outcome.reply.fail_open) if isinstance(outcome, Allowed) else ["no verdict"]
    _expect_gates(world, "gates that fail open for it afterwards", [], named)
    _expect_gates(world, f"{ALERT} has cleared: fires", [], await _wait(world, prometheus, [], 45))


def _expect_gates(world: World, what: str, wanted: Sequence[str], seen: Sequence[str]) -> None:
    """Compare gates by name, and show how many they are."""
    world.story.expect(what, f"{len(wanted)} gates", f"{len(seen)} gates", holds=wanted == seen)


async def _small(world: World, tenant: str) -> Outcome:
    return await world.reserve(
        tenant=tenant,
        environment="prod",
        stack="blog",
        app="web",
        deployment=f"web-{uuid.uuid4().hex[:6]}",
        footprint={"cpu": "100m"},
    )


async def _counted(world: World, *, show: bool = True) -> dict[str, float]:
    text = (await world.http.get("/metrics")).raise_for_status().text
    lines = [line for line in text.splitlines() if line.startswith(f"{_COUNTER}{{")]
    if show:
        world.story.sent("GET", f"{world.http.base_url}/metrics")
        world.story.printed("\n".join(lines))
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


async def _wait(world: World, prometheus: str, wanted: list[str], seconds: float) -> list[str]:
    """Ask Prometheus until the alert fires for exactly these gates; returns those it fires for at the end."""
    began = time.monotonic()
    firing: list[str] = []
    async with httpx.AsyncClient(base_url=prometheus, timeout=10) as http:

        async def as_wanted() -> bool:
            nonlocal firing
            alerts = (await http.get("/api/v1/alerts")).raise_for_status().json()["data"]["alerts"]
            ours = [each for each in alerts if each["labels"]["alertname"] == ALERT and each["state"] == "firing"]
            firing = sorted(each["labels"]["gate"] for each in ours)
            return firing == wanted

        await until(as_wanted, seconds=seconds)
    shown = ", ".join(firing) if firing else "no gate"
    world.story.came(
        f"{prometheus}/api/v1/alerts", f"{ALERT} fires for {shown}, after {time.monotonic() - began:.1f} s"
    )
    return firing
