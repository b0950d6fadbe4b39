"""What of limits that are only tried?"""

from fastapi import APIRouter

from plimsoll_contracts.decisions_api import SimulateBody, Simulated
from plimsoll_quota_enforcer.api.access import Reader, everywhere
from plimsoll_quota_enforcer.api.applying import Faults, declared_scopes
from plimsoll_quota_enforcer.api.parts import Given
from plimsoll_quota_enforcer.storage import simulating
from plimsoll_quota_enforcer.storage.history import HistoryRefused
from plimsoll_runtime.http import Problem

router = APIRouter()


@router.post("/simulate")
async def simulate(parts: Given, who: Reader, body: SimulateBody) -> Simulated:
    """Decide the requests since an instant again under other limits, and say which would have fared otherwise."""
    if body.defaults:
        everywhere(who)
    faults = Faults()
    defaults = faults.declaration(None, body.defaults)
    scopes = declared_scopes(who, body.scopes, faults)
    faults.refuse()
    try:
        return await simulating.simulate(parts.pool, parts.policy, simulating.Tried(body.since, defaults, scopes))
    except HistoryRefused as refused:
        raise Problem(refused.code, refused.detail) from None
