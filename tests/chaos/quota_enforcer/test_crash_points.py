"""Killed with SIGKILL at each point that matters, under load: after a restart nothing is lost and nothing doubled."""

import asyncio
import signal

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.topics import REPLIES_FLOWS
from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.flows import Facts, Flows
from plimsoll_devkit.platform import Platform, settled, undisturbed
from plimsoll_devkit.wire import Silence, asking, unique

POINTS = (
    "after_claim",
    "after_lock:4",
    "before_commit:4",
    "after_commit:4",
    "after_replies:4",
    "relay_after_ack:3",
    "relay_after_delete:3",
)


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at_a_crash_point_it_ends_as_if_nothing_had_been(
    quota: Platform, flows: Flows, facts: Facts, point: str
) -> None:
    enforcer = quota.enforcer()
    await enforcer.start(PLIMSOLL_CRASH_AT=point)
    load = asyncio.gather(flows.run(250), facts.run(150))
    try:
        assert await enforcer.ended(40) == -signal.SIGKILL
        assert f"crash point {point.partition(':')[0]}" in enforcer.said(), "it died of what it was told to die of"
        await no_reply_is_ahead_of_its_decision(quota, flows)
        await enforcer.start()
        await load
    finally:
        load.cancel()
    await undisturbed(quota, flows)
    await settled(quota, facts)


async def no_reply_is_ahead_of_its_decision(quota: Platform, flows: Flows) -> None:
    """While nothing runs: whatever a caller was told is in the database."""
    await asyncio.sleep(0.5)  # what the dead process had sent is read
    tenants = {tenant.encode() for tenant in flows.tenants}
    told = [
        EnforcementReply.model_validate_json(record.value)
        for record in quota.wire.records[REPLIES_FLOWS.name]
        if record.key in tenants
    ]
    rows = await quota.database.fetch(
        "SELECT tenant, request_id, seq FROM decisions WHERE tenant = ANY($1)", list(flows.tenants)
    )
    stored = {(row["tenant"], row["request_id"]): row["seq"] for row in rows}
    for reply in told:
        assert reply.tenant is not None
        assert reply.request_id is not None
        if reply.code == codes.DEADLINE_PASSED.code:
            continue  # that is no decision
        assert stored.get((reply.tenant, reply.request_id)) == reply.seq


async def test_a_crash_before_the_commit_stores_nothing_and_tells_nothing(quota: Platform) -> None:
    question, enforcer = asking("reserve", unique()), quota.enforcer()
    await enforcer.start(PLIMSOLL_CRASH_AT="before_commit")
    first = await quota.wire.request(question)
    assert await enforcer.ended() == -signal.SIGKILL

    assert await quota.decisions(question["tenant"]) == []
    with pytest.raises(Silence):
        await quota.wire.replies(first, seconds=1)

    await enforcer.start()
    await enforcer.ready(PARTITIONS)
    reply = (await quota.wire.replies(first))[0]
    assert (reply.allowed, reply.repeated) == (True, False), "the record is read again, and decided"
    assert (await quota.wire.ask(question)).repeated
    assert len(await quota.decisions(question["tenant"])) == 1


async def test_a_crash_after_the_commit_costs_a_retry_that_gets_the_stored_answer(quota: Platform) -> None:
    question, enforcer = asking("reserve", unique()), quota.enforcer()
    await enforcer.start(PLIMSOLL_CRASH_AT="after_commit")
    first = await quota.wire.request(question)
    assert await enforcer.ended() == -signal.SIGKILL

    (stored,) = await quota.decisions(question["tenant"])
    await enforcer.start()
    await enforcer.ready(PARTITIONS)
    with pytest.raises(Silence):
        await quota.wire.replies(first, seconds=1)

    again = await quota.wire.ask(question)
    assert (again.allowed, again.repeated) == (True, True)
    assert again.model_dump(mode="json")["decided_at"] == stored["reply"]["decided_at"]
    assert len(await quota.decisions(question["tenant"])) == 1
