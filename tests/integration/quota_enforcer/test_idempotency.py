"""A request is decided once: however often it comes, from whoever, also over a restart."""

import asyncio
from datetime import UTC, datetime

import pytest

from plimsoll_client import Allowed, Denied, EnforcementClient
from plimsoll_client.fields import CallFields
from plimsoll_contracts import codes
from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.topics import QUOTA_DECISIONS, REPLIES_HTTP, USAGE_DELTAS
from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, unique


def verdict(reply: EnforcementReply) -> EnforcementReply:
    """Return the answer without what a repeat may tell anew."""
    return reply.model_copy(update={"repeated": False, "hold": None})


async def test_a_repeat_gets_the_stored_answer(quota: Platform, wire: Wire, tenant: str) -> None:
    question = asking("reserve", tenant)
    first = await wire.ask(question)
    counted = await quota.counted()

    second = await wire.ask(question)

    assert (first.repeated, second.repeated) == (False, True)
    assert verdict(second) == verdict(first)
    assert second.hold == first.hold
    assert len(await quota.decisions(tenant)) == 1
    assert await quota.used(tenant, "cpu") == (0, 100)
    assert await counted.since("quota_decisions_total", verb="reserve", verdict="repeated") == 1
    assert await counted.since("quota_decisions_total", verb="reserve", verdict="allowed") == 0
    assert len(await wire.events(QUOTA_DECISIONS, tenant)) == 1, "a repeat is not published again"


async def test_repeats_inside_one_batch_are_one_decision(quota: Platform, wire: Wire, tenant: str) -> None:
    question = asking("reserve", tenant)
    sent = [await wire.post(question) for _ in range(20)]

    replies = [(await wire.replies(correlation))[0] for correlation in sent]

    assert sorted(reply.repeated for reply in replies) == [False, *[True] * 19]
    assert {reply.hold for reply in replies} == {replies[0].hold}
    assert len(await quota.decisions(tenant)) == 1


async def test_two_clients_with_the_same_request_get_one_decision(quota: Platform, tenant: str) -> None:
    named: CallFields = {"request_id": unique("r"), "issued_at": datetime.now(UTC), "timeout": 15}
    other = EnforcementClient(quota.stack.kafka_bootstrap, instance="another")

    async def ask(client: EnforcementClient) -> object:
        return await client.reserve(tenant=tenant, deployment="d1", footprint={"cpu": 10}, on_unknown="closed", **named)

    async with other:
        outcomes = await asyncio.gather(*(ask(client) for client in (quota.client, other) * 5))

    assert all(isinstance(outcome, Allowed) for outcome in outcomes)
    assert sum(not outcome.reply.repeated for outcome in outcomes if isinstance(outcome, Allowed)) == 1
    assert len(await quota.decisions(tenant)) == 1
    assert await quota.used(tenant, "cpu") == (0, 10)


async def test_a_denial_is_kept_too(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 50})
    question = asking("reserve", tenant)
    first = await wire.ask(question)
    assert first.code == codes.CPU_EXCEEDED.code

    await quota.set_limits(tenant, {"cpu": 500})
    second = await wire.ask(question)

    assert second.repeated
    assert verdict(second) == verdict(first), "the answer to this question was no; ask a new one"
    assert (await wire.ask(asking("reserve", tenant))).allowed


async def test_a_check_is_never_stored(quota: Platform, wire: Wire, tenant: str) -> None:
    question = asking("check", tenant)
    assert (await wire.ask(question)).allowed
    await quota.set_limits(tenant, {"cpu": 50})

    again = await wire.ask(question)

    assert (again.allowed, again.repeated) == (False, False)
    assert await quota.decisions(tenant) == []


async def test_a_repeat_after_a_crash_and_restart_gets_the_stored_answer(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    question, denied = asking("reserve", tenant), asking("reserve", tenant, deployment="d2")
    first = await wire.ask(question)
    await quota.set_limits(tenant, {"cpu": 150})
    refused = await wire.ask(denied)

    await quota.enforcer().kill()
    await quota.enforcer().start()
    await quota.enforcer().ready(PARTITIONS)

    again, refused_again = await wire.ask(question), await wire.ask(denied)
    assert (again.repeated, refused_again.repeated) == (True, True)
    assert (verdict(again), again.hold) == (verdict(first), first.hold)
    assert verdict(refused_again) == verdict(refused)
    assert len(await quota.decisions(tenant)) == 2
    assert await quota.used(tenant, "cpu") == (0, 100)


@pytest.mark.parametrize("closing", ["commit", "release"])
async def test_a_repeated_reserve_tells_what_became_of_its_hold(
    quota: Platform, wire: Wire, tenant: str, closing: str
) -> None:
    question = asking("reserve", tenant)
    await wire.ask(question)
    await wire.ask(asking(closing, tenant, hold=question["request_id"]))

    again = await wire.ask(question)

    assert again.allowed
    assert again.repeated
    assert again.hold is not None
    assert again.hold.state == {"commit": "committed", "release": "released"}[closing]
    assert await quota.used(tenant, "cpu") == ((100, 0) if closing == "commit" else (0, 0))


async def test_a_repeated_reserve_of_an_expired_hold_is_a_denial_for_the_client(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    question = asking("reserve", tenant, ttl_seconds=1)
    await wire.ask(question)

    async def expired() -> bool:
        return (await quota.used(tenant, "cpu")) == (0, 0)

    await eventually(expired, seconds=6)
    again = await wire.ask(question)
    assert again.hold is not None
    assert (again.allowed, again.hold.state) == (True, "expired")
    outcome = await quota.client.reserve(
        tenant=tenant,
        environment="prod",
        stack="blog",
        deployment="d1",
        footprint={"cpu": 100},
        on_unknown="open",
        ttl_seconds=1,
        request_id=question["request_id"],
        issued_at=datetime.fromisoformat(question["issued_at"]),
        timeout=15,
    )
    assert isinstance(outcome, Denied)
    assert outcome.code == codes.HOLD_EXPIRED.code


async def test_a_commit_after_expiry_still_records_the_fact(quota: Platform, wire: Wire, tenant: str) -> None:
    question = asking("reserve", tenant, ttl_seconds=1)
    await wire.ask(question)

    async def expired() -> bool:
        return (await quota.used(tenant, "cpu")) == (0, 0)

    await eventually(expired, seconds=6)
    late = await wire.ask(asking("commit", tenant, hold=question["request_id"]))

    assert late.allowed
    assert await quota.used(tenant, "cpu") == (100, 0)


async def test_a_reply_that_got_lost_costs_one_retry(quota: Platform, wire: Wire, tenant: str) -> None:
    question = asking("reserve", tenant)
    # It goes where nobody of ours reads it.
    await wire.request(question, headers=[("reply_to", REPLIES_HTTP.name.encode())])

    again = await wire.ask(question)

    assert (again.allowed, again.repeated) == (True, True)
    assert len(await quota.decisions(tenant)) == 1


async def test_a_repeated_commit_tells_the_first_outcome(quota: Platform, wire: Wire, tenant: str) -> None:
    question = asking("reserve", tenant)
    await wire.ask(question)
    first = await wire.ask(asking("commit", tenant, hold=question["request_id"], revision=7))

    another = await wire.ask(asking("commit", tenant, hold=question["request_id"], revision=9))

    assert another.settled == first.settled
    assert another.hold is not None
    assert another.hold.state == "committed"
    assert await quota.database.fetchval("SELECT revision FROM charges WHERE tenant = $1", tenant) == 7


async def test_closed_and_unknown_holds_settle_nothing(quota: Platform, wire: Wire, tenant: str) -> None:
    question = asking("reserve", tenant)
    await wire.ask(question)
    await wire.ask(asking("release", tenant, hold=question["request_id"]))

    released = await wire.ask(asking("commit", tenant, hold=question["request_id"]))
    unknown = await wire.ask(asking("commit", tenant, hold="nobody"))
    again = await wire.ask(asking("release", tenant, hold=question["request_id"]))

    assert [released.code, unknown.code] == [codes.HOLD_CLOSED.code] * 2
    assert again.allowed, "a release of a closed hold is no error"
    assert await quota.used(tenant, "cpu") == (0, 0)


async def test_a_deployment_has_one_open_hold(quota: Platform, wire: Wire, tenant: str) -> None:
    first = asking("reserve", tenant)
    await wire.ask(first)

    second = await wire.ask(asking("reserve", tenant))
    instead = await wire.ask(asking("reserve", tenant, footprint={"cpu": 70}, supersedes=first["request_id"]))

    assert (second.allowed, second.code) == (False, codes.HOLD_OPEN.code)
    assert instead.allowed
    assert await quota.used(tenant, "cpu") == (0, 70)


async def test_a_delta_and_a_commit_of_one_deployment_never_add_up(quota: Platform, wire: Wire, tenant: str) -> None:
    for number, first in enumerate(["delta", "commit"]):
        question = asking("reserve", tenant, deployment=f"d{number}")
        await wire.ask(question)
        told = {"tenant": tenant, "environment": "prod", "stack": "blog", "deployment": f"d{number}", "revision": 1}

        async def settle(question: dict[str, str] = question) -> None:
            await wire.ask(asking("commit", tenant, hold=question["request_id"], revision=1))

        async def delta(told: dict[str, object] = told) -> None:
            counted = await quota.counted()
            await wire.tell(USAGE_DELTAS, {**told, "after": {"cpu": 100}, "delta": {"cpu": 100}})

            async def applied() -> bool:
                return await counted.since("streams_records_total", topic=USAGE_DELTAS.name) == 1

            await eventually(applied)

        for step in (delta, settle) if first == "delta" else (settle, delta):
            await step()

    assert await quota.used(tenant, "cpu") == (200, 0)
