"""One broker and one database for these tests, and enforcers that each test starts and breaks."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from plimsoll_devkit.flows import Facts, Flows
from plimsoll_devkit.platform import Platform, platform
from plimsoll_devkit.wire import unique

TESTS_MAX = 15
TENANTS = 16
ROOM = {"cpu": 700}
"""What each tenant may have: seven deployments of the load, so that some are denied."""


@pytest.fixture(scope="session")
async def parts() -> AsyncIterator[Platform]:
    """The parts, with no enforcer running."""
    async with platform() as made:
        yield made


@pytest.fixture(scope="session")
async def limited(parts: Platform) -> list[str]:
    """Tenants with a limit; each test takes some of them."""
    await parts.enforcer().start()
    await parts.enforcer().ready()
    names = [unique() for _ in range(TENANTS * TESTS_MAX)]
    body = {"limits": ROOM, "reason": "test"}
    async with parts.http as http:
        for some in (names[n : n + TENANTS] for n in range(0, len(names), TENANTS)):
            answers = await asyncio.gather(*(http.patch(f"/tenants/{name}/limits", json=body) for name in some))
            assert all(answer.is_success for answer in answers)
    await parts.enforcer().stop()
    return names


@pytest.fixture
async def quota(parts: Platform) -> AsyncIterator[Platform]:
    """The parts. After each test all enforcers are gone, and the database must agree with itself."""
    yield parts
    for enforcer in parts.enforcers.values():
        await enforcer.kill()
    await parts.audit()


@pytest.fixture
def facts(quota: Platform) -> Facts:
    """Usage deltas of tenants of this test's own."""
    return Facts(quota.wire, [unique("facts") for _ in range(8)])


@pytest.fixture
def flows(quota: Platform, limited: list[str]) -> Flows:
    """A load on tenants of this test's own, which repeats every call until it has a verdict."""
    return Flows(quota.client, [limited.pop() for _ in range(TENANTS)])
