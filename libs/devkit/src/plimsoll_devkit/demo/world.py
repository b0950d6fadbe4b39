"""With what does the demo work: a client like a flow's, the command line, and places to look at the truth."""

import asyncio
import os
import shlex
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from aiokafka import AIOKafkaProducer

from plimsoll_client import Allowed, Denied, EnforcementClient, Outcome
from plimsoll_contracts.api import ScopeStatus
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.envelope import Envelope
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS, QUOTA_REQUESTS
from plimsoll_devkit.demo.story import Story
from plimsoll_devkit.stack.private import PrivateStack

ENFORCER = "quota-enforcer"
PLIMSOLL = Path(sys.executable).with_name("plimsoll")
_TOLD = ("allowed", "code", "message", "fail_open", "hold", "settled", "replaced", "nodes", "waited_ms", "seq")


@dataclass(frozen=True, slots=True)
class World:
    """What each chapter uses. `suffix` keeps tenants of one run apart where the parts outlive it."""

    stack: PrivateStack
    story: Story
    client: EnforcementClient
    producer: AIOKafkaProducer
    http: httpx.AsyncClient
    context_file: Path
    suffix: str

    def tenant(self, name: str) -> str:
        """The name of a tenant in this run."""
        return f"{name}{self.suffix}"

    async def plimsoll(self, *words: str) -> tuple[int, str]:
        """Run the command line and show it; returns its exit code and output."""
        environment = {**os.environ, "PLIMSOLL_CONTEXT": str(self.context_file), "COLUMNS": "100", "NO_COLOR": "1"}
        process = await asyncio.create_subprocess_exec(
            PLIMSOLL, *words, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:  # interrupted: what is still there when the loop has gone would complain
                process.kill()
                await process.wait()
        text = output.decode()
        self.story.ran(f"plimsoll {shlex.join(words)}", text)
        return process.returncode or 0, text

    async def entitle(self, tenant: str, version: int, **content: Any) -> EntitlementSnapshot:
        """Publish a snapshot as billing does: whole, under its version, with the tenant as the key."""
        snapshot = EntitlementSnapshot(tenant=tenant, entitlement_version=version, **content)
        envelope = Envelope(uuid.uuid4().hex, "entitlement.snapshot.v1", "billing", datetime.now(UTC))
        told = snapshot.model_dump(mode="json", exclude_defaults=True)
        self.story.sent(ENTITLEMENT_EVENTS.name, {name: value for name, value in told.items() if value})
        await self.producer.send_and_wait(
            ENTITLEMENT_EVENTS.name,
            snapshot.model_dump_json().encode(),
            key=tenant.encode(),
            headers=envelope.headers(),
        )
        return snapshot

    async def reserve(self, **fields: Any) -> Outcome:
        """Reserve over Kafka as a flow does, and show question and answer."""
        told = {name: f"{value[:40]}..." if name == "compose" else value for name, value in fields.items()}
        self.story.sent(QUOTA_REQUESTS.name, {"verb": "reserve", **told})
        outcome = await self.client.reserve(**fields, on_unknown="closed")
        self.answered(outcome)
        return outcome

    async def commit(self, tenant: str, hold: str) -> Outcome:
        """Say that what was reserved runs, and show question and answer."""
        self.story.sent(QUOTA_REQUESTS.name, {"verb": "commit", "tenant": tenant, "hold": hold})
        outcome = await self.client.commit(tenant=tenant, hold=hold)
        self.answered(outcome)
        return outcome

    def answered(self, outcome: Outcome) -> None:
        """Show an answer; where none came, why."""
        if isinstance(outcome, Allowed | Denied) and outcome.reply is not None:
            body = outcome.reply.model_dump(mode="json", exclude_defaults=True, include=set(_TOLD))
            self.story.came("reply", body)
        else:
            self.story.came("no reply", str(outcome))

    async def status(self, tenant: str, environment: str = "") -> ScopeStatus:
        """Read a scope's limits and usage over HTTP."""
        where = {"environment": environment} if environment else {}
        answer = await self.http.get(f"/api/v1/quota/tenants/{tenant}/status", params=where)
        return ScopeStatus.model_validate_json(answer.raise_for_status().content)

    async def figures(self, tenant: str, environment: str, dimension: str) -> tuple[int, int]:
        """What a scope has of one dimension: used and held, in base units."""
        status = await self.status(tenant, environment)
        line = next(each for each in status.dimensions if each.dimension == dimension)
        return line.used, line.held

    async def decisions(self, requests: str) -> Mapping[str, bool]:
        """The stored verdict of each request whose id begins with `requests`, read from the database itself."""
        query = "SELECT request_id, allowed FROM quota.decisions WHERE request_id LIKE $1"
        self.story.sent("PostgreSQL", query.replace("$1", repr(f"{requests}%")))
        connection = await asyncpg.connect(self.stack.database.dsn())
        try:
            rows = await connection.fetch(query, f"{requests}%")
        finally:
            await connection.close()
        self.story.came("PostgreSQL", f"{len(rows):,} rows")
        return {row["request_id"]: row["allowed"] for row in rows}


@asynccontextmanager
async def connected(stack: PrivateStack, story: Story, context_file: Path, suffix: str) -> AsyncIterator[World]:
    """A world on a running stack, closed at the end."""
    producer = AIOKafkaProducer(bootstrap_servers=stack.kafka_bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        async with (
            EnforcementClient(stack.kafka_bootstrap, timeout=15, max_in_flight=200) as client,
            httpx.AsyncClient(
                base_url=f"http://{stack.address(ENFORCER)}", headers=stack.credentials.header(), timeout=10
            ) as http,
        ):
            yield World(stack, story, client, producer, http, context_file, suffix)
    finally:
        await producer.stop()


async def until(look: Callable[[], Awaitable[bool]], *, seconds: float) -> bool:
    """Look again and again until it holds; False where it does not within `seconds`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await look():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.1)
    return True
