"""Two replicas under load, one killed, one frozen beyond its session: each request gets one verdict, sums are right."""

import asyncio

from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.flows import Facts, Flows
from plimsoll_devkit.platform import Platform, eventually, settled, undisturbed

FROZEN_SECONDS = 9.0
"""Longer than the session of 6 s, so that the group gives the frozen member's partitions away."""


async def owners(quota: Platform) -> dict[str, int]:
    """Count the offset rows by the replica that claimed them last."""
    rows = await quota.database.fetch("SELECT owner, count(*) AS n FROM consumer_offsets GROUP BY owner")
    return {row["owner"]: row["n"] for row in rows}


async def test_one_killed_and_one_frozen_and_thawed(quota: Platform, flows: Flows, facts: Facts) -> None:
    first, second = quota.enforcer(0), quota.enforcer(1)
    await first.start()
    await second.start()

    async def share() -> bool:
        return len(await first.owned()) == len(await second.owned()) == PARTITIONS // 2

    await eventually(share, seconds=40, what="half of the partitions each")
    load = asyncio.gather(flows.run(1000, pause=0.02), facts.run(300, pause=0.005))
    try:
        await asyncio.sleep(3)
        await first.kill()
        await asyncio.sleep(0.5)
        await first.start()
        await first.ready(PARTITIONS // 2)

        second.freeze()
        try:

            async def taken_over() -> bool:
                return await owners(quota) == {"quota-enforcer-0": PARTITIONS}

            await eventually(taken_over, seconds=25, what="the frozen member's partitions are claimed by the other")
            await asyncio.sleep(1)
        finally:
            second.thaw()
        await eventually(share, seconds=40, what="half of the partitions each, again")
        await load
    finally:
        load.cancel()

    assert flows.unknown < len(flows.verdicts), "most calls never saw any of it"
    await undisturbed(quota, flows)
    await settled(quota, facts)
    assert await owners(quota) == {"quota-enforcer-0": PARTITIONS // 2, "quota-enforcer-1": PARTITIONS // 2}


async def test_killed_again_and_again_at_random(quota: Platform, flows: Flows, facts: Facts) -> None:
    enforcer = quota.enforcer()
    await enforcer.start()
    await enforcer.ready(PARTITIONS)
    load = asyncio.gather(flows.run(600, pause=0.01), facts.run(300, pause=0.005))
    try:
        for pause in (0.31, 0.83, 0.05):
            await asyncio.sleep(pause)
            await enforcer.kill()
            await enforcer.start()
            await enforcer.ready()
        await load
    finally:
        load.cancel()
    await undisturbed(quota, flows)
    await settled(quota, facts)
