"""How is a change of limits written: the limit, its history, and the event that tells it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import LimitChanged, Mode
from plimsoll_contracts.fields import UNLIMITED, LimitValue
from plimsoll_contracts.scopes import DEFAULTS
from plimsoll_contracts.topics import QUOTA_LIMITS
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.model import Limit, Place
from plimsoll_quota_enforcer.domain.relimit import LimitPlan
from plimsoll_quota_enforcer.domain.state import Resolved
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_streams.records import OutboxMessage
from plimsoll_streams.transactions import Connection

PLATFORM = ""
"""Whose limits the global defaults are, in the history."""

Versions = Mapping[tuple[str, Place, Dimension], int]


@dataclass(frozen=True, slots=True)
class Step:
    """One change, and where in the history it stands."""

    tenant: str
    """``PLATFORM`` for a global default."""
    plan: LimitPlan
    version: int
    at: datetime
    by: str
    reason: str
    mode: Mode = Mode.ENFORCE
    expires_at: datetime | None = None
    seq: int | None = None


async def last_versions(connection: Connection, places: Iterable[tuple[str, Place]]) -> Versions:
    """Return the version of every limit that was ever set at these places."""
    keys = [(tenant, *place) for tenant, place in places]
    columns = [[key[column] for key in keys] for column in range(3)]
    found = await connection.fetch(QUERIES["last_limit_versions"], *columns)
    return {
        (row["tenant"], (row["environment"], row["stack"]), Dimension(row["dimension"])): row["version"]
        for row in found
    }


async def limits_tag(connection: Connection, tenant: str, place: Place) -> int:
    """Count the changes of one scope's limits, or of the defaults': no two states of them have the same count."""
    return int(await connection.fetchval(QUERIES["limits_tag"], tenant, *place))


async def record(connection: Connection, steps: Sequence[Step]) -> list[OutboxMessage]:
    """Write changes as they are planned and into the history, and return the events that tell them."""
    for name, of_platform in (("limit", False), ("default", True)):
        mine = [(_key(step), step.plan.limit) for step in steps if (step.tenant == PLATFORM) is of_platform]
        kept = [(*key, *_cells(limit)) for key, limit in mine if limit is not None]
        await connection.executemany(QUERIES[f"save_{name}"], kept)
        await connection.executemany(QUERIES[f"forget_{name}"], [key for key, limit in mine if limit is None])
    await connection.executemany(QUERIES["save_limit_history"], [_history_cells(step) for step in steps])
    return [_message(step) for step in steps]


def _key(step: Step) -> tuple[str, ...]:
    dimension = step.plan.dimension
    return (dimension,) if step.tenant == PLATFORM else (step.tenant, *step.plan.place, dimension)


def _cells(limit: Limit) -> tuple[object, ...]:
    return (limit.value, limit.mode, limit.version, limit.expires_at, limit.set_by, limit.reason, limit.set_at)


def _history_cells(step: Step) -> tuple[object, ...]:
    limit = step.plan.limit
    what = (step.version, limit is not None, limit.value if limit is not None else None, step.mode, step.expires_at)
    who = (step.by, step.reason, step.at, step.seq)
    return (step.tenant, *step.plan.place, step.plan.dimension, *what, *who)


def told(resolved: Resolved | None) -> LimitValue | None:
    """Return a resolved limit as messages write it."""
    if resolved is None:
        return None
    return UNLIMITED if resolved.value is None else resolved.value


def _message(step: Step) -> OutboxMessage:
    plan = step.plan
    scope = answers.scope_of(step.tenant, plan.place).render() if step.tenant != PLATFORM else DEFAULTS
    event = LimitChanged(
        tenant=step.tenant or None,
        scope=scope,
        dimension=plan.dimension,
        before=told(plan.before),
        after=told(plan.after),
        mode=step.mode,
        version=step.version,
        changed_by=step.by,
        reason=step.reason,
        expires_at=step.expires_at,
        changed_at=step.at,
        seq=step.seq,
    )
    name = f"{scope}:{plan.dimension}:{step.version}"
    return answers.message(
        QUOTA_LIMITS, step.tenant or DEFAULTS, "quota.limit_changed.v1", event, name=name, at=step.at
    )
