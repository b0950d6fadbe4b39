"""Which of several snapshots is the tenant's entitlement: the highest version, in whatever order they come."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from plimsoll_quota_enforcer.domain.book import Book
from plimsoll_quota_enforcer.domain.model import TENANT, Entitlement
from plimsoll_quota_enforcer.domain.state import Outcome, Policy, TenantState


class Projected(StrEnum):
    """What became of one snapshot."""

    APPLIED = "applied"
    STALE = "stale"
    REPEATED = "repeated"
    CONFLICT = "conflict"
    """An equal version with another content: kept out."""


@dataclass(frozen=True, slots=True)
class Entitled:
    """What became of each snapshot, and the state that follows."""

    outcome: Outcome
    projected: tuple[Projected, ...]
    winner: int | None
    """Which of the snapshots the state now has; None where it kept what it had."""


def entitle(state: TenantState, snapshots: Sequence[Entitlement], now: datetime, policy: Policy) -> Entitled:
    """Project the snapshots of one tenant; a lowered limit may be crossed by it, which is told."""
    present, winner = state.entitlement, None
    projected: list[Projected] = []
    for index, snapshot in enumerate(snapshots):
        if present is None or snapshot.version > present.version:
            present, winner = snapshot, index
            projected.append(Projected.APPLIED)
        elif snapshot.version < present.version:
            projected.append(Projected.STALE)
        elif snapshot.fingerprint == present.fingerprint:
            projected.append(Projected.REPEATED)
        else:
            projected.append(Projected.CONFLICT)
    if winner is None or present is None:
        return Entitled(Outcome(state), tuple(projected), None)
    book = Book(replace(state, entitlement=replace(present, at=now)), now, policy)
    book.expire_holds()
    book.seq += 1
    return Entitled(book.finish("entitlement", also=(TENANT,)), tuple(projected), winner)
