"""How do flows ask: one client, five verbs, and an outcome that is always one of three."""

import asyncio
import math
import os
import socket
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, Unpack

from pydantic import BaseModel, ValidationError

from plimsoll_client.channel import Channel, Counters, Failure
from plimsoll_client.fields import (
    AdjustFields,
    AnyFootprint,
    CallFields,
    CheckFields,
    CommitFields,
    ReserveFields,
)
from plimsoll_client.outcomes import Allowed, Denied, OnUnknown, Outcome, Unknown, UnknownReason, denied, judge
from plimsoll_client.reservation import Reservation
from plimsoll_contracts.codes import TOO_LARGE
from plimsoll_contracts.enforcement import EnforcementReply, code_of, explain
from plimsoll_contracts.requests import (
    MAX_REQUEST_BYTES,
    AdjustRequest,
    AnyRequest,
    CheckRequest,
    CommitRequest,
    ReleaseRequest,
    ReserveRequest,
)

DEFAULT_TIMEOUT_SECONDS = 5.0
MAX_IN_FLIGHT = 1000
_OF_ONE_REQUEST = {"request_id", "issued_at", "verb"}


class EnforcementClient:
    """Asks the quota-enforcer over Kafka and waits for the verdict.

    Use it as an async context manager, one per process. No call raises for an outage: the outcome is then
    ``Unknown``, and what that means is the caller's explicit choice (``on_unknown``), counted in ``counters``.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        caller: str = "flows",
        instance: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        start_timeout: float = 10.0,
        kafka: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe the client; nothing is connected yet.

        Args:
            bootstrap: The broker's addresses.
            caller: The kind of caller; its replies come on ``quota.replies.<caller>``.
            instance: Names this process among its kind; it picks the reply partition.
            timeout: Seconds for a call, both tries and the wait for a free slot included.
            max_in_flight: How many calls wait for replies at once; more wait for a slot.
            max_request_bytes: Larger requests are denied unsent.
            start_timeout: Seconds until starting gives up.
            kafka: More settings for aiokafka's producer and consumer, such as those of security.
        """
        self.counters = Counters()
        self._timeout = timeout
        self._slots = asyncio.Semaphore(max_in_flight)
        self._max_request_bytes = max_request_bytes
        instance = instance or f"{socket.gethostname()}-{os.getpid()}"
        self._channel = Channel(bootstrap, caller, instance, start_timeout, kafka or {}, self.counters)

    async def __aenter__(self) -> Self:
        await self._channel.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.stop()

    async def check(
        self,
        *,
        tenant: str,
        deployment: str,
        footprint: AnyFootprint | None = None,
        on_unknown: OnUnknown,
        **fields: Unpack[CheckFields],
    ) -> Outcome:
        """Ask whether this would be allowed now. Advisory: nothing is stored or held.

        How large it is comes as a ``footprint`` or as a ``compose`` file: one of the two.
        """
        body = {"verb": "check", "tenant": tenant, "deployment": deployment, "footprint": footprint, **fields}
        return await self._call(CheckRequest, body, proceed=_open(on_unknown))

    def reserve(
        self,
        *,
        tenant: str,
        deployment: str,
        footprint: AnyFootprint | None = None,
        on_unknown: OnUnknown,
        **fields: Unpack[ReserveFields],
    ) -> Reservation:
        """Check and hold in one step. Await the result for an outcome, or use it with ``async with``.

        How large it is comes as a ``footprint`` or as a ``compose`` file: one of the two.
        """
        body = {"verb": "reserve", "tenant": tenant, "deployment": deployment, "footprint": footprint, **fields}
        _open(on_unknown)  # before anything is asked
        return Reservation(self, name_request(body), on_unknown)

    async def commit(
        self, *, tenant: str, hold: str, revision: int | None = None, **fields: Unpack[CommitFields]
    ) -> Outcome:
        """Say that the deployment runs as reserved, and what it replaces has ended.

        ``hold`` is the reserve's request id.
        """
        body = {"verb": "commit", "tenant": tenant, "hold": hold, "revision": revision, **fields}
        return await self._call(CommitRequest, body)

    async def release(self, *, tenant: str, hold: str, **fields: Unpack[CallFields]) -> Outcome:
        """Give a hold back; nothing was deployed."""
        return await self._call(ReleaseRequest, {"verb": "release", "tenant": tenant, "hold": hold, **fields})

    async def adjust(
        self,
        *,
        tenant: str,
        deployment: str,
        footprint: AnyFootprint | None,
        revision: int | None = None,
        **fields: Unpack[AdjustFields],
    ) -> Outcome:
        """Say what a deployment takes now (None, and no ``compose``: it is gone). A fact: never refused by a limit."""
        named = {"tenant": tenant, "deployment": deployment, "footprint": footprint, "revision": revision}
        return await self._call(AdjustRequest, {"verb": "adjust", **named, **fields})

    async def reserve_once(self, body: Mapping[str, Any], on_unknown: OnUnknown) -> Outcome:
        """Send a reservation's request; a ``Reservation`` calls this each time it is awaited."""
        return await self._call(ReserveRequest, dict(body), proceed=_open(on_unknown))

    async def adjust_as_reserved(self, body: Mapping[str, Any], revision: int | None, **more: Any) -> Outcome:
        """Settle what a reserve asked for, where the service knows no hold of it."""
        fact = {name: body[name] for name in AdjustRequest.model_fields.keys() & body.keys() - _OF_ONE_REQUEST}
        return await self._call(AdjustRequest, {**fact, "verb": "adjust", "revision": revision, **more})

    async def abandon(self, tenant: str, hold: str) -> None:
        """Ask for the release of a hold that may or may not exist, without waiting for the answer."""
        body = name_request({"verb": "release", "tenant": tenant, "hold": hold})
        request = ReleaseRequest.model_validate(body)
        await self._channel.post(tenant.encode(), _dump(request), seconds=0.25)

    async def send(self, request: AnyRequest, *, seconds: float | None = None) -> Outcome:
        """Send a request that was made elsewhere, such as one that came over HTTP; no verdict is Unknown, and no yes.

        ``seconds`` until then; the client's default where it is not given.
        """
        is_fact = not isinstance(request, CheckRequest | ReserveRequest)
        body = {**request.model_dump(exclude_unset=True), "timeout": seconds or self._timeout}
        return await self._call(type(request), body, proceed=None if is_fact else False)

    async def _call(self, model: type[BaseModel], body: dict[str, Any], *, proceed: bool | None = None) -> Outcome:
        """Validate, send, wait, judge and count. ``proceed`` is the caller's choice for Unknown; None for facts."""
        if not self._channel.started:
            raise RuntimeError("the client is not started: use it as `async with EnforcementClient(...) as client`")
        self.counters.calls += 1
        seconds = body.pop("timeout", self._timeout)
        outcome = await self._outcome(model, name_request(body), seconds, proceed=proceed)
        self._count(outcome, is_fact=proceed is None)
        return outcome

    async def _outcome(
        self, model: type[BaseModel], body: dict[str, Any], seconds: float, *, proceed: bool | None
    ) -> Outcome:
        request_id = body["request_id"]
        try:
            request = model.model_validate(body)
            encoded = _dump(request)
        except ValidationError as error:
            return denied(request_id, code_of(error), explain(error))
        if len(encoded) > self._max_request_bytes:
            return denied(request_id, TOO_LARGE, f"{len(encoded)} bytes, {self._max_request_bytes} are allowed")
        waits = getattr(request, "wait_seconds", 0)
        reply = await self._exchange(body["tenant"].encode(), encoded, seconds, waits, is_fact=proceed is None)
        if isinstance(reply, Failure):
            return Unknown(request_id, reply.reason, reply.detail, bool(proceed))
        try:
            return judge(request_id, EnforcementReply.model_validate_json(reply), proceed=bool(proceed))
        except ValidationError as error:
            return Unknown(request_id, UnknownReason.BAD_REPLY, explain(error), bool(proceed))

    async def _exchange(self, key: bytes, body: bytes, seconds: float, waits: int, *, is_fact: bool) -> bytes | Failure:
        """Try twice inside the deadline, with the same bytes: the second try starts when half the time is gone.

        Whoever waits for room is answered when it comes, or when the wait ends. It asks again every ``seconds``: an
        answer that was lost on its way is given again, and what waits still is told where its answer goes now.
        """
        until = asyncio.get_running_loop().time() + seconds + waits
        # A fact stays true however late it comes, so only a question carries its deadline.
        deadline_ms = None if is_fact else int((time.time() + seconds + waits) * 1000)
        try:
            async with asyncio.timeout_at(until):
                await self._slots.acquire()
        except TimeoutError:
            return Failure(UnknownReason.OVERLOADED, "too many calls of this client are in flight")
        try:
            return await self._tries(key, body, deadline_ms, until, 2 + math.ceil(waits / max(seconds, 1.0)))
        finally:
            self._slots.release()

    async def _tries(
        self, key: bytes, body: bytes, deadline_ms: int | None, until: float, tries: int
    ) -> bytes | Failure:
        loop = asyncio.get_running_loop()
        for left in range(tries, 1, -1):
            ends = loop.time() + (until - loop.time()) / left
            answer = await self._channel.ask(key, body, deadline_ms=deadline_ms, until=ends)
            if not isinstance(answer, Failure) or answer.reason is UnknownReason.STOPPED:
                return answer
            self.counters.retries += 1
            if left > 2:  # noqa: PLR2004  the broker's refusal at once must not use up all tries at once
                await asyncio.sleep(ends - loop.time())
        return await self._channel.ask(key, body, deadline_ms=deadline_ms, until=until)

    def _count(self, outcome: Outcome, *, is_fact: bool) -> None:
        counters = self.counters
        match outcome:
            case Allowed():
                counters.allowed += 1
            case Denied():
                counters.denied += 1
            case Unknown() if is_fact:
                counters.unknown_facts += 1
            case Unknown(proceed=True):
                counters.unknown_open += 1
            case Unknown():
                counters.unknown_closed += 1


def _open(on_unknown: OnUnknown) -> bool:
    """Read the caller's choice; a misspelt one must not become either."""
    if on_unknown not in ("open", "closed"):
        raise ValueError(f"on_unknown is {on_unknown!r}: choose 'open' or 'closed'")
    return on_unknown == "open"


def name_request(body: dict[str, Any]) -> dict[str, Any]:
    """Give a request its id and the moment it was first asked, unless it has them."""
    if "request_id" in body and "issued_at" in body:
        return body
    return {"request_id": str(uuid.uuid4()), "issued_at": datetime.now(UTC), **body}


def _dump(request: BaseModel) -> bytes:
    return request.model_dump_json(exclude_defaults=True).encode()
