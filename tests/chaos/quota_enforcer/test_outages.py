"""Database and broker go away under load and come back: no call hangs, nothing of ours is restarted, all agrees."""

import asyncio
from collections.abc import Callable

import pytest

from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.flows import TRY_SECONDS, Facts, Flows
from plimsoll_devkit.platform import Platform, settled, undisturbed

AWAY_SECONDS = 4.0
LOG_LINES_MAX = 150


@pytest.mark.parametrize(
    ("part", "how"),
    [("postgres", "stop"), ("postgres", "kill"), ("kafka", "kill")],
)
async def test_a_part_that_goes_and_comes_back_under_load(
    quota: Platform, flows: Flows, facts: Facts, part: str, how: str
) -> None:
    enforcer = quota.enforcer()
    await enforcer.start()
    await enforcer.ready(PARTITIONS)
    pid, end = enforcer.pid, getattr(quota.stack, how)
    load = asyncio.gather(flows.run(350, pause=0.02), facts.run(200, pause=0.005))
    try:
        await asyncio.sleep(2)
        await away(part, end)
        await asyncio.to_thread(quota.stack.start, part)
        await load
    finally:
        load.cancel()

    assert flows.unknown > 0, "it was felt"
    assert flows.slowest < TRY_SECONDS + 2, "every call ends in a verdict or in Unknown, within its time"
    assert enforcer.pid == pid, "nothing of ours was restarted"
    await enforcer.ready(PARTITIONS)
    await undisturbed(quota, flows)
    await settled(quota, facts)
    assert len(enforcer.said().splitlines()) < LOG_LINES_MAX, enforcer.said()[:3000]


async def away(part: str, end: Callable[[str], None]) -> None:
    """Take a part away for a while."""
    await asyncio.to_thread(end, part)
    await asyncio.sleep(AWAY_SECONDS)
