"""Is the cached usage what the truth adds up to: charges, holds and measurements, folded again tenant by tenant."""

import asyncio
from collections.abc import Iterator, Mapping
from time import monotonic

from plimsoll_contracts.dimensions import unit_of
from plimsoll_contracts.doctor import Finding, Verdict, found
from plimsoll_contracts.quantities import render
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.model import GAUGES, Place
from plimsoll_quota_enforcer.domain.state import Policy, TenantState
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
    while checked < total and monotonic() < until:
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


async def _bite(examined: Examined, wrong: list[str]) -> int:
    """Check the next tenants in one snapshot, and return how many there were."""
    async with (
        examined.pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        rows = await connection.fetch(QUERIES["doctor_tenants"], examined.folded_to, BITE)
        seqs = {row["tenant"]: row["seq"] for row in rows}
        states = await loading.load(connection, seqs, {}, Policy())
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
