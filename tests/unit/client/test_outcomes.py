import pytest

from plimsoll_client import Allowed, Denied, Unknown, UnknownReason
from plimsoll_client.outcomes import judge
from plimsoll_contracts.codes import CODES, CPU_EXCEEDED, DEADLINE_PASSED
from plimsoll_contracts.enforcement import EnforcementReply


def reply(**changes: object) -> EnforcementReply:
    told: dict[str, object] = {"request_id": "r", "verb": "reserve", "tenant": "t", "allowed": True, **changes}
    return EnforcementReply.model_validate(told)


def hold(state: str) -> dict[str, str]:
    return {"id": "r", "deployment": "d", "state": state, "expires_at": "2026-12-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("state", "kind"), [("open", Allowed), ("committed", Allowed), ("expired", Denied), ("released", Denied)]
)
def test_a_yes_to_a_reserve_holds_as_long_as_its_hold(state: str, kind: type) -> None:
    assert isinstance(judge("r", reply(hold=hold(state)), proceed=True), kind)


def test_a_release_that_answers_a_closed_hold_is_no_denial() -> None:
    assert isinstance(judge("r", reply(verb="release", hold=hold("released")), proceed=False), Allowed)


@pytest.mark.parametrize("code", [code for code in CODES.values() if code.status < 500 and code != DEADLINE_PASSED])
def test_every_refusal_is_a_denial(code: object) -> None:
    outcome = judge("r", reply(allowed=False, code=str(code), status=int(str(code)[1:4])), proceed=True)
    assert isinstance(outcome, Denied)
    assert outcome.remedy


def test_an_unknown_code_of_a_newer_service_is_a_denial_too() -> None:
    outcome = judge("r", reply(allowed=False, code="X403999NEWONE", status=403), proceed=True)
    assert isinstance(outcome, Denied)
    assert outcome.remedy == ""


@pytest.mark.parametrize("proceed", [True, False])
def test_an_error_of_the_service_decides_nothing(proceed: bool) -> None:
    outcome = judge("r", reply(allowed=False, code="X500001INTERN", status=500), proceed=proceed)
    assert outcome == Unknown("r", UnknownReason.NOT_DECIDED, "X500001INTERN: ", proceed)


def test_outcomes_say_whether_to_go_on() -> None:
    assert judge("r", reply(), proceed=False).proceed
    assert not judge("r", reply(allowed=False, code=str(CPU_EXCEEDED), status=403), proceed=True).proceed
