"""A rolling upgrade with a compose file: judged on the difference, placed over a pool, waiting for room if need be.

python examples/rollout.py acme examples/compose/wordpress.yaml --pool workers --wait 60
"""

import argparse
import asyncio
from pathlib import Path

from flow import bootstrap

from plimsoll_client import Allowed, EnforcementClient, QuotaDenied, QuotaUnknown
from plimsoll_client.fields import ReserveFields


async def upgrade(client: EnforcementClient, tenant: str, fields: ReserveFields) -> str:
    """Install the new version beside nothing: the old one's room is the new one's, and ends with its commit."""
    reservation = client.reserve(tenant=tenant, deployment="blog-v2", on_unknown="closed", **fields)
    try:
        async with reservation as held:
            outcome = held.outcome
            if isinstance(outcome, Allowed) and outcome.nodes:
                print("placed on", ", ".join(outcome.nodes))
            if isinstance(outcome, Allowed) and outcome.waited_ms is not None:
                print("room came after a wait")
            await asyncio.sleep(0.1)  # stands in for the real work
            held.revision, held.replaced = 1, {"blog-v1": 2}
    except QuotaDenied as refusal:
        short = refusal.outcome.capacity[:1]
        free = f" (largest free {short[0].dimension}: {short[0].largest_free})" if short else ""
        return f"not upgraded: {refusal}{free}"
    except QuotaUnknown as silence:
        return f"not upgraded, try again: {silence}"
    return "upgraded; blog-v1 has ended"


async def main() -> None:
    """Run the upgrade once."""
    reader = argparse.ArgumentParser()
    reader.add_argument("tenant")
    reader.add_argument("compose", type=Path)
    reader.add_argument("--pool")
    reader.add_argument("--wait", type=int, default=0)
    said = reader.parse_args()
    fields: ReserveFields = {
        "environment": "prod",
        "stack": "blog",
        "app": "blog",
        "compose": said.compose.read_text(),
        "replaces": ["blog-v1"],
        "wait_seconds": said.wait,
    }
    if said.pool:
        fields["placement"] = {"pool": said.pool}
    async with EnforcementClient(bootstrap(), caller="flows") as client:
        print(await upgrade(client, said.tenant, fields))


if __name__ == "__main__":
    asyncio.run(main())
