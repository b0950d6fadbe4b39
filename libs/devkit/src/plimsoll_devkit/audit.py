"""Does the enforcer's database agree with itself: usage with charges and holds, state with the decisions behind it?

The refold is written from DESIGN 5.3 and not from the service's own tally, so that one can catch the other.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import asyncpg

from plimsoll_quota_enforcer.domain.decide import decide
from plimsoll_quota_enforcer.domain.model import Ask, Charge, Hold
from plimsoll_quota_enforcer.domain.state import Policy, TenantState
from plimsoll_quota_enforcer.requests import Decoder, Refused
from plimsoll_quota_enforcer.storage import loading
from plimsoll_streams.records import Record

GAUGES = 9
_ADDITIVE = ("cpu_reserved", "cpu_limit", "memory_reserved", "memory_limit", "disk", "vapps")
_SCALED = {"cpu_reserved", "memory_reserved"}
_DISK, _STACKS, _ENVIRONMENTS, _APPS = 4, 6, 7, 8
_CHARGES = "SELECT * FROM charges WHERE NOT gone"
_HOLDS = "SELECT * FROM holds WHERE state = 'open'"

Where = tuple[str, str, str]
Figures = tuple[list[int], list[int]]
Audited = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy


@dataclass
class _Scope:
    """What counts at one scope: sums, and members by gauge."""

    used: list[int] = field(default_factory=lambda: [0] * GAUGES)
    total: list[int] = field(default_factory=lambda: [0] * GAUGES)
    settled: set[tuple[int, object]] = field(default_factory=set)
    reached: set[tuple[int, object]] = field(default_factory=set)

    def figures(self) -> Figures:
        used, total = list(self.used), list(self.total)
        for gauge in (_STACKS, _ENVIRONMENTS, _APPS):
            used[gauge] = sum(member[0] == gauge for member in self.settled)
            total[gauge] = sum(member[0] == gauge for member in self.settled | self.reached)
        return used, [t - u for t, u in zip(total, used, strict=True)]


def _places(row: asyncpg.Record) -> list[tuple[str, str]]:
    environment, stack = row["environment"], row["stack"]
    return sorted({("", ""), (environment, ""), (environment, stack)})


def _amounts(row: asyncpg.Record) -> list[int]:
    return [-(-row[name] * row["reservation_milli"] // 1000) if name in _SCALED else row[name] for name in _ADDITIVE]


def _members(row: asyncpg.Record) -> set[tuple[int, object]]:
    found: set[tuple[int, object]] = set()
    if row["stack"]:
        found.add((_STACKS, (row["environment"], row["stack"])))
    if row["environment"]:
        found.add((_ENVIRONMENTS, row["environment"]))
    if row["app"]:
        found.add((_APPS, row["app"]))
    return found


@dataclass
class _Group:
    """What counts as one: a deployment's charge, its open hold, and the charges that the hold replaces."""

    own: asyncpg.Record | None = None
    hold: asyncpg.Record | None = None
    replaced: list[asyncpg.Record] = field(default_factory=list)

    @property
    def charges(self) -> list[asyncpg.Record]:
        return [*([self.own] if self.own is not None else []), *self.replaced]

    def reaches(self, mine: int, theirs: int, wanted: int) -> int:
        """Rule 4: the larger of what is settled and what is wanted, or what is wanted on top where it surges."""
        surges = self.hold is not None and self.hold["surge"]
        return theirs + max(mine, wanted) if surges else max(mine + theirs, wanted)


def _groups(charges: Iterable[asyncpg.Record], holds: Iterable[asyncpg.Record]) -> list[_Group]:
    free = {(row["tenant"], row["deployment"]): row for row in charges}
    groups: list[_Group] = []
    for hold in holds:
        own = free.pop((hold["tenant"], hold["deployment"]), None)
        ended = [free.pop((hold["tenant"], name), None) for name in hold["replaces"]]
        groups.append(_Group(own, hold, [row for row in ended if row is not None]))
    return [*groups, *(_Group(row) for row in free.values())]


def refold(
    charges: Iterable[asyncpg.Record], holds: Iterable[asyncpg.Record], measured: Iterable[asyncpg.Record] = ()
) -> dict[Where, Figures]:
    """Compute used and held of every scope from live charges, open holds and measured disks."""
    scopes: dict[Where, _Scope] = defaultdict(_Scope)
    for group in _groups(charges, holds):
        rows = [*group.charges, *([group.hold] if group.hold is not None else [])]
        for place in {place for row in rows for place in _places(row)}:
            scope = scopes[rows[0]["tenant"], *place]
            mine = _sum([group.own] if group.own is not None else [], place)
            theirs = _sum(group.replaced, place)
            wanted = _sum([group.hold] if group.hold is not None else [], place)
            for gauge in range(len(_ADDITIVE)):
                scope.used[gauge] += mine[gauge] + theirs[gauge]
                scope.total[gauge] += group.reaches(mine[gauge], theirs[gauge], wanted[gauge])
            for row in group.charges:
                if place in _places(row):
                    scope.settled |= _members(row)
            if group.hold is not None and place in _places(group.hold):
                scope.reached |= _members(group.hold)
    _raise_disk(scopes, {(row["tenant"], row["environment"], row["stack"]): row["bytes"] for row in measured})
    return {where: scope.figures() for where, scope in scopes.items()}


def _sum(rows: Iterable[asyncpg.Record], place: tuple[str, str]) -> list[int]:
    here = [_amounts(row) for row in rows if place in _places(row)]
    return [sum(column) for column in zip(*here, strict=True)] if here else [0] * len(_ADDITIVE)


def _raise_disk(scopes: dict[Where, _Scope], measured: Mapping[Where, int]) -> None:
    """Rule 9: a leaf has what is settled or measured; a parent what is measured, or what its children have."""
    for tenant, environment, stack in measured:
        for place in {("", ""), (environment, ""), (environment, stack)}:
            scopes[tenant, *place]  # it is there, whatever is charged
    more: dict[Where, int] = defaultdict(int)
    for where in sorted(scopes, key=lambda each: (not each[2], not each[1])):
        tenant, environment, stack = where
        settled = scopes[where].used[_DISK]
        lift = max(measured.get(where, 0), settled + more[where]) - settled
        scopes[where].used[_DISK] += lift
        scopes[where].total[_DISK] += lift
        if environment:
            more[tenant, environment if stack else "", ""] += lift


def refold_nodes(charges: Iterable[asyncpg.Record], holds: Iterable[asyncpg.Record]) -> dict[str, tuple[int, int]]:
    """Compute what is allocated on each node from live charges and open holds."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for group in _groups(charges, holds):
        mine = _on_nodes([group.own] if group.own is not None else [])
        theirs = _on_nodes(group.replaced)
        wanted = _on_nodes([group.hold] if group.hold is not None else [])
        for node, which in {*mine, *theirs, *wanted}:
            key = (node, which)
            found[node][which] += group.reaches(mine.get(key, 0), theirs.get(key, 0), wanted.get(key, 0))
    return {node: (cpu, memory) for node, (cpu, memory) in found.items()}


def _on_nodes(rows: Iterable[asyncpg.Record]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = defaultdict(int)
    for row in rows:
        for node, cpu, memory in json.loads(row["nodes"] or "[]"):
            found[node, 0] += cpu
            found[node, 1] += memory
    return found


async def problems(connection: Audited, tenants: Collection[str] | None = None) -> list[str]:
    """Return everything that does not agree, of these tenants or of all, in one snapshot of the database."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = await _usage_problems(connection) + await _node_problems(connection)
        for sql in _NEVER:
            found += [f"{sql.partition(chr(10))[0].strip('- ')}: {dict(row)}" for row in await connection.fetch(sql)]
    return [each for each in found if tenants is None or any(f"'{tenant}'" in each for tenant in tenants)]


_NEVER = (
    """-- one request, several decisions
    SELECT tenant, request_id, count(*) FROM decisions GROUP BY tenant, request_id HAVING count(*) > 1""",
    """-- several open holds of one deployment
    SELECT tenant, deployment, count(*) FROM holds WHERE state = 'open'
    GROUP BY tenant, deployment HAVING count(*) > 1""",
    """-- a step of history beyond the tenant's seq
    SELECT c.tenant, max(c.seq) FROM changes c JOIN tenants t USING (tenant) GROUP BY c.tenant, t.seq
    HAVING max(c.seq) > t.seq""",
    """-- one step of history twice
    SELECT tenant, seq, count(*) FROM changes GROUP BY tenant, seq HAVING count(*) > 1""",
    """-- a step of history without a tenant
    SELECT tenant FROM changes EXCEPT SELECT tenant FROM tenants""",
    """-- an allowed reserve without its hold
    SELECT d.tenant, d.request_id FROM decisions d
    WHERE d.verb = 'reserve' AND d.allowed AND NOT EXISTS (
        SELECT FROM holds h WHERE h.tenant = d.tenant AND h.request_id = d.request_id)""",
    """-- a hold without an allowed reserve
    SELECT h.tenant, h.request_id FROM holds h WHERE NOT EXISTS (
        SELECT FROM decisions d WHERE d.tenant = h.tenant AND d.request_id = h.request_id AND d.allowed)""",
)


async def _node_problems(connection: Audited) -> list[str]:
    expected = refold_nodes(await connection.fetch(_CHARGES), await connection.fetch(_HOLDS))
    stored = {
        row["node"]: (row["cpu_allocated"], row["memory_allocated"])
        for row in await connection.fetch("SELECT * FROM nodes")
    }
    return [
        f"node {node!r} has {stored.get(node)} allocated, charges and holds come to {expected.get(node, (0, 0))}"
        for node in sorted(expected.keys() | stored.keys())
        if stored.get(node) != expected.get(node, (0, 0))
    ]


async def _usage_problems(connection: Audited) -> list[str]:
    expected = refold(
        await connection.fetch(_CHARGES),
        await connection.fetch(_HOLDS),
        await connection.fetch("SELECT * FROM measured WHERE bytes IS NOT NULL"),
    )
    nothing: Figures = ([0] * GAUGES, [0] * GAUGES)
    stored = {
        (row["tenant"], row["environment"], row["stack"]): (list(row["used"]), list(row["held"]))
        for row in await connection.fetch("SELECT * FROM usage")
    }
    return [
        f"usage of {where!r} is {stored.get(where, nothing)}, its charges and holds say {expected.get(where, nothing)}"
        for where in sorted(expected.keys() | stored.keys())
        if expected.get(where, nothing) != stored.get(where, nothing)
    ]


async def replay(connection: Audited, tenants: Sequence[str]) -> list[str]:
    """Decide all stored requests of these tenants again, in their order and undisturbed, and return what differs.

    It is what a run without any crash would have come to. For tenants that had no facts, whose limits were set
    before their first request, and none of whose holds has expired.
    """
    found: list[str] = []
    defaults = await loading.load_defaults(connection)
    present = await loading.load(connection, dict.fromkeys(tenants, 0), defaults, Policy())
    for tenant in tenants:
        state = _emptied(present[tenant])
        # A refusal has the seq of the last change before it, which therefore comes first.
        stored = await connection.fetch(
            "SELECT request, allowed, code, decided_at FROM decisions WHERE tenant = $1"
            " ORDER BY seq, NOT allowed, decided_at",
            tenant,
        )
        for row in stored:
            ask = _ask(row["request"], tenant)
            outcome = decide(state, [ask], row["decided_at"], Policy())
            (decision,) = outcome.decisions
            state = outcome.state
            verdict = (decision.allowed, decision.code.code if decision.code is not None else None)
            if verdict != (row["allowed"], row["code"]):
                found.append(f"{tenant} {ask.request_id} is stored as {row['allowed'], row['code']}, decided {verdict}")
        found += _differences(tenant, state, present[tenant])
    return found


def _emptied(state: TenantState) -> TenantState:
    empty = TenantState(state.tenant)
    return replace(empty, limits=state.limits, defaults=state.defaults, entitlement=state.entitlement)


def _ask(request: str, tenant: str) -> Ask:
    headers = (("reply_to", b"quota.replies.flows"),)
    asked = Decoder(Policy()).request(Record("quota.requests", 0, 0, tenant.encode(), request.encode(), headers))
    if isinstance(asked, Refused):
        raise AssertionError(f"a stored request of {tenant} cannot be read: {asked.detail}")  # noqa: TRY004 - not a wrong type: the row is wrong
    return asked.ask


def _differences(tenant: str, expected: TenantState, stored: TenantState) -> list[str]:
    def charges(state: TenantState) -> dict[str, Charge]:
        live = {name: charge for name, charge in state.charges.items() if not charge.gone}
        return {name: replace(charge, changed_seq=0) for name, charge in live.items()}

    def holds(state: TenantState) -> dict[str, tuple[str, object]]:
        opened: Iterable[Hold] = (state.holds[id_] for id_ in state.open_holds.values())
        return {hold.deployment: (hold.id, hold.target) for hold in opened}

    return [
        f"{tenant}: {what} are {theirs}, an undisturbed run has {ours}"
        for what, ours, theirs in (
            ("charges", charges(expected), charges(stored)),
            ("open holds", holds(expected), holds(stored)),
        )
        if ours != theirs
    ]
