"""Which of several snapshots is the tenant's entitlement: the highest version, in whatever order they come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from plimsoll_contracts.versions import Standing, standing
from plimsoll_quota_enforcer.domain import waits
from plimsoll_quota_enforcer.domain.book import Book
from plimsoll_quota_enforcer.domain.model import TENANT, Entitlement, Node
from plimsoll_quota_enforcer.domain.state import Outcome, Policy, TenantState


@dataclass(frozen=True, slots=True)
class Entitled:
    """What became of each snapshot, and the state that follows."""

    outcome: Outcome
    projected: tuple[Standing, ...]
    winner: int | None
    """Which of the snapshots the state now has; None where it kept what it had."""


def entitle(
    state: TenantState,
    snapshots: Sequence[Entitlement],
    now: datetime,
    policy: Policy,
    nodes: Mapping[str, Node] | None = None,
) -> Entitled:
    """Project the snapshots of one tenant; a lowered limit may be crossed by it, which is told."""
    present, winner = state.entitlement, None
    projected: list[Standing] = []
    for index, snapshot in enumerate(snapshots):
        known = (present.version, present.fingerprint) if present is not None else None
        stands = standing(known, (snapshot.version, snapshot.fingerprint))
        if stands is Standing.APPLIED:
            present, winner = snapshot, index
        projected.append(stands)
    if winner is None or present is None:
        return Entitled(Outcome(state), tuple(projected), None)
    book = Book(replace(state, entitlement=replace(present, at=now)), now, policy, nodes)
    book.expire_holds()
    book.seq += 1
    if book.waiters:
        waits.wake(book)
    return Entitled(book.finish("entitlement", also=(TENANT,)), tuple(projected), winner)
