"""How does a row become a value, and a value a row."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import sub
from typing import Any

import asyncpg

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, Mode
from plimsoll_quota_enforcer.domain.model import (
    Ask,
    Charge,
    Content,
    Entitlement,
    Footprint,
    Gauge,
    Hold,
    Limit,
    Measured,
    Multipliers,
    Node,
    Place,
    Waiter,
)
from plimsoll_quota_enforcer.domain.state import Change, ChangeKind
from plimsoll_quota_enforcer.domain.tally import Usage

Columns = list[Sequence[Any]]

_GAUGES_ARRAY = "{" + ",".join(["%d"] * len(Gauge)) + "}"


def columns(rows: Sequence[tuple[Any, ...]]) -> Columns:
    """Turn rows into the arrays that a statement unnests."""
    return list(zip(*rows, strict=True))


def literals(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Turn rows into array literals, one a column.

    asyncpg would look at each cell of an array, twice at a number, to learn whether it is an array itself: for a
    batch that costs more than everything else about writing it.
    """
    return ["{" + _cells(column) + "}" for column in zip(*rows, strict=True)]


def _cells(column: Sequence[Any]) -> str:
    if None in column:
        if column.count(None) == len(column):
            return ",".join(["NULL"] * len(column))
        return ",".join("NULL" if value is None else _cells((value,)) for value in column)
    first = column[0]
    if isinstance(first, str):
        return _quoted(column)
    if isinstance(first, bytes):
        return ",".join([f'"\\\\x{value.hex()}"' for value in column])
    if isinstance(first, datetime):
        return ",".join([f'"{value.isoformat()}"' for value in column])
    return ",".join(map(str, column))


def _quoted(column: Sequence[str]) -> str:
    """Quote a column of texts in one go; zero bytes, which PostgreSQL does not take, stand between them meanwhile."""
    joined = "\0".join(column)
    if joined.count("\0") >= len(column):
        raise ValueError("a text has a zero byte")
    return '"' + joined.replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","') + '"'


def array(values: Iterable[object]) -> str:
    """Write one array as a text: arrays of arrays cannot be unnested one by one."""
    column = tuple(values)
    return "{" + _cells(column) + "}" if column else "{}"


def _content(row: asyncpg.Record) -> Content:
    footprint = Footprint(
        row["cpu_reserved"],
        row["cpu_limit"],
        row["memory_reserved"],
        row["memory_limit"],
        row["disk"],
        row["vapps"],
    )
    multipliers = Multipliers(row["reservation_milli"], row["limit_milli"])
    nodes = tuple((node, cpu, memory) for node, cpu, memory in json.loads(row["nodes"] or "[]"))
    return Content((row["environment"], row["stack"]), row["app"], footprint, multipliers, nodes)


def _amounts(footprint: Footprint) -> tuple[int, ...]:
    """Return raw amounts in the order of the columns of ``charges``."""
    return (
        footprint.cpu_reserved,
        footprint.cpu_limit,
        footprint.memory_reserved,
        footprint.memory_limit,
        footprint.disk,
        footprint.vapps,
    )


def _content_cells(content: Content) -> tuple[Any, ...]:
    multipliers = content.multipliers
    return (
        *content.place,
        content.app,
        *_amounts(content.footprint),
        multipliers.reservation_milli,
        multipliers.limit_milli,
    )


def _nodes(content: Content) -> str | None:
    return json.dumps(content.nodes) if content.nodes else None


def charge(row: asyncpg.Record) -> Charge:
    """Read a row of ``charges``."""
    return Charge(row["deployment"], row["revision"], _content(row), row["gone"], row["changed_seq"])


def charge_cells(tenant: str, value: Charge) -> tuple[Any, ...]:
    """Write a row for ``save_charges``."""
    return (
        tenant,
        value.deployment,
        value.revision,
        value.gone,
        *_content_cells(value.content),
        _nodes(value.content),
        value.changed_seq,
    )


def hold(row: asyncpg.Record) -> Hold:
    """Read a row of ``holds``."""
    return Hold(
        row["request_id"],
        row["deployment"],
        _content(row),
        row["expires_at"],
        HoldState(row["state"]),
        row["settled_revision"],
        row["settled_outcome"],
        tuple(row["replaces"]),
        row["surge"],
    )


def hold_cells(tenant: str, value: Hold) -> tuple[Any, ...]:
    """Write a row for ``save_holds``."""
    return (
        tenant,
        value.id,
        value.deployment,
        *_content_cells(value.target),
        _nodes(value.target),
        value.expires_at,
        value.state,
        value.settled_revision,
        value.settled_outcome,
        array(value.replaces),
        value.surge,
    )


def change_cells(tenant: str, value: Change) -> tuple[Any, ...]:
    """Write a row for ``save_changes``."""
    multipliers = value.content.multipliers
    return (
        tenant,
        value.seq,
        value.kind,
        value.deployment,
        *value.content.place,
        value.content.app,
        array(_amounts(value.content.footprint)),
        multipliers.reservation_milli,
        multipliers.limit_milli,
        value.hold,
        value.hold_state,
        value.revision,
        value.gone,
        array(value.replaces) if value.replaces else None,
        value.surge,
        value.request_id,
    )


def change(row: asyncpg.Record) -> Change:
    """Read a row of ``changes`` or ``baselines``."""
    place, multipliers = (row["environment"], row["stack"]), Multipliers(row["reservation_milli"], row["limit_milli"])
    return Change(
        row["seq"],
        ChangeKind(row["kind"]),
        row["deployment"],
        Content(place, row["app"], Footprint(*row["amounts"]), multipliers),
        row["hold"],
        HoldState(row["hold_state"]) if row["hold_state"] is not None else None,
        row["revision"],
        row["gone"],
        tuple(row["replaces"] or ()),
        row["surge"],
        row["request_id"],
    )


def measured(row: asyncpg.Record) -> Measured:
    """Read a row of ``measured``."""
    order = (row["term"], row["scan"])
    return Measured(row["bytes"], order, row["measured_at"], row["method"], row["complete"])


def measured_cells(tenant: str, place: Place, value: Measured) -> tuple[Any, ...]:
    """Write a row for ``save_measured``."""
    return (tenant, *place, value.bytes, *value.order, value.at, value.method, value.complete)


def node(row: asyncpg.Record) -> Node:
    """Read a row of ``nodes``."""
    capacity = (row["cpu_capacity"], row["memory_capacity"]) if row["cpu_capacity"] is not None else None
    allocated = (row["cpu_allocated"], row["memory_allocated"])
    labels = json.loads(row["labels"])
    return Node(row["node"], row["pool"], labels, capacity, allocated, row["schedulable"], row["report_version"])


def node_cells(value: Node) -> tuple[Any, ...]:
    """Write a row for ``save_nodes``."""
    capacity = value.capacity or (None, None)
    labels = json.dumps(dict(value.labels))
    return (value.name, value.pool, labels, value.schedulable, *capacity, *value.allocated, value.version)


def waiter(row: asyncpg.Record, ask: Ask) -> Waiter:
    """Read a row of ``waiters``, whose request was read into an ask."""
    lacks = frozenset((environment, stack, what) for environment, stack, what in json.loads(row["lacks"]))
    return Waiter(ask, row["since"], row["until"], lacks, row["seq"])


def waiter_cells(tenant: str, value: Waiter) -> tuple[Any, ...]:
    """Write a row for ``save_waiters``."""
    patience = value.ask.patience
    if patience is None:
        raise ValueError(f"{value.ask.request_id} waits without patience")
    to = patience.reply_to
    address = (to.topic, to.partition, to.correlation_id)
    lacks = json.dumps(sorted(value.lacks))
    return (tenant, value.ask.request_id, value.seq, patience.body, *address, value.since, value.until, lacks)


def usage_cells(tenant: str, place: Place, value: Usage) -> tuple[Any, ...]:
    """Write a row for ``save_usage``: used, and what open holds add."""
    held = tuple(map(sub, value.total, value.used))
    return (tenant, *place, _GAUGES_ARRAY % value.used, _GAUGES_ARRAY % held)


def limit(row: asyncpg.Record) -> Limit:
    """Read a row of ``limits`` or ``defaults``."""
    return Limit(
        row["value"],
        Mode(row["mode"]),
        row["version"],
        row["expires_at"],
        row["set_by"],
        row["set_at"],
        row["reason"],
    )


def limits_by_place(rows: Iterable[asyncpg.Record]) -> Mapping[str, dict[Place, dict[Dimension, Limit]]]:
    """Read rows of ``limits``: by tenant, then place, then dimension."""
    found: dict[str, dict[Place, dict[Dimension, Limit]]] = {}
    for row in rows:
        places = found.setdefault(row["tenant"], {})
        places.setdefault((row["environment"], row["stack"]), {})[Dimension(row["dimension"])] = limit(row)
    return found


def entitlement(row: asyncpg.Record) -> Entitlement:
    """Read a row of ``entitlements``."""
    return Entitlement(
        row["version"],
        row["plan"],
        {Dimension(name): value for name, value in json.loads(row["limits"]).items()},
        row["deployments"],
        frozenset(Dimension(name) for name in row["blocked"]),
        row["ended"],
        row["projected_at"],
        row["fingerprint"],
    )


def entitlement_cells(tenant: str, value: Entitlement, snapshot: str) -> tuple[Any, ...]:
    """Write a row for ``save_entitlements``."""
    return (
        tenant,
        value.version,
        value.fingerprint,
        value.plan,
        json.dumps(value.limits),
        value.deployments,
        array(sorted(value.blocked)),
        value.ended,
        snapshot,
    )
