"""Ask before deploying: hold the room while it is built, commit when it runs, read why where it is refused."""

import asyncio
import sys

from plimsoll_client import EnforcementClient, QuotaDenied


async def deploy(client: EnforcementClient, name: str, cpu: str) -> None:
    reservation = client.reserve(
        tenant="acme",
        environment="prod",
        stack="blog",
        app="web",
        deployment=name,
        footprint={"cpu": cpu},
        on_unknown="closed",  # no verdict is no deployment: the caller's choice, never a default
    )
    try:
        async with reservation:
            print(f"{name}: {cpu} are held, deploying")
        print(f"{name}: runs, committed")
    except QuotaDenied as refused:
        print(f"{name}: {refused.outcome.code} {refused.outcome.message}")


async def main(kafka: str) -> None:
    async with EnforcementClient(kafka) as client:
        await deploy(client, "web-1", "3200m")
        await deploy(client, "web-2", "1")


asyncio.run(main(sys.argv[1]))
