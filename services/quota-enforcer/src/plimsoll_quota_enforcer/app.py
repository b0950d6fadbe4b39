"""With what does the enforcer run: the wiring of engine, storage, sweep, API and probes, in the order they live."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import asyncpg
import structlog
from faststream.asgi import AsgiFastStream
from starlette.types import ASGIApp

from plimsoll_client import EnforcementClient
from plimsoll_contracts.enforcement import Verb
from plimsoll_contracts.nodes import NodeReport
from plimsoll_contracts.topics import DISK_SCAN_REQUESTS, QUOTA_DECISIONS, QUOTA_LIMITS, REPLIES_HTTP
from plimsoll_quota_enforcer import metrics
from plimsoll_quota_enforcer.api import routes
from plimsoll_quota_enforcer.api.parts import Parts
from plimsoll_quota_enforcer.config import EnforcerSettings
from plimsoll_quota_enforcer.domain.model import Fact
from plimsoll_quota_enforcer.handlers import register
from plimsoll_quota_enforcer.requests import Asked, Decoder
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.doctor import Examined
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.unit import Unit, Wants, open_unit
from plimsoll_quota_enforcer.sweep import Sweep
from plimsoll_runtime import http, probes
from plimsoll_runtime.auth import Authenticate
from plimsoll_streams.dispatch import Transaction
from plimsoll_streams.engine import Engine
from plimsoll_streams.failures import Backoff
from plimsoll_streams.ports import Settings

NAME = "quota-enforcer"

log = structlog.get_logger("plimsoll.quota")


def _only_asked(received: Iterable[object]) -> frozenset[str]:
    """Return the tenants of whom a batch only asks whether something would be allowed."""
    asked: set[str] = set()
    others: set[str] = set()
    for each in received:
        tenant = getattr(each, "tenant", "")
        (asked if isinstance(each, Asked) and each.ask.verb is Verb.CHECK else others).add(tenant)
    return frozenset(asked - others)


class Enforcer:
    """One process: the parts, and the ASGI application that starts and stops them."""

    def __init__(self, settings: EnforcerSettings, pool: asyncpg.Pool, authenticate: Authenticate) -> None:
        """Wire the parts; nothing runs before the application's lifespan."""
        policy = settings.policy()
        self.cache = StateCache(settings.cache_rows_max)
        self._pool = pool
        self._bootstrap = settings.kafka_bootstrap
        self._instance = f"{NAME}-{settings.instance}"
        self._client: EnforcementClient | None = None
        self._client_lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

        async def unit_of(tx: Transaction, tenants: Sequence[str]) -> Unit:
            named = [tenant for tenant in tenants if tenant]  # a refused record and a node's report name none
            wants = Wants(
                asks=[each.ask for each in tx.received if isinstance(each, Asked)],
                facts=[each for each in tx.received if isinstance(each, Fact)],
                nodes=[each.node for each in tx.received if isinstance(each, NodeReport)],
                only_asked=_only_asked(tx.received),
            )
            return await open_unit(tx.connection, named, self.cache, policy, wants, instance=self._instance)

        self.engine: Engine[Unit] = Engine(
            name=NAME,
            bootstrap=settings.kafka_bootstrap,
            pool=pool,
            open_unit=unit_of,
            instance=str(settings.instance),
            settings=Settings(records_max=settings.batch_records_max, first_records_max=settings.batch_records_max),
            needs=(QUOTA_DECISIONS.name, QUOTA_LIMITS.name, DISK_SCAN_REQUESTS.name, REPLIES_HTTP.name),
        )
        register(self.engine, Decoder(policy))
        self._sweep = Sweep(
            pool,
            self.cache,
            policy,
            seconds=settings.sweep_seconds,
            retention_days=settings.retention_days,
            wake_relay=self.engine.wake_relay,
            send=self.engine.send_replies,
            instance=self._instance,
            backoff=Backoff(random.Random()),
        )
        examined = Examined(pool, policy, settings.kafka_bootstrap, self.engine.consumes, self.status)
        self._parts = Parts(pool, self.cache, policy, self.client, self.engine.wake_relay, examined)
        self.asgi = self._wire(authenticate)

    def _wire(self, authenticate: Authenticate) -> ASGIApp:
        checks = {"database": self._database, "partitions": self._partitions}
        internal = probes.routes(checks=checks, status=self.status)
        faststream = AsgiFastStream(self.engine.broker, asgi_routes=internal, logger=None)
        self.engine.attach(faststream)
        faststream.on_startup(self._remember_fail_opens)
        # Before anything is consumed: without today's partition every record would look like a bug.
        faststream.on_startup(self._sweep.upkeep)
        faststream.after_startup(self._begin)
        faststream.on_shutdown(self._end)
        return http.beside(faststream, routes.build(self._parts, authenticate), paths=[path for path, _ in internal])

    async def _remember_fail_opens(self) -> None:
        """Go on counting where the last process of this replica was killed: its last ones were never scraped."""
        for row in await self._pool.fetch(QUERIES["load_fail_opens"], self._instance):
            metrics.gate_fail_open.inc(row["total"], gate=row["gate"])

    async def _begin(self) -> None:
        self._run("sweep", self._sweep.run)
        self._run("gauges", self._gauge)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.__aexit__(None, None, None)

    def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.append(asyncio.create_task(work(), name=f"{NAME}-{name}"))

    async def _gauge(self) -> None:
        while True:
            metrics.cached_tenants.set(len(self.cache))
            await asyncio.sleep(1)

    async def client(self) -> EnforcementClient:
        """Return the client by which HTTP asks over the topic, started at first use."""
        async with self._client_lock:
            if self._client is None:
                client = EnforcementClient(self._bootstrap, caller="http", instance=self._instance)
                self._client = await client.__aenter__()
            return self._client

    async def _database(self) -> probes.CheckResult:
        await self._pool.fetchval("SELECT 1")
        return probes.CheckResult(ok=True)

    async def _partitions(self) -> probes.CheckResult:
        settled = self.engine.is_settled()
        return probes.CheckResult(ok=settled, detail="" if settled else "partitions are being claimed")

    def status(self) -> Mapping[str, object]:
        """Give the process's account of itself."""
        return {"service": NAME, "instance": self._instance, "cached_tenants": len(self.cache), **self.engine.status()}
