"""How are the enforcer's verbs asked over HTTP: through the client, onto the topic that every caller uses."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from pydantic import ValidationError

from plimsoll_client import Allowed, ClientStartError, Denied
from plimsoll_contracts import codes
from plimsoll_contracts.access import Permission
from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.problems import code_of, explain
from plimsoll_contracts.requests import AnyRequest, ReserveRequest
from plimsoll_contracts.verbs import (
    AdjustBody,
    AnyBody,
    CheckBody,
    CommitBody,
    RefusedVerb,
    ReleaseBody,
    ReserveBody,
    request_of,
)
from plimsoll_quota_enforcer.api.access import Asker, own
from plimsoll_quota_enforcer.api.once import MaybeOnce, same_as_first
from plimsoll_quota_enforcer.api.parts import Given, Parts
from plimsoll_quota_enforcer.storage.once import Once, take
from plimsoll_runtime.auth import Principal, forbidden
from plimsoll_runtime.http import Problem

ANSWER_SECONDS = 5.0
"""Until there is no verdict, beside the time that a reserve may wait for room."""
_JUDGED = (402, 403)
_REFUSED: Mapping[int | str, dict[str, Any]] = {
    status: {"model": RefusedVerb, "description": what}
    for status, what in ((402, "Billing's verdict"), (403, "A limit, a gate or capacity"), (409, "It contradicts"))
}

router = APIRouter()


@router.post("/check")
async def check(parts: Given, who: Asker, once: MaybeOnce, body: CheckBody) -> EnforcementReply:
    """Ask whether something would be allowed now; a denial is an answer, not an error."""
    return await _answer(parts, who, once, body)


@router.post("/reserve", responses={**_REFUSED})
async def reserve(parts: Given, who: Asker, once: MaybeOnce, body: ReserveBody) -> EnforcementReply:
    """Check and hold in one step. The hold is named by the reply's ``request_id``."""
    return await _answer(parts, who, once, body)


@router.post("/commit", responses={**_REFUSED})
async def commit(parts: Given, who: Asker, once: MaybeOnce, body: CommitBody) -> EnforcementReply:
    """Say that a deployment runs as it was reserved."""
    return await _answer(parts, who, once, body)


@router.post("/release", responses={**_REFUSED})
async def release(parts: Given, who: Asker, once: MaybeOnce, body: ReleaseBody) -> EnforcementReply:
    """Give a hold back; nothing was deployed."""
    return await _answer(parts, who, once, body)


@router.post("/adjust", responses={**_REFUSED})
async def adjust(parts: Given, who: Asker, once: MaybeOnce, body: AdjustBody) -> EnforcementReply:
    """Say what a deployment takes now: a fact, never refused by a limit."""
    return await _answer(parts, who, once, body)


async def _answer(parts: Parts, who: Principal, once: Once | None, body: AnyBody) -> EnforcementReply:
    own(who, body.tenant)
    if isinstance(body, CommitBody | AdjustBody) and body.nodes is not None and who.tenants is not None:
        # What is said to be on a node is taken from everybody: only the platform's own say it.
        raise forbidden(Permission.ASK, "and all tenants: nodes are shared by all of them")
    request = await _named(parts, once, body)
    try:
        client = await parts.client()
    except ClientStartError as error:
        raise Problem(codes.GATE_UNAVAILABLE, str(error)) from None
    waits = request.wait_seconds if isinstance(request, ReserveRequest) else 0
    outcome = await client.send(request, seconds=ANSWER_SECONDS + waits)
    if not isinstance(outcome, Allowed | Denied):
        again = "send it again with the same Idempotency-Key" if once else "nobody knows whether it was decided"
        detail = f"the enforcer did not answer over Kafka in time: {again}"
        raise Problem(codes.GATE_UNAVAILABLE, detail, headers={"Retry-After": "1"}, request_id=request.request_id)
    if isinstance(outcome, Allowed):
        return outcome.reply
    reply = outcome.reply
    if reply is not None and isinstance(body, CheckBody) and reply.status in _JUDGED:
        return reply
    whole = {} if reply is None else {"reply": reply.model_dump(mode="json")}
    raise Problem(codes.CODES.get(outcome.code, codes.INTERNAL), outcome.message, **whole)


async def _named(parts: Parts, once: Once | None, body: AnyBody) -> AnyRequest:
    """Name and date a request: a repeat under its key is the same request, asked at the same time."""
    request_id, issued_at = str(uuid.uuid4()), datetime.now(UTC)
    if once is not None:
        async with parts.pool.acquire() as connection, connection.transaction():
            known = await take(connection, once)
        same_as_first(once, known)
        request_id, issued_at = once.key, known.taken_at
    try:
        return request_of(body, request_id=request_id, issued_at=issued_at)
    except ValidationError as error:
        raise Problem(code_of(error), explain(error)) from None
