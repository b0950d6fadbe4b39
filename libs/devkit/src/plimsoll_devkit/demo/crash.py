"""What does a crash of the enforcer cost, in the middle of two thousand requests?"""

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

from plimsoll_client import Allowed, Unknown
from plimsoll_devkit import faults
from plimsoll_devkit.demo.world import ENFORCER, World, until

REQUESTS, KILL_AFTER = 2000, 700
EACH, FIT = 10, 750
"""Millicores of one request, and how many fit in each of the two tenants."""
_SECONDS_A_TRY, _PATIENCE = 6.0, 60.0


@dataclass(slots=True)
class Storm:
    """What came of the requests so far: each one's tenant and whether it was allowed."""

    prefix: str
    answers: dict[str, tuple[str, bool]] = field(default_factory=dict)
    asked_again: int = 0
    sent: int = 0
    in_flight: int = 0
    """Requests without an answer at the moment of the kill."""
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once so many are answered that the enforcer is to be killed."""

    def allowed(self, tenant: str) -> int:
        """How many of a tenant's requests were allowed."""
        return sum(verdict for name, verdict in self.answers.values() if name == tenant)


async def crash(world: World) -> None:
    """Kill the enforcer under load: each request gets one answer, and the sums are right."""
    tenants = (world.tenant("acme"), world.tenant("globex"))
    world.story.chapter(
        f"The enforcer is killed in the middle of {REQUESTS:,} requests",
        f"Two tenants, {FIT * EACH}m of cpu each in env:load, {EACH}m a request: {2 * FIT:,} fit. A request without an"
        " answer is asked again under the same id, which can never decide it twice.",
    )
    for tenant in tenants:
        limit = f"cpu={FIT * EACH}m"
        await world.plimsoll("quota", "set", f"{tenant}/env:load", limit, "--reason", "load test")
    storm = Storm(f"storm-{uuid.uuid4().hex[:6]}-")
    slots = asyncio.Semaphore(200)
    asks = [_ask(world, storm, slots, tenants[number % 2], number) for number in range(REQUESTS)]
    try:
        async with asyncio.timeout(_PATIENCE):
            await asyncio.gather(_kill(world, storm), *asks)
    except TimeoutError:
        world.story.say(f"{REQUESTS - len(storm.answers):,} requests have no answer after {_PATIENCE:g} s.")
    world.story.came("answers", f"{len(storm.answers):,}; questions asked again: {storm.asked_again:,}")
    await _judge(world, storm, tenants)


async def _ask(world: World, storm: Storm, slots: asyncio.Semaphore, tenant: str, number: int) -> None:
    request_id = f"{storm.prefix}{number}"
    async with slots:
        storm.sent += 1
        issued_at = datetime.now(UTC)
        while True:
            outcome = await world.client.reserve(
                tenant=tenant,
                environment="load",
                stack="storm",
                app="storm",
                deployment=request_id,
                footprint={"cpu": EACH},
                on_unknown="closed",
                request_id=request_id,
                issued_at=issued_at,
                timeout=_SECONDS_A_TRY,
            )
            if not isinstance(outcome, Unknown):
                break
            storm.asked_again += 1
        storm.answers[request_id] = (tenant, isinstance(outcome, Allowed))
        if len(storm.answers) == KILL_AFTER:
            storm.enough.set()


async def _kill(world: World, storm: Storm) -> None:
    """Send SIGKILL once enough answers are there, and wait until the supervisor has the enforcer back."""
    await storm.enough.wait()
    pid, answered = world.stack.pid(ENFORCER), len(storm.answers)
    faults.kill(pid)
    began, storm.in_flight = time.monotonic(), storm.sent - answered
    world.story.sent("SIGKILL", f"to process {pid}: {answered:,} are answered, {storm.in_flight} wait for their answer")

    async def back() -> bool:
        state = world.stack.state(ENFORCER)
        return state["phase"] == "ready" and state["pid"] not in (None, pid)

    if await until(back, seconds=_PATIENCE):
        state = world.stack.state(ENFORCER)
        world.story.say(
            f"The supervisor has it back after {time.monotonic() - began:.1f} s, as process {state['pid']}."
        )


async def _judge(world: World, storm: Storm, tenants: tuple[str, ...]) -> None:
    story = world.story
    stored = await world.decisions(storm.prefix)
    differing = sum(stored.get(request) is not verdict for request, (_, verdict) in storm.answers.items())
    allowed = sum(verdict for _, verdict in storm.answers.values())
    story.expect("requests in flight at the SIGKILL", "some", storm.in_flight, holds=storm.in_flight > 0)
    story.expect("restarts by the supervisor", 1, world.stack.state(ENFORCER)["restarts"])
    story.expect("requests answered", REQUESTS, len(storm.answers))
    story.expect("of these allowed, where that many fit", 2 * FIT, allowed)
    story.expect("decisions in the database", REQUESTS, len(stored))
    story.expect("answers that differ from them", 0, differing)
    for tenant in tenants:
        await world.plimsoll("quota", "status", f"{tenant}/env:load")
        used, held = await world.figures(tenant, "load", "cpu")
        told = storm.allowed(tenant) * EACH
        story.expect(f"cpu of {tenant}/env:load = allowed x {EACH}m", f"{told}m", f"{used + held}m")
