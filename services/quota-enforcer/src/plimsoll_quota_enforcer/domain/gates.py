"""What does the tenant's entitlement say: each gate passes, denies, or fails open where nothing is known."""

from collections.abc import Collection

from plimsoll_contracts.codes import ENTITLEMENT_ENDED, NOT_ENTITLED, QUOTA_BLOCKED
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Gate
from plimsoll_quota_enforcer.domain.model import Entitlement
from plimsoll_quota_enforcer.domain.state import GateVerdict, Passage, Policy

_ALL_OPEN = tuple(GateVerdict(gate, Passage.FAIL_OPEN) for gate in Gate)
_ALL_PASS = tuple(GateVerdict(gate, Passage.PASS) for gate in Gate)


def judge(entitlement: Entitlement | None, growing: Collection[Dimension], policy: Policy) -> tuple[GateVerdict, ...]:
    """Ask every gate about growth in the given dimensions, in the order in which codes are chosen.

    A missing projection row fails every gate open. A tombstone is not missing: it denies. Where entitlements are
    off, there are no gates.
    """
    if not policy.entitlements_expected:
        return ()
    if entitlement is None:
        return _ALL_OPEN
    if not entitlement.ended and entitlement.deployments and not entitlement.blocked:
        return _ALL_PASS
    return (
        _deployments(entitlement),
        _blocked(entitlement, growing),
        GateVerdict(Gate.PLAN_LIMITS, Passage.PASS),
    )


def _deployments(entitlement: Entitlement) -> GateVerdict:
    if entitlement.ended:
        return GateVerdict(Gate.DEPLOYMENTS, Passage.DENY, ENTITLEMENT_ENDED, f"plan {entitlement.plan} has ended")
    if not entitlement.deployments:
        detail = f"plan {entitlement.plan} has no deployments"
        return GateVerdict(Gate.DEPLOYMENTS, Passage.DENY, NOT_ENTITLED, detail)
    return GateVerdict(Gate.DEPLOYMENTS, Passage.PASS)


def _blocked(entitlement: Entitlement, growing: Collection[Dimension]) -> GateVerdict:
    blocked = [dimension for dimension in Dimension if dimension in entitlement.blocked and dimension in growing]
    if blocked:
        detail = f"billing has blocked {', '.join(blocked)}"
        return GateVerdict(Gate.QUOTA_BLOCKED, Passage.DENY, QUOTA_BLOCKED, detail)
    return GateVerdict(Gate.QUOTA_BLOCKED, Passage.PASS)
