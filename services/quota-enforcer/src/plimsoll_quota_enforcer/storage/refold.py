"""Is the cached usage what the truth adds up to: charges, holds and measurements, folded again tenant by tenant."""

import asyncio
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any

from plimsoll_contracts.dimensions import Dimension, unit_of
from plimsoll_contracts.doctor import Finding, Verdict, found
from plimsoll_contracts.enforcement import HoldState
from plimsoll_contracts.quantities import render
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.model import GAUGES, Hold, Place
from plimsoll_quota_enforcer.domain.placing import moved
from plimsoll_quota_enforcer.domain.shares import shares
from plimsoll_quota_enforcer.domain.state import TenantState
from plimsoll_quota_enforcer.domain.tally import NO_USAGE
from plimsoll_quota_enforcer.storage import loading
from plimsoll_quota_enforcer.storage.doctor import Examined, counted, listed
from plimsoll_quota_enforcer.storage.queries import QUERIES

BITE = 25
"""Tenants of one snapshot: between two of them the replica decides requests."""

Stored = Mapping[Place, tuple[list[int], list[int]]]


async def usage(examined: Examined, seconds: float) -> Finding:
    """Fold usage again for as many tenants as there is time, and name the first scopes that differ."""
    wrong: list[str] = []
    total = await examined.pool.fetchval(QUERIES["doctor_count_tenants"])
    checked, until = 0, monotonic() + seconds
    while checked < total and (not checked or monotonic() < until):  # one bite at least, so that it gets round
        bite = await _bite(examined, wrong)
        checked += bite
        if not bite:
            examined.folded_to = ""  # the end of the round: the first ones come next
        await asyncio.sleep(0)
    told = f"{counted(checked, 'tenant')} checked"
    if checked < total:
        told += f" of {total:,}, the others when asked again"
    else:
        examined.folded_to = ""
    if wrong:
        return found("usage", Verdict.FAIL, f"{counted(len(wrong), 'scope')} wrong: {listed(wrong)}; {told}")
    return found("usage", Verdict.OK, f"{told}: usage is what charges, holds and measurements add up to")


async def nodes(examined: Examined, seconds: float) -> Finding:
    """Fold what charges and holds have on each node again; all tenants in one snapshot, since they share nodes."""
    until, rooms = monotonic() + seconds, dict[str, tuple[int, int]]()
    async with (
        examined.pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        stored = {row["node"]: row for row in await connection.fetch(QUERIES["doctor_nodes"])}
        placed = [row["tenant"] for row in await connection.fetch(QUERIES["doctor_placed_tenants"])]
        for first in range(0, len(placed), BITE):
            if monotonic() > until:
                told = f"{first:,} of {counted(len(placed), 'tenant')} on nodes checked, which proves nothing"
                return found("nodes", Verdict.UNKNOWN, told)
            seqs = dict.fromkeys(placed[first : first + BITE], 0)
            for state in (await loading.load(connection, seqs, {}, examined.policy)).values():
                for node, (cpu, memory) in moved((), shares(state.charges, _open(state))).items():
                    have = rooms.get(node, (0, 0))
                    rooms[node] = (have[0] + cpu, have[1] + memory)
            await asyncio.sleep(0)
    wrong = list(_node_differences(stored, rooms))
    if wrong:
        return found("nodes", Verdict.FAIL, f"{counted(len(wrong), 'node')} wrong: {listed(wrong)}")
    told = f"{counted(len(stored), 'node')}, allocated what {counted(len(placed), 'tenant')} have there"
    return found("nodes", Verdict.OK, told if stored else "no node is known")


def _open(state: TenantState) -> Iterator[Hold]:
    return (hold for hold in state.holds.values() if hold.state is HoldState.OPEN)


def _node_differences(stored: Mapping[str, Any], rooms: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for node in sorted({*stored, *rooms}):
        row, want = stored.get(node), rooms.get(node, (0, 0))
        have = (row["cpu_allocated"], row["memory_allocated"]) if row is not None else (0, 0)
        for dimension, a, b in zip((Dimension.CPU, Dimension.MEMORY), have, want, strict=True):
            if a != b:
                unit = unit_of(dimension)
                yield f"{node} {dimension} allocated is {render(unit, a)}, should be {render(unit, b)}"
                break


async def _bite(examined: Examined, wrong: list[str]) -> int:
    """Check the next tenants in one snapshot, and return how many there were."""
    async with (
        examined.pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        rows = await connection.fetch(QUERIES["doctor_tenants"], examined.folded_to, BITE)
        seqs = {row["tenant"]: row["seq"] for row in rows}
        states = await loading.load(connection, seqs, {}, examined.policy)
        stored: dict[str, dict[Place, tuple[list[int], list[int]]]] = {tenant: {} for tenant in seqs}
        for row in await connection.fetch(QUERIES["doctor_usage"], list(seqs)):
            stored[row["tenant"]][row["environment"], row["stack"]] = (row["used"], row["held"])
    for tenant, state in states.items():
        wrong.extend(differences(state, stored[tenant]))
    if rows:
        examined.folded_to = rows[-1]["tenant"]
    return len(rows)


def differences(state: TenantState, stored: Stored) -> Iterator[str]:
    """Say for each place whose row is not the fold what the first figure is, and what it should be. Pure."""
    nothing = ([0] * len(NO_USAGE.used), [0] * len(NO_USAGE.used))
    for place in sorted({*state.tally.places(), *stored}):
        usage = state.tally.usage(place)
        used, held = stored.get(place, nothing)
        for info in GAUGES:
            gauge = info.gauge
            have = (used[gauge], held[gauge])
            want = (usage.used[gauge], usage.total[gauge] - usage.used[gauge])
            if have != want:
                which = "used" if have[0] != want[0] else "held"
                a, b = (render(unit_of(info.dimension), pair[which == "held"]) for pair in (have, want))
                scope = answers.scope_of(state.tenant, place).render()
                yield f"{scope} {info.dimension} {which} is {a}, should be {b}"
                break
