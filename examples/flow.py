"""An install flow with the client library: reserve, install, and the hold is committed or given back by itself.

python examples/flow.py acme 2 4g
python examples/flow.py acme 2 4g --fail      # the installation breaks: nothing stays held
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from plimsoll_client import EnforcementClient, QuotaDenied, QuotaUnknown


def bootstrap() -> str:
    """Find the broker: in the environment, or in the file that ``make up`` writes."""
    if address := os.environ.get("PLIMSOLL_KAFKA_BOOTSTRAP"):
        return address
    context = json.loads(Path(os.environ.get("PLIMSOLL_CONTEXT", ".local/context.json")).read_text())
    return str(context["kafka"])


async def install(*, fail: bool) -> int:
    """Stand in for the real work; return the revision that now runs."""
    await asyncio.sleep(0.1)
    if fail:
        raise RuntimeError("the image could not be pulled")
    return 1


async def flow(client: EnforcementClient, tenant: str, cpu: str, memory: str, *, fail: bool) -> str:
    """Install one app, if the tenant may have it."""
    reservation = client.reserve(
        tenant=tenant,
        environment="prod",
        stack="shop",
        app="shop",
        deployment="example-flow",
        footprint={"cpu": cpu, "memory": memory, "vapps": 1},
        on_unknown="closed",  # without a verdict this flow does not install; "open" would
    )
    try:
        async with reservation as held:
            held.revision = await install(fail=fail)
    except QuotaDenied as refusal:
        first = refusal.outcome.violations[:1]
        fits = f" ({first[0].dimension}: {first[0].would_fit} would fit)" if first else ""
        return f"not installed: {refusal}{fits}"
    except QuotaUnknown as silence:
        return f"not installed, try again: {silence}"
    except RuntimeError as broken:
        return f"installation failed, the hold is given back: {broken}"
    return "installed and committed"


async def main(tenant: str, cpu: str, memory: str, *, fail: bool) -> None:
    """Run the flow once."""
    async with EnforcementClient(bootstrap(), caller="flows") as client:
        print(await flow(client, tenant, cpu, memory, fail=fail))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], fail="--fail" in sys.argv))
