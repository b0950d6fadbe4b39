"""A hold lives exactly as long as the work behind it."""

import pytest

from plimsoll_client import Allowed, Denied, EnforcementClient, OnUnknown, QuotaDenied, QuotaUnknown, Unknown
from plimsoll_client.reservation import Reservation
from plimsoll_contracts.codes import HOLD_CLOSED, VAPPS_EXCEEDED
from plimsoll_devkit.responder import Asked, Behaviour, Responder, until


def verbs(responder: Responder, tenant: str) -> list[str]:
    return [each.request["verb"] for each in responder.asked.get(tenant, [])]


def answers(**by_verb: dict[str, object] | None) -> Behaviour:
    """Answer each verb as given, None with silence, and everything else with a yes."""

    async def behave(asked: Asked) -> None:
        if (answer := by_verb.get(asked.request["verb"], {})) is not None:
            await asked.reply(answer)

    return behave


def no(code: object) -> dict[str, object]:
    return {"allowed": False, "code": str(code), "status": 403, "message": "no"}


def reserve(client: EnforcementClient, tenant: str, on_unknown: OnUnknown, timeout: float = 5) -> Reservation:
    return client.reserve(
        tenant=tenant,
        environment="prod",
        stack="blog",
        deployment="d",
        footprint={"vapps": 1},
        on_unknown=on_unknown,
        timeout=timeout,
    )


async def test_success_commits_at_the_revision_the_body_set(
    client: EnforcementClient, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = answers()
    async with reserve(client, tenant, "closed") as held:
        assert isinstance(held.outcome, Allowed)
        held.revision = 4
    assert isinstance(held.settled, Allowed)
    reserved, committed = (each.request for each in responder.asked[tenant])
    assert (committed["verb"], committed["hold"], committed["revision"]) == ("commit", reserved["request_id"], 4)


async def test_an_error_releases_and_goes_on(client: EnforcementClient, responder: Responder, tenant: str) -> None:
    responder.behaviours[tenant] = answers()
    with pytest.raises(ZeroDivisionError):
        async with reserve(client, tenant, "closed") as held:
            raise ZeroDivisionError
    assert isinstance(held.settled, Allowed)
    reserved, released = (each.request for each in responder.asked[tenant])
    assert (released["verb"], released["hold"]) == ("release", reserved["request_id"])


async def test_the_body_does_not_run_when_denied(client: EnforcementClient, responder: Responder, tenant: str) -> None:
    responder.behaviours[tenant] = answers(reserve=no(VAPPS_EXCEEDED))
    with pytest.raises(QuotaDenied) as raised:
        async with reserve(client, tenant, "open"):
            pytest.fail("the body ran")
    assert raised.value.outcome.code == VAPPS_EXCEEDED.code
    assert verbs(responder, tenant) == ["reserve"]


async def test_unknown_and_closed_does_not_run_and_gives_back_what_may_be_held(
    client: EnforcementClient, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = answers(reserve=None)
    with pytest.raises(QuotaUnknown) as raised:
        async with reserve(client, tenant, "closed", timeout=0.5):
            pytest.fail("the body ran")
    await until(lambda: verbs(responder, tenant) == ["reserve", "reserve", "release"])
    assert responder.asked[tenant][2].request["hold"] == raised.value.outcome.request_id


async def test_unknown_and_open_runs_and_what_runs_is_recorded_without_a_hold(
    client: EnforcementClient, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = answers(reserve=None, commit=no(HOLD_CLOSED))
    async with reserve(client, tenant, "open", timeout=0.5) as held:
        assert isinstance(held.outcome, Unknown)
    assert isinstance(held.settled, Allowed)
    assert verbs(responder, tenant) == ["reserve", "reserve", "commit", "adjust"]
    adjusted = responder.asked[tenant][3].request
    assert (adjusted["environment"], adjusted["stack"], adjusted["deployment"], adjusted["footprint"]) == (
        "prod",
        "blog",
        "d",
        {"vapps": 1},
    )
    assert client.counters.unknown_open == 1


async def test_a_refused_commit_is_not_swallowed(client: EnforcementClient, responder: Responder, tenant: str) -> None:
    responder.behaviours[tenant] = answers(commit=no(HOLD_CLOSED))
    with pytest.raises(QuotaDenied) as raised:
        async with reserve(client, tenant, "open"):
            pass
    assert raised.value.outcome.code == HOLD_CLOSED.code
    assert verbs(responder, tenant) == ["reserve", "commit"]


@pytest.mark.parametrize("on_unknown", ["open", "closed"])
async def test_a_commit_without_an_answer_is_told_as_the_caller_chose(
    kafka_bootstrap: str, caller: str, responder: Responder, tenant: str, on_unknown: OnUnknown
) -> None:
    responder.behaviours[tenant] = answers(commit=None)
    async with EnforcementClient(kafka_bootstrap, caller=caller, timeout=0.6) as client:
        held = reserve(client, tenant, on_unknown)
        if on_unknown == "open":
            async with held:
                pass
        else:
            with pytest.raises(QuotaUnknown):
                async with held:
                    pass
        assert isinstance(held.settled, Unknown)
        assert client.counters.unknown_facts == 1


async def test_awaiting_again_asks_again_under_the_same_id(
    client: EnforcementClient, responder: Responder, tenant: str
) -> None:
    responder.behaviours[tenant] = answers(reserve=no(VAPPS_EXCEEDED))
    reservation = reserve(client, tenant, "closed")
    assert isinstance(await reservation, Denied)
    assert isinstance(await reservation, Denied)
    first, second = responder.asked[tenant]
    assert first.body == second.body
