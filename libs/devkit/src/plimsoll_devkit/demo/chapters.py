"""What does Plimsoll do for a flow: entitlements, limits, an allow, a denial explained, and fifty at once on ten."""

import asyncio

from plimsoll_client import Allowed, Denied, Outcome
from plimsoll_contracts import codes
from plimsoll_devkit.demo.story import verdict
from plimsoll_devkit.demo.world import World, until

_PROD = {"environment": "prod", "stack": "blog", "app": "web"}
_RACERS, _PLACES = 50, 10
_TOO_MUCH = codes.CPU_EXCEEDED.code


async def entitlements(world: World) -> None:
    """Three tenants get what they bought."""
    world.story.chapter(
        "Billing says what three tenants have bought",
        "One whole snapshot per tenant on the topic entitlement.events. The enforcer projects them; nobody calls"
        " billing when a request comes.",
    )
    acme, globex, initech = (world.tenant(name) for name in ("acme", "globex", "initech"))
    yes = {"deployments": True}
    sent = [
        await world.entitle(acme, 7, plan="team", features=yes),
        await world.entitle(globex, 3, plan="starter", features=yes, limits={"vapps": _PLACES}),
        await world.entitle(initech, 5, plan="starter", features=yes, quota_blocked=["cpu"]),
    ]
    wanted = {snapshot.tenant: snapshot.entitlement_version for snapshot in sent}
    found: dict[str, int | None] = {}

    async def projected() -> bool:
        found.update({tenant: (await world.status(tenant)).entitlement_version for tenant in wanted})
        return found == wanted

    await until(projected, seconds=10)
    world.story.expect(
        "entitlement versions projected",
        [f"{tenant} {version}" for tenant, version in wanted.items()],
        [f"{tenant} {version}" for tenant, version in found.items()],
    )


async def limits(world: World) -> None:
    """An operator sets a limit and sees it."""
    acme = world.tenant("acme")
    world.story.chapter(
        "An operator sets a limit",
        "Nothing is limited until an operator or a plan says so. This one holds for one environment of acme; who set"
        " it and why is kept.",
    )
    await world.plimsoll("quota", "set", f"{acme}/env:prod", "cpu=4", "--reason", "launch budget")
    status = await world.status(acme, "prod")
    limit = next(line.limit for line in status.dimensions if line.dimension == "cpu")
    world.story.expect("limit of acme/env:prod", "4000m by admin", f"{limit.value}m by {limit.set_by}")


async def allow(world: World) -> None:
    """A flow asks, deploys and commits."""
    acme = world.tenant("acme")
    world.story.chapter(
        "A flow asks before it deploys, and is allowed",
        "reserve checks every scope and holds the room in one step; once the deployment runs, commit turns the hold"
        " into a charge.",
    )
    outcome = await world.reserve(tenant=acme, deployment="web-1", footprint={"cpu": "3200m"}, **_PROD)
    world.story.expect("reserve of 3200m on a limit of 4000m", "allowed", verdict(outcome))
    if isinstance(outcome, Allowed):
        await world.commit(acme, outcome.request_id)
    used, held = await world.figures(acme, "prod", "cpu")
    world.story.expect("cpu of acme/env:prod after the commit", "3200m used, 0m held", f"{used}m used, {held}m held")


async def deny(world: World) -> None:
    """A flow asks for too much and is told why."""
    acme, initech = world.tenant("acme"), world.tenant("initech")
    world.story.chapter(
        "A denial explains itself",
        "Another deployment holds 500m. The next one asks for 500m where 300m are left: refused, with every figure"
        " behind the verdict. Nothing is changed by a refusal.",
    )
    await world.reserve(tenant=acme, deployment="web-2", footprint={"cpu": "500m"}, **_PROD)
    code, printed = await world.plimsoll("quota", "check", f"{acme}/blog/prod", "--cpu", "500m")
    told = printed.split(maxsplit=2)[:2]
    world.story.expect(
        "plimsoll quota check of the same", f"DENIED {_TOO_MUCH}, exit 5", f"{' '.join(told)}, exit {code}"
    )
    refused = await world.reserve(tenant=acme, deployment="web-3", footprint={"cpu": "500m"}, **_PROD)
    violation = next(iter(refused.violations), None) if isinstance(refused, Denied) else None
    world.story.expect("reserve of 500m where 300m are left", _TOO_MUCH, verdict(refused))
    world.story.expect("largest amount that would fit", "300m", f"{violation.would_fit}m" if violation else "nothing")
    used, held = await world.figures(acme, "prod", "cpu")
    world.story.expect("cpu of acme/env:prod after it", "3200m used, 500m held", f"{used}m used, {held}m held")
    fits = violation.would_fit if violation else 0
    exact = await world.reserve(tenant=acme, deployment="web-4", footprint={"cpu": f"{fits}m"}, **_PROD)
    world.story.expect("reserve of exactly that much", "allowed", verdict(exact))
    world.story.say("initech has no limit, but billing has blocked its cpu: that is 402 (pay), never 403 (limit).")
    unpaid = await world.reserve(tenant=initech, deployment="web-1", footprint={"cpu": "500m"}, **_PROD)
    world.story.expect("reserve of a blocked tenant", codes.QUOTA_BLOCKED.code, verdict(unpaid))


async def race(world: World) -> None:
    """Fifty at once on a limit of ten."""
    globex = world.tenant("globex")
    world.story.chapter(
        f"{_RACERS} flows at once on a limit of {_PLACES}",
        f"globex's plan gives it {_PLACES} vApps. {_RACERS} reserves of one vApp each are sent at the same moment.",
    )

    async def ask(number: int) -> Outcome:
        return await world.client.reserve(
            tenant=globex,
            environment="prod",
            stack="blog",
            app="web",
            deployment=f"vapp-{number}",
            footprint={"vapps": 1},
            on_unknown="closed",
        )

    verdicts = [verdict(outcome) for outcome in await asyncio.gather(*map(ask, range(_RACERS)))]
    counts = {one: verdicts.count(one) for one in sorted(set(verdicts))}
    world.story.came("replies", ", ".join(f"{count} x {one}" for one, count in counts.items()))
    await world.plimsoll("quota", "status", globex)
    allowed, denied = verdicts.count("allowed"), verdicts.count(codes.VAPPS_EXCEEDED.code)
    world.story.expect("50 reserves on a limit of 10", "10 allowed, 40 denied", f"{allowed} allowed, {denied} denied")
    world.story.expect("vApps held afterwards", _PLACES, (await world.figures(globex, "prod", "vapps"))[1])
