"""What a call gives, whatever the other side does."""

import asyncio
import time
import zlib
from datetime import UTC, datetime

import pytest

from plimsoll_client import Allowed, ClientStartError, Denied, EnforcementClient, OnUnknown, Unknown, UnknownReason
from plimsoll_contracts import codes
from plimsoll_contracts.requests import parse_request
from plimsoll_devkit.responder import Asked, Responder, until

VIOLATION = {
    "code": "X403001CPUEXC",
    "scope": "acme",
    "dimension": "cpu",
    "limit": 4000,
    "limit_source": "override",
    "used": 3200,
    "held": 500,
    "asked": 500,
    "headroom": 300,
    "would_fit": 300,
}


async def yes(asked: Asked) -> None:
    await asked.reply({})


async def never(_: Asked) -> None:
    return


async def test_every_verb_is_a_valid_request_with_its_headers(
    client: EnforcementClient, responder: Responder, caller: str, tenant: str
) -> None:
    responder.behaviours[tenant] = yes
    checked = await client.check(
        tenant=tenant,
        environment="prod",
        stack="blog",
        app="blog",
        deployment="d",
        footprint={"cpu": "500m"},
        on_unknown="closed",
    )
    assert isinstance(checked, Allowed)
    assert checked.request_id == checked.reply.request_id == responder.asked[tenant][0].request["request_id"]
    reserved = await client.reserve(
        tenant=tenant, deployment="d", footprint={"memory": "1g"}, on_unknown="closed", ttl_seconds=60
    )
    assert isinstance(reserved, Allowed)
    for outcome in (
        await client.commit(tenant=tenant, hold=reserved.request_id, revision=7),
        await client.release(tenant=tenant, hold=reserved.request_id),
        await client.adjust(tenant=tenant, deployment="d", footprint=None),
    ):
        assert isinstance(outcome, Allowed)

    asked = responder.asked[tenant]
    assert [parse_request(each.body).verb for each in asked] == ["check", "reserve", "commit", "release", "adjust"]
    assert {each.key for each in asked} == {tenant.encode()}
    assert {each.headers["reply_to"] for each in asked} == {f"quota.replies.{caller}"}
    assert {each.headers["reply_partition"] for each in asked} == {str(zlib.crc32(b"one") % 4)}
    assert len({each.headers["correlation_id"] for each in asked}) == len(asked)
    # Facts are never dropped for being late, so they carry no deadline.
    assert ["deadline" in each.headers for each in asked] == [True, True, False, False, False]
    assert int(asked[0].headers["deadline"]) == pytest.approx((time.time() + 5) * 1000, abs=3000)
    assert client.counters.allowed == 5


async def test_a_denial_is_explained(client: EnforcementClient, responder: Responder, tenant: str) -> None:
    async def no(asked: Asked) -> None:
        await asked.reply(
            {"allowed": False, "code": "X403001CPUEXC", "status": 403, "message": "no", "violations": [VIOLATION]}
        )

    responder.behaviours[tenant] = no
    outcome = await client.reserve(tenant=tenant, deployment="d", footprint={"cpu": 500}, on_unknown="open")
    assert isinstance(outcome, Denied)
    assert not outcome.proceed
    assert (outcome.code, outcome.violations[0].would_fit) == ("X403001CPUEXC", 300)
    assert outcome.remedy == codes.CPU_EXCEEDED.remedy
    assert client.counters.denied == 1


async def test_the_retry_repeats_the_same_bytes_and_the_late_reply_is_counted(
    client: EnforcementClient, responder: Responder, tenant: str
) -> None:
    async def late(asked: Asked) -> None:
        if len(responder.asked[tenant]) == 1:
            await asyncio.sleep(0.9)
        await asked.reply({})

    responder.behaviours[tenant] = late
    outcome = await client.reserve(
        tenant=tenant, deployment="d", footprint={"cpu": 1}, on_unknown="closed", timeout=1.5
    )
    assert isinstance(outcome, Allowed)
    first, second = responder.asked[tenant]
    assert first.body == second.body
    assert first.headers["deadline"] == second.headers["deadline"]
    assert first.headers["correlation_id"] != second.headers["correlation_id"]
    assert (client.counters.retries, client.counters.late_replies) == (1, 1)


@pytest.mark.parametrize("on_unknown", ["open", "closed"])
async def test_no_reply_is_unknown_in_time_and_what_it_means_is_the_callers_choice(
    client: EnforcementClient, responder: Responder, tenant: str, on_unknown: OnUnknown
) -> None:
    responder.behaviours[tenant] = never
    started = time.monotonic()
    outcome = await client.check(
        tenant=tenant,
        deployment="d",
        footprint={},
        on_unknown=on_unknown,
        timeout=0.6,
    )
    assert time.monotonic() - started == pytest.approx(0.6, abs=0.3)
    assert isinstance(outcome, Unknown)
    assert (outcome.reason, outcome.proceed) == (UnknownReason.TIMEOUT, on_unknown == "open")
    assert (client.counters.unknown_open, client.counters.unknown_closed) == (
        (1, 0) if on_unknown == "open" else (0, 1)
    )
    await until(lambda: len(responder.asked[tenant]) == 2)  # one retry, not more


async def test_a_doubled_reply_answers_once(client: EnforcementClient, responder: Responder, tenant: str) -> None:
    async def twice(asked: Asked) -> None:
        await asked.reply({"seq": 1})
        await asked.reply({"seq": 2})

    responder.behaviours[tenant] = twice
    outcomes = [await client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="closed") for _ in range(3)]
    assert [outcome.reply.seq for outcome in outcomes if isinstance(outcome, Allowed)] == [1, 1, 1]
    await until(lambda: client.counters.late_replies == 3)


async def test_a_reply_with_another_correlation_id_answers_nobody(
    client: EnforcementClient, responder: Responder, tenant: str
) -> None:
    async def wrong(asked: Asked) -> None:
        await asked.reply({}, correlation_id="somebody-elses")

    responder.behaviours[tenant] = wrong
    outcome = await client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="closed", timeout=0.6)
    assert isinstance(outcome, Unknown)
    assert outcome.reason is UnknownReason.TIMEOUT
    await until(lambda: client.counters.foreign_replies == 2)


async def test_two_callers_on_one_partition_get_their_own_replies(
    kafka_bootstrap: str, caller: str, client: EnforcementClient, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = yes
    async with EnforcementClient(kafka_bootstrap, caller=caller, instance="one") as other:
        asking = [
            each.check(tenant=tenant, deployment="d", footprint={}, on_unknown="closed", request_id=f"{name}-{number}")
            for number in range(50)
            for name, each in (("a", client), ("b", other))
        ]
        outcomes = await asyncio.gather(*asking)
        assert [outcome.request_id for outcome in outcomes] == [f"{n}-{i}" for i in range(50) for n in ("a", "b")]
        assert all(isinstance(outcome, Allowed) for outcome in outcomes)
        await until(lambda: client.counters.foreign_replies == other.counters.foreign_replies == 50)


async def test_a_reply_that_cannot_be_read_is_unknown(
    client: EnforcementClient, responder: Responder, tenant: str
) -> None:
    async def garbage(asked: Asked) -> None:
        await asked.reply(b"\xff{")

    responder.behaviours[tenant] = garbage
    outcome = await client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="closed")
    assert isinstance(outcome, Unknown)
    assert outcome.reason is UnknownReason.BAD_REPLY


@pytest.mark.parametrize("code", [codes.DEADLINE_PASSED, codes.INTERNAL])
async def test_an_answer_that_decides_nothing_is_no_denial(
    client: EnforcementClient, responder: Responder, tenant: str, code: codes.Code
) -> None:
    async def undecided(asked: Asked) -> None:
        await asked.reply({"allowed": False, "code": code.code, "status": code.status})

    responder.behaviours[tenant] = undecided
    outcome = await client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="open")
    assert isinstance(outcome, Unknown)
    assert (outcome.reason, outcome.proceed) == (UnknownReason.NOT_DECIDED, True)


@pytest.mark.parametrize("state", ["expired", "released"])
async def test_a_repeated_reserve_whose_hold_is_gone_is_denied(
    client: EnforcementClient, responder: Responder, tenant: str, state: str
) -> None:
    hold = {"id": "r1", "deployment": "d", "state": state, "expires_at": datetime.now(UTC).isoformat()}

    async def closed(asked: Asked) -> None:
        await asked.reply({"hold": hold, "repeated": True})

    responder.behaviours[tenant] = closed
    outcome = await client.reserve(
        tenant=tenant, deployment="d", footprint={}, on_unknown="open", request_id="r1", issued_at=datetime.now(UTC)
    )
    assert isinstance(outcome, Denied)
    assert outcome.code == codes.HOLD_EXPIRED.code


async def test_calls_in_flight_are_bounded_and_wait_for_a_slot(
    kafka_bootstrap: str, caller: str, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = never
    async with EnforcementClient(kafka_bootstrap, caller=caller, max_in_flight=1) as client:
        first = asyncio.create_task(
            client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="open", timeout=2)
        )
        await until(lambda: tenant in responder.asked)
        second = await client.check(tenant=tenant, deployment="e", footprint={}, on_unknown="closed", timeout=0.2)
        assert isinstance(second, Unknown)
        assert second.reason is UnknownReason.OVERLOADED
        responder.behaviours[tenant] = yes
        third = client.check(tenant=tenant, deployment="f", footprint={}, on_unknown="closed", timeout=5)
        assert isinstance(await first, Allowed)  # its retry is answered
        assert isinstance(await third, Allowed)
    assert "e" not in {each.request["deployment"] for each in responder.asked[tenant]}


async def test_the_first_call_of_a_fresh_client_misses_no_reply(
    kafka_bootstrap: str, caller: str, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = yes
    for number in range(8):
        async with EnforcementClient(kafka_bootstrap, caller=caller, instance=f"fresh-{number}") as client:
            outcome = await client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="closed", timeout=3)
            assert isinstance(outcome, Allowed)
            assert client.counters.retries == 0


async def test_stopping_answers_what_is_pending(
    kafka_bootstrap: str, caller: str, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = never
    client = EnforcementClient(kafka_bootstrap, caller=caller)
    async with client:
        pending = asyncio.create_task(
            client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="closed", timeout=60)
        )
        await until(lambda: tenant in responder.asked)
    for outcome in (
        await asyncio.wait_for(pending, 1),
        await client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="closed"),
    ):
        assert isinstance(outcome, Unknown)
        assert outcome.reason is UnknownReason.STOPPED


async def test_a_cancelled_call_leaves_nothing_behind(
    client: EnforcementClient, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = never
    call = asyncio.create_task(client.check(tenant=tenant, deployment="d", footprint={}, on_unknown="closed"))
    await until(lambda: tenant in responder.asked)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not client._channel._pending
    await responder.asked[tenant][0].reply({})
    await until(lambda: client.counters.late_replies == 1)


async def test_what_can_only_be_refused_is_not_sent(
    kafka_bootstrap: str, caller: str, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = yes
    async with EnforcementClient(kafka_bootstrap, caller=caller, max_request_bytes=200) as client:
        for outcome, code in (
            (
                await client.check(tenant="NO", deployment="d", footprint={}, on_unknown="open"),
                codes.INVALID_NAME,
            ),
            (
                await client.check(tenant=tenant, deployment="d", footprint={"cpu": "-1"}, on_unknown="open"),
                codes.INVALID_CPU,
            ),
            (
                await client.check(tenant=tenant, deployment="d", footprint={"gpu": 1}, on_unknown="open"),
                codes.UNKNOWN_FIELD,
            ),
            (
                await client.check(tenant=tenant, deployment="d", stack="s", footprint={}, on_unknown="open"),
                codes.SCOPE_IS_ROLLUP,
            ),
            (
                await client.check(tenant=tenant, deployment="d" * 100, footprint={}, on_unknown="open"),
                codes.TOO_LARGE,
            ),
        ):
            assert isinstance(outcome, Denied)
            assert outcome.code == code.code
        assert isinstance(await client.check(tenant=tenant, deployment="x", footprint={}, on_unknown="open"), Allowed)
    assert [each.request["deployment"] for each in responder.asked[tenant]] == ["x"]


async def test_a_missing_topic_is_named_at_start(kafka_bootstrap: str, caller: str) -> None:
    assert caller
    with pytest.raises(ClientStartError, match=r"quota\.replies\.nobody-made-this"):
        await EnforcementClient(kafka_bootstrap, caller="nobody-made-this", start_timeout=1).__aenter__()


async def test_no_broker_at_start_is_said_in_our_words() -> None:
    with pytest.raises(ClientStartError, match=r"^could not connect to 127\.0\.0\.1:9: KafkaConnectionError"):
        await EnforcementClient("127.0.0.1:9", start_timeout=2).__aenter__()


async def test_a_client_that_was_not_started_says_how() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await EnforcementClient("127.0.0.1:9").check(tenant="a", deployment="d", footprint={}, on_unknown="open")


async def test_a_misspelt_choice_is_no_choice() -> None:
    """Neither open nor closed: it would go on after a commit without an answer, which "closed" does not."""
    client, asked = EnforcementClient("127.0.0.1:9"), {"tenant": "a", "deployment": "d", "footprint": {}}
    with pytest.raises(ValueError, match="on_unknown is 'close': choose 'open' or 'closed'"):
        client.reserve(**asked, on_unknown="close")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="choose 'open' or 'closed'"):
        await client.check(**asked, on_unknown="close")  # type: ignore[arg-type]
