"""What does a test of the enforcer hold in its hands: parts, processes, a wire, a client, HTTP, and an audit."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx

from plimsoll_client import EnforcementClient
from plimsoll_contracts.codes import CPU_EXCEEDED
from plimsoll_devkit import audit
from plimsoll_devkit.enforcer import UNUSED_TLS, Enforcer, series
from plimsoll_devkit.flows import Facts, Flows
from plimsoll_devkit.stack.private import PrivateStack
from plimsoll_devkit.wire import Wire

PARTS = ("kafka", "postgres", "migrate", "topics")


@dataclass
class Platform:
    """A broker and a database of a test's own, migrated, and whatever enforcers it starts."""

    stack: PrivateStack
    database: asyncpg.Pool
    """As the owner of the schema, which is on the search path."""
    wire: Wire
    client: EnforcementClient
    enforcers: dict[int, Enforcer] = field(default_factory=dict)
    fresh: dict[str, float] = field(default_factory=dict)
    """What replica 0 exported once it was ready for the first time, where somebody looked."""

    def enforcer(self, instance: int = 0, **environment: str) -> Enforcer:
        """Return the replica with this ordinal, described the first time; it is killed at the end at the latest."""
        if instance not in self.enforcers:
            stack = self.stack
            self.enforcers[instance] = Enforcer(
                stack.kafka_bootstrap, stack.database.dsn(), stack.folder, stack.credentials, instance, environment
            )
        return self.enforcers[instance]

    @property
    def http(self) -> httpx.AsyncClient:
        """A client of replica 0's API that may do everything, unseen limits included, as a context manager."""
        return self.http_as(self.stack.credentials.token_file.read_text().strip(), **{"If-Match": "*"})

    def http_as(self, token: str | None, **headers: str) -> httpx.AsyncClient:
        """Make a client of replica 0's API with this token or none, to be used as a context manager."""
        url = f"{self.enforcer().url}/api/v1/quota"
        who = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.AsyncClient(base_url=url, headers={**who, **headers}, timeout=15, verify=UNUSED_TLS)

    async def set_limits(self, tenant: str, limits: Mapping[str, int | str | None], **more: Any) -> dict[str, Any]:
        """Set limits of a tenant, or of ``environment`` and ``stack`` in it, over HTTP."""
        place: dict[str, str] = {name: more.pop(name) for name in ("environment", "stack") if name in more}
        body = {"limits": limits, "reason": "test", **more}
        async with self.http as http:
            answer = await http.patch(f"/tenants/{tenant}/limits", params=place, json=body)
        if not answer.is_success:
            raise AssertionError(f"limits refused: {answer.text}")
        return dict(answer.json())

    async def status(self, tenant: str, **place: str) -> dict[str, Any]:
        """Read a scope's status over HTTP."""
        async with self.http as http:
            return dict((await http.get(f"/tenants/{tenant}/status", params=place)).raise_for_status().json())

    async def used(self, tenant: str, dimension: str, basis: str | None = None, **place: str) -> tuple[int, int]:
        """Read used and held of one figure over HTTP; cpu and memory on the reserved basis unless said."""
        basis = basis or ("reserved" if dimension in {"cpu", "memory"} else None)
        lines = (await self.status(tenant, **place))["dimensions"]
        line = next(each for each in lines if each["dimension"] == dimension and each["basis"] == basis)
        return line["used"], line["held"]

    async def counted(self) -> "Counted":
        """Remember what replica 0 exports now, to see by how much each figure moves."""
        return Counted(self.enforcer(), await self.enforcer().metrics())

    async def decisions(self, tenant: str) -> list[dict[str, Any]]:
        """Return a tenant's stored decisions in order, replies read."""
        sql = "SELECT * FROM decisions WHERE tenant = $1 ORDER BY seq, NOT allowed, decided_at"
        found = await self.database.fetch(sql, tenant)
        return [{**dict(row), "reply": json.loads(row["reply"])} for row in found]

    async def audit(self) -> None:
        """Fail with everything in the database that does not agree."""
        async with self.database.acquire() as connection:
            found = await audit.problems(connection)
        if found:
            raise AssertionError("\n".join(["the database does not agree with itself:", *found[:20]]))


@dataclass
class Counted:
    """Figures of one replica since some moment."""

    enforcer: Enforcer
    before: Mapping[str, float]

    async def since(self, name: str, **labels: str) -> float:
        """Return by how much one series has moved."""
        one = series(name, **labels)
        return (await self.enforcer.metrics())[one] - self.before[one]


async def eventually(check: Callable[[], Awaitable[object]], *, seconds: float = 15, what: str = "it") -> None:
    """Wait until a check holds, looking often."""
    deadline = time.monotonic() + seconds
    while not await check():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.05)


async def undisturbed(quota: Platform, flows: Flows) -> None:
    """Fail unless everything is as if nothing had been broken: promise 9.2 of DESIGN.

    Each request has one decision, which is what its caller was told; deciding the stored requests again from nothing
    comes to the same answers, charges and holds; and asking all of them once more changes nothing.
    """
    tenants = list(flows.tenants)
    stored = await quota.database.fetch(
        "SELECT tenant, request_id, allowed, code FROM decisions WHERE tenant = ANY($1)", tenants
    )
    told = {(row["tenant"], row["request_id"]): "allowed" if row["allowed"] else row["code"] for row in stored}
    _same("one decision for each request", len(told), len(stored))
    _same("what is stored is what was told", told, flows.verdicts)
    _same("some were denied, or the load proves little", CPU_EXCEEDED.code in told.values(), True)  # noqa: FBT003
    async with quota.database.acquire() as connection:
        _same("an undisturbed run comes to the same", await audit.replay(connection, tenants), [])
    before = await _state(quota, tenants)
    await flows.repeat()
    _same("no request was told two things", flows.contradictions, [])
    _same("repeats change nothing", await _state(quota, tenants), before)
    await quota.audit()


async def settled(quota: Platform, facts: Facts) -> None:
    """Fail unless every fact counts, once, at its highest revision."""
    sql = "SELECT tenant, deployment, revision, cpu_reserved FROM charges WHERE tenant = ANY($1)"

    async def all_settled() -> bool:
        rows = await quota.database.fetch(sql, list(facts.tenants))
        return {(row[0], row[1]): (row[2], row[3]) for row in rows} == facts.expected

    await eventually(all_settled, seconds=30, what="every fact at its highest revision")
    await quota.audit()


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{what}: found {str(found)[:2000]}, expected {str(expected)[:2000]}")


async def _state(quota: Platform, tenants: list[str]) -> list[list[tuple[object, ...]]]:
    tables = {"charges": "deployment", "holds": "request_id", "usage": "environment, stack", "decisions": "request_id"}
    return [
        [
            tuple(row)
            for row in await quota.database.fetch(
                f"SELECT * FROM {table} WHERE tenant = ANY($1) ORDER BY tenant, {order}",  # noqa: S608 - our own names
                tenants,
            )
        ]
        for table, order in tables.items()
    ]


@asynccontextmanager
async def platform() -> AsyncIterator[Platform]:
    """Start the parts; everything is ended with the context, also when a test fails."""
    async with AsyncExitStack() as cleanup:
        stack = await asyncio.to_thread(lambda: PrivateStack(PARTS).__enter__())
        cleanup.push_async_callback(asyncio.to_thread, stack.close)
        database = await asyncpg.create_pool(
            stack.database.owner_dsn,
            min_size=1,
            max_size=3,
            server_settings={"search_path": "quota", "timezone": "UTC"},
        )
        cleanup.callback(database.terminate)
        wire = await cleanup.enter_async_context(Wire(stack.kafka_bootstrap))
        client = await cleanup.enter_async_context(EnforcementClient(stack.kafka_bootstrap, instance="tests"))
        made = Platform(stack, database, wire, client)
        cleanup.push_async_callback(_end, made)
        yield made


async def _end(made: Platform) -> None:
    for enforcer in made.enforcers.values():
        await enforcer.kill()
