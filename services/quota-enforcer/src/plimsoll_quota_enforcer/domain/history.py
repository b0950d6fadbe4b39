"""What did a tenant have at an instant: its steps of history, folded into the figures of the present."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from plimsoll_contracts.enforcement import HoldState
from plimsoll_quota_enforcer.domain.model import Charge, Hold, Measured, Place
from plimsoll_quota_enforcer.domain.state import Change, ChangeKind, TenantState, fold

_NOT_TOLD = datetime(9999, 12, 31, tzinfo=UTC)
_NO_EXPIRIES: Mapping[str, datetime] = {}


def state_after(tenant: str, steps: Iterable[Change], expiries: Mapping[str, datetime] = _NO_EXPIRIES) -> TenantState:
    """Return what a tenant had after these steps, by the same fold as the present: without limits and entitlement.

    Args:
        tenant: whose history it is.
        steps: in the order of ``seq``: those that outlived what was dropped, and all since then; of steps about one
            charge, hold or measured place the last alone will do.
        expiries: when holds expire, by id. History does not tell; usage does not need it.
    """
    charges: dict[str, Charge] = {}
    holds: dict[str, Hold] = {}
    measured: dict[Place, Measured] = {}
    seq = 0
    for step in steps:
        seq = step.seq
        if step.kind is ChangeKind.SETTLED:
            revision = step.revision or 0
            charges[step.deployment] = Charge(step.deployment, revision, step.content, step.gone, step.seq)
        elif step.kind is ChangeKind.MEASURED:
            found = step.content.footprint.disk
            measured[step.content.place] = Measured(found, (0, step.seq), _NOT_TOLD, "history", complete=True)
        else:
            holds[step.hold] = Hold(
                step.hold,
                step.deployment,
                step.content,
                expiries.get(step.hold, _NOT_TOLD),
                step.hold_state or HoldState.OPEN,
                replaces=step.replaces,
                surge=step.surge,
            )
    return fold(
        tenant, seq, charges=charges, holds=holds, limits={}, defaults={}, entitlement=None, over={}, measured=measured
    )
