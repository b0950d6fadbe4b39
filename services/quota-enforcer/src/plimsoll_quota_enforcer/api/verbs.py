"""How are the enforcer's verbs asked over HTTP: through the client, onto the topic that every caller uses."""

from fastapi import APIRouter

from plimsoll_client import Allowed, ClientStartError, Denied
from plimsoll_contracts import codes
from plimsoll_contracts.api import CheckBody
from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_quota_enforcer.api.access import Asker, own
from plimsoll_quota_enforcer.api.parts import Given
from plimsoll_runtime.http import Problem

NEW_DEPLOYMENT = "plimsoll-check"
"""The deployment that a check without a name asks about: one that does not exist."""

router = APIRouter()


@router.post("/check")
async def check(parts: Given, who: Asker, body: CheckBody) -> EnforcementReply:
    """Ask whether something would be allowed now; a denial is an answer, not an error."""
    own(who, body.tenant)
    try:
        client = await parts.client()
    except ClientStartError as error:
        raise Problem(codes.GATE_UNAVAILABLE, str(error)) from None
    outcome = await client.check(
        tenant=body.tenant,
        environment=body.environment,
        stack=body.stack,
        app=body.app,
        deployment=body.deployment or NEW_DEPLOYMENT,
        footprint=body.footprint,
        on_unknown="closed",
    )
    if isinstance(outcome, Allowed | Denied) and outcome.reply is not None:
        return outcome.reply
    if isinstance(outcome, Denied):
        raise Problem(codes.CODES[outcome.code], outcome.message)
    raise Problem(codes.GATE_UNAVAILABLE, "the enforcer did not answer over Kafka in time")
