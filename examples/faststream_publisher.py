"""An upstream service that tells facts with plain FastStream: what a plan gives a tenant, and what runs.

python examples/faststream_publisher.py [TENANT]
"""

import asyncio
import json
import os
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

from faststream.kafka import KafkaBroker
from pydantic import BaseModel

from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS, USAGE_DELTAS, Topic
from plimsoll_contracts.usage import FootprintFact, UsageDelta


def bootstrap() -> str:
    """Find the broker: in the environment, or in the file that ``make up`` writes."""
    if address := os.environ.get("PLIMSOLL_KAFKA_BOOTSTRAP"):
        return address
    context = json.loads(Path(os.environ.get("PLIMSOLL_CONTEXT", ".local/context.json")).read_text())
    return str(context["kafka"])


async def tell(broker: KafkaBroker, topic: Topic, kind: str, tenant: str, body: BaseModel) -> None:
    """Publish one event in CloudEvents' binary mode. Telling it again, or in another order, changes nothing."""
    headers = {
        "ce_specversion": "1.0",
        "ce_id": str(uuid.uuid4()),
        "ce_type": kind,
        "ce_source": "examples/faststream_publisher",
        "ce_time": datetime.now(UTC).isoformat(),
    }
    await broker.publish(body.model_dump(mode="json"), topic.name, key=tenant.encode(), headers=headers)
    print(f"told {kind} on {topic.name}")


async def main(tenant: str) -> None:
    """Give the tenant a plan, and say that one deployment of it runs."""
    plan = EntitlementSnapshot(
        tenant=tenant,
        entitlement_version=int(datetime.now(UTC).timestamp()),
        plan="team",
        limits={"cpu": "8", "memory": "16g", "vapps": 10},  # type: ignore[dict-item]  # read as amounts with units
        features={"deployments": True},
    )
    runs = UsageDelta(
        tenant=tenant,
        environment="staging",
        stack="blog",
        app="web",
        deployment="example-faststream",
        revision=1,
        after=FootprintFact(cpu=1500, memory=2 << 30, vapps=1),
        delta={"cpu": 1500},
    )
    async with KafkaBroker(bootstrap(), logger=None, allow_auto_create_topics=False) as broker:
        await broker.start()
        await tell(broker, ENTITLEMENT_EVENTS, "entitlement.snapshot.v1", tenant, plan)
        await tell(broker, USAGE_DELTAS, "usage.delta.v1", tenant, runs)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["acme"]))
