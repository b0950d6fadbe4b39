"""How do many flows use the enforcer at once, while a test breaks what is under it?"""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiokafka.errors import KafkaError

from plimsoll_client import Allowed, Denied, EnforcementClient, Outcome, Unknown
from plimsoll_client.fields import CallFields
from plimsoll_contracts.topics import USAGE_DELTAS
from plimsoll_devkit.wire import Wire

TRY_SECONDS = 3.0
REVISIONS = 4
PATIENCE_SECONDS = 90.0

Call = Callable[[CallFields], Awaitable[Outcome]]


@dataclass
class Facts:
    """Usage deltas of many deployments in any order, with duplicates; the highest revision is what must count."""

    wire: Wire
    tenants: Sequence[str]
    seed: int = 0
    expected: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Revision and millicores of each deployment at the end, by tenant and name."""

    async def run(self, deployments: int, *, pause: float = 0.0) -> None:
        """Tell them all, each again until the broker has acknowledged it, as its publisher would."""
        chance = random.Random(self.seed)
        told = []
        for number in range(deployments):
            tenant, name = chance.choice(self.tenants), f"f{number}"
            self.expected[tenant, name] = (REVISIONS, 10 * REVISIONS)
            told += [(tenant, name, revision) for revision in range(1, REVISIONS + 1)]
        told += chance.sample(told, len(told) // 5)
        chance.shuffle(told)
        async with asyncio.TaskGroup() as group:
            for each in told:
                group.create_task(self._tell(*each))
                if pause:
                    await asyncio.sleep(pause)

    async def _tell(self, tenant: str, name: str, revision: int) -> None:
        place = {"tenant": tenant, "environment": "prod", "stack": "blog", "deployment": name}
        body = {**place, "revision": revision, "after": {"cpu": 10 * revision}}
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                await self.wire.tell(USAGE_DELTAS, body)
            except KafkaError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.2)
            else:
                return


@dataclass
class Flows:
    """Installs and removals over many tenants; every call is repeated, as it was, until it has a verdict."""

    client: EnforcementClient
    tenants: Sequence[str]
    seed: int = 0
    verdicts: dict[tuple[str, str], str] = field(default_factory=dict)
    """What each request was told, by tenant and id: ``allowed``, or the code of the denial."""
    contradictions: list[str] = field(default_factory=list)
    """Requests that were told two things."""
    unknown: int = 0
    """Tries that ended without a verdict."""
    slowest: float = 0.0
    """The longest that one try took, in seconds."""
    _calls: list[tuple[str, CallFields, Call]] = field(default_factory=list)

    async def run(self, flows: int, *, at_once: int = 60, pause: float = 0.0) -> None:
        """Run so many flows, some at once; returns when every call has its verdict."""
        chance = random.Random(self.seed)
        limit = asyncio.Semaphore(at_once)

        async def one(number: int, tenant: str, kind: float) -> None:
            async with limit:
                await self._flow(tenant, f"d{number}", kind)

        async with asyncio.TaskGroup() as group:
            for number in range(flows):
                group.create_task(one(number, chance.choice(self.tenants), chance.random()))
                if pause:
                    await asyncio.sleep(pause)

    async def repeat(self) -> None:
        """Make every call once more, exactly as it was; what it is told now must be what it was told then."""
        limit = asyncio.Semaphore(60)

        async def again(tenant: str, named: CallFields, call: Call) -> None:
            async with limit:
                await self._settle(tenant, named, call)

        async with asyncio.TaskGroup() as group:
            for each in list(self._calls):
                group.create_task(again(*each))

    async def _flow(self, tenant: str, deployment: str, kind: float) -> None:
        client = self.client

        async def reserve(named: CallFields) -> Outcome:
            return await client.reserve(
                tenant=tenant,
                environment="prod",
                stack="blog",
                app="web",
                deployment=deployment,
                footprint={"cpu": 100, "memory": 1000},
                on_unknown="closed",
                **named,
            )

        async def commit(named: CallFields) -> Outcome:
            return await client.commit(tenant=tenant, hold=hold, **named)

        async def release(named: CallFields) -> Outcome:
            return await client.release(tenant=tenant, hold=hold, **named)

        async def remove(named: CallFields) -> Outcome:
            return await client.adjust(
                tenant=tenant, environment="prod", stack="blog", deployment=deployment, footprint=None, **named
            )

        reserved = await self._ask(tenant, reserve)
        if not isinstance(reserved, Allowed):
            return
        hold = reserved.request_id
        if kind < 0.25:  # noqa: PLR2004 - a quarter of the installs fail
            await self._ask(tenant, release)
            return
        await self._ask(tenant, commit)
        if kind > 0.8:  # noqa: PLR2004 - a fifth are removed again
            await self._ask(tenant, remove)

    async def _ask(self, tenant: str, call: Call) -> Outcome:
        named: CallFields = {
            "request_id": uuid.uuid4().hex,
            "issued_at": datetime.now(UTC),
            "timeout": TRY_SECONDS,
        }
        self._calls.append((tenant, named, call))
        return await self._settle(tenant, named, call)

    async def _settle(self, tenant: str, named: CallFields, call: Call) -> Outcome:
        until = time.monotonic() + PATIENCE_SECONDS
        while isinstance(outcome := await self._try(named, call), Unknown):
            self.unknown += 1
            if time.monotonic() > until:
                raise AssertionError(f"no verdict within {PATIENCE_SECONDS:g} s: {outcome}")
        self._note(tenant, named["request_id"], outcome)
        return outcome

    async def _try(self, named: CallFields, call: Call) -> Outcome:
        began = time.monotonic()
        outcome = await call(named)
        self.slowest = max(self.slowest, time.monotonic() - began)
        return outcome

    def _note(self, tenant: str, request_id: str, outcome: Allowed | Denied) -> None:
        reply = outcome.reply
        if reply is None:
            raise AssertionError(f"denied by the client itself: {outcome}")
        # Of the reply and not of the outcome: a repeated reserve of a closed hold was allowed all the same.
        told = "allowed" if reply.allowed else str(reply.code)
        before = self.verdicts.setdefault((tenant, request_id), told)
        if before != told:
            self.contradictions.append(f"{tenant} {request_id}: {before}, later {told}")
