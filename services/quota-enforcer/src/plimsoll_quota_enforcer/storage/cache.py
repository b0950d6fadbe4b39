"""Which tenants' states are still at hand from the last batch: a bounded cache, checked against the guard's seq."""

from collections import OrderedDict
from collections.abc import Mapping

from plimsoll_contracts.dimensions import Dimension
from plimsoll_quota_enforcer.domain.model import Limit
from plimsoll_quota_enforcer.domain.state import TenantState


class StateCache:
    """States by tenant, the least recently used dropped first.

    A cached state is used only under the tenant's guard and only if its ``seq`` is the row's: whoever changes a
    tenant raises it, so a state that another process has overtaken is never believed.
    """

    def __init__(self, weight_max: int) -> None:
        """Bound the cache by charges and open holds together, the rows that make a state large."""
        self._weight_max = weight_max
        self._weight = 0
        self._states: OrderedDict[str, TenantState] = OrderedDict()
        self.defaults: Mapping[Dimension, Limit] = {}
        self.defaults_version = -1

    def get(self, tenant: str, seq: int) -> TenantState | None:
        """Return the state of a tenant if it is the one its guard row has."""
        state = self._states.get(tenant)
        if state is None or state.seq != seq:
            return None
        self._states.move_to_end(tenant)
        return state

    def knows(self, tenant: str) -> bool:
        """Tell whether the tenant's guard row is known to exist."""
        return tenant in self._states

    def put(self, state: TenantState) -> None:
        """Keep a committed state."""
        self.drop(state.tenant)
        self._states[state.tenant] = state
        self._weight += _weight(state)
        while self._weight > self._weight_max and len(self._states) > 1:
            _, oldest = self._states.popitem(last=False)
            self._weight -= _weight(oldest)

    def drop(self, tenant: str) -> None:
        """Forget a tenant."""
        state = self._states.pop(tenant, None)
        if state is not None:
            self._weight -= _weight(state)

    def __len__(self) -> int:
        return len(self._states)


def _weight(state: TenantState) -> int:
    return 1 + len(state.charges) + len(state.open_holds)
