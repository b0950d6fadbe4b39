"""Histories that chance finds too seldom: each went wrong once, or would in the next best way to write the storage."""

import asyncio
import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.model.model import Body, Gauge, Place
from tests.model.stored import Stored
from tests.model.system import decoded

from plimsoll_devkit.builders import POLICY
from plimsoll_devkit.stack.private import LoopThread
from plimsoll_quota_enforcer.domain.decide import decide
from plimsoll_quota_enforcer.domain.multipliers import Bounds
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.unit import open_unit

_ids = itertools.count(1)


@pytest.fixture
def tenant(connections: asyncpg.Pool, stack_thread: LoopThread) -> Stored:
    return Stored("acme", connections, stack_thread.run)


def request(tenant: Stored, verb: str, **more: object) -> Body:
    name = f"r{next(_ids)}"
    return {"verb": verb, "request_id": name, "issued_at": tenant.now().isoformat(), "tenant": "acme"} | more


def delta(revision: int, after: Body | None, deployment: str = "d1") -> Body:
    return {"tenant": "acme", "deployment": deployment, "revision": revision, "after": after}


def reserve(tenant: Stored, cpu: int, deployment: str = "d1", **more: object) -> Body:
    return request(tenant, "reserve", deployment=deployment, footprint={"cpu": cpu}, **more)


def over(tenant: Stored) -> set[tuple[Place, Gauge]]:
    return {(place, gauge) for place, gauge, mark in tenant.rows().over if mark == "over"}


def test_an_id_used_again_continues_its_revisions_also_when_reserve_and_commit_come_in_one_batch(
    tenant: Stored,
) -> None:
    tenant.batch([], [delta(7, {"cpu": 5}), delta(8, None)], 0)
    tenant.restart(0)
    asked = reserve(tenant, 2)
    told = tenant.batch([asked, request(tenant, "commit", hold=asked["request_id"])], [], 0)
    assert told.replies[1].settled is not None
    assert told.replies[1].settled.revision == 9
    assert tenant.batch([], [delta(8, {"cpu": 5})], 0).facts == ["stale"]


def test_a_limit_left_and_crossed_again_in_one_transaction_is_still_known_to_be_crossed(tenant: Stored) -> None:
    tenant.relimit(("", ""), {"cpu": (4, "enforce")}, 0, force=False)
    tenant.batch([], [delta(1, {"cpu": 5})], 0)
    assert over(tenant)
    gone = request(tenant, "adjust", deployment="d1", footprint=None)
    tenant.batch([gone], [delta(1, {"cpu": 5}, "d2")], 0)
    assert over(tenant) == {(("", ""), ("cpu", "reserved"))}
    tenant.batch([request(tenant, "adjust", deployment="d2", footprint=None)], [delta(9, {"cpu": 5})], 1)
    assert over(tenant) == {(("", ""), ("cpu", "reserved"))}


def test_a_lowered_default_is_not_forgotten_when_something_else_moves_the_tenant(tenant: Stored) -> None:
    tenant.batch([], [delta(1, {"cpu": 5})], 0)
    tenant.set_default("cpu", 4)
    tenant.relimit(("prod", ""), {"cpu": (9, "enforce")}, 0, force=False)
    tenant.sweep(1)
    assert over(tenant) == {(("", ""), ("cpu", "reserved"))}


def test_a_hold_whose_time_has_passed_does_not_stand_in_the_way_of_a_lower_limit(tenant: Stored) -> None:
    tenant.batch([reserve(tenant, 5, ttl_seconds=60)], [], 0)
    tenant.advance(61)
    assert tenant.relimit(("", ""), {"cpu": (4, "enforce")}, 1, force=False) is not None


def test_a_cache_that_another_process_has_overtaken_is_not_believed(tenant: Stored) -> None:
    tenant.relimit(("", ""), {"cpu": (10, "enforce")}, 0, force=False)
    tenant.batch([reserve(tenant, 1, "d1")], [], 1)
    tenant.batch([reserve(tenant, 9, "d2")], [], 0)
    told = tenant.batch([reserve(tenant, 1, "d3")], [], 1)
    assert (told.replies[0].allowed, told.replies[0].violations[0].held) == (False, 10)


def test_a_transaction_that_is_lost_leaves_no_trace_in_its_process(tenant: Stored) -> None:
    """Nor when another process takes the same number of steps meanwhile, so that ``seq`` is the same."""
    tenant.relimit(("", ""), {"cpu": (10, "enforce")}, 0, force=False)
    lost = reserve(tenant, 9, "d1")
    tenant.batch([lost], [], 0, lost=True)
    tenant.batch([reserve(tenant, 1, "d2")], [], 1)
    told = tenant.batch([reserve(tenant, 9, "d3")], [], 0)
    assert told.replies[0].allowed
    again = tenant.batch([lost], [], 0).replies[0]
    assert (again.allowed, again.repeated) == (False, False)


@pytest.mark.parametrize("process", [0, 1])
def test_a_repeat_is_known_after_a_restart_and_to_another_process(tenant: Stored, process: int) -> None:
    asked = reserve(tenant, 5)
    first = tenant.batch([asked], [], 0).replies[0]
    tenant.batch([request(tenant, "commit", hold=asked["request_id"])], [], 0)
    tenant.restart(process)
    again = tenant.batch([asked], [], process).replies[0]
    assert (again.repeated, again.decided_at) == (True, first.decided_at)
    assert again.hold is not None
    assert again.hold.state == "committed"


def test_a_commit_after_expiry_adds_to_its_node_what_it_has_there_and_leaves_the_rest(tenant: Stored) -> None:
    on_n1: Body = {"placement": {"node": "n1"}}
    late = reserve(tenant, 3, "d1", ttl_seconds=60, **on_n1)
    tenant.batch([late, reserve(tenant, 4, "d2", ttl_seconds=3600, **on_n1)], [], 0)
    tenant.advance(61)
    tenant.sweep(1)
    assert tenant.rows().nodes == {"n1": (4, 0)}
    tenant.restart(0)
    tenant.batch([request(tenant, "commit", hold=late["request_id"])], [], 0)
    assert tenant.rows().nodes == {"n1": (7, 0)}
    tenant.close()


def test_who_came_in_one_batch_waits_in_its_order_also_after_a_restart(tenant: Stored) -> None:
    tenant.relimit(("", ""), {"cpu": (4, "enforce")}, 0, force=False)
    tenant.batch([], [delta(1, {"cpu": 4})], 0)
    waiting = [reserve(tenant, 4, f"w{n}", wait_seconds=300) | {"request_id": f"w{n}"} for n in (2, 1, 3)]
    assert [told.code for told in tenant.batch(waiting, [], 0).replies] == [None] * 3
    tenant.restart(1)
    told = tenant.batch([], [delta(2, None)], 1)
    assert [(reply.request_id, reply.allowed) for reply in told.woken] == [("w2", True)]
    assert tenant.rows().waiters == ["w1", "w3"]
    tenant.close()


def test_who_was_released_while_it_waited_is_not_let_in_by_a_process_that_still_knows_it(tenant: Stored) -> None:
    tenant.relimit(("", ""), {"cpu": (4, "enforce")}, 0, force=False)
    tenant.batch([], [delta(1, {"cpu": 4})], 0)
    waits = reserve(tenant, 4, "d2", wait_seconds=300)
    tenant.batch([waits], [], 0)
    tenant.look(1)
    told = tenant.batch([request(tenant, "release", hold=waits["request_id"])], [], 0)
    assert [reply.code for reply in told.woken] == ["X409007WAIREL"]
    assert tenant.batch([], [delta(2, None)], 1).woken == []
    assert tenant.rows().usage["", ""]["cpu", "reserved"] == (0, 0)
    tenant.close()


def test_bounds_that_were_narrowed_make_nobody_unreadable_who_waits(tenant: Stored) -> None:
    """The request is read as when it came: its tenant goes on."""
    wide = replace(POLICY, bounds=Bounds(500, 3000))
    tenant.relimit(("", ""), {"cpu": (1, "enforce")}, 0, force=False)
    tenant.batch([], [delta(1, {"cpu": 1})], 0)
    tenant.policy = wide
    tenant.batch([reserve(tenant, 1, "d2", wait_seconds=300, multipliers={"limit_milli": 3000})], [], 0)
    tenant.policy = POLICY
    tenant.restart(0)
    assert len(tenant.batch([], [delta(2, None)], 0).woken) == 1
    tenant.close()


def test_a_second_process_waits_for_the_guard_and_decides_on_what_the_first_has_left(
    connections: asyncpg.Pool, stack_thread: LoopThread, tenant: Stored
) -> None:
    tenant.relimit(("", ""), {"cpu": (10, "enforce")}, 0, force=False)
    bodies = [reserve(tenant, 10, "d1"), reserve(tenant, 10, "d2")]
    caches = [StateCache(1000), StateCache(1000)]

    async def decided(process: int, holding: asyncio.Event, go_on: asyncio.Event) -> tuple[bool, datetime]:
        async with connections.acquire() as connection:
            async with connection.transaction():
                unit = await open_unit(connection, ["acme"], caches[process], POLICY)
                holding.set()
                await go_on.wait()
                ask, _ = decoded(bodies[process])
                outcome = decide(unit.state("acme"), [ask], unit.now, POLICY)
                unit.absorb(outcome)
                await unit.write(lambda _: None)
            unit.committed()
            return outcome.decisions[0].allowed, unit.now

    async def race() -> tuple[bool, datetime, tuple[bool, datetime]]:
        first, second, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
        one = asyncio.create_task(decided(0, first, go_on))
        await first.wait()
        other = asyncio.create_task(decided(1, second, go_on))
        await asyncio.sleep(0.2)
        waited = not second.is_set()
        released = datetime.now(UTC)
        go_on.set()
        assert (await one)[0]
        return waited, released, await other

    waited, released, (allowed, now) = stack_thread.run(race())
    assert (waited, allowed) == (True, False)
    assert now > released - timedelta(seconds=0.1), "the clock is read after the guard is had"
    assert tenant.rows().usage["", ""]["cpu", "reserved"] == (0, 10)
