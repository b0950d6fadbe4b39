"""Whatever is sent to any route, within its description and outside: no error of ours, and every error is a problem."""

import json
import re
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from plimsoll_contracts.api import Problem
from plimsoll_contracts.codes import CODES
from plimsoll_contracts.fields import ID_PATTERN
from plimsoll_devkit.platform import Platform
from plimsoll_devkit.reference import openapi

SECONDS = 8.0
DOCUMENT = openapi()
PROBLEM = Draft202012Validator(Problem.model_json_schema())
schema = schemathesis.openapi.from_dict(DOCUMENT)


@schemathesis.hook
def before_call(_: Any, case: schemathesis.Case[Any], __: Any) -> None:
    """Leave out what would hide the rest: one key for all, hours of waiting, and who does it, which the token says."""
    for name in [name for name, value in (case.headers or {}).items() if re.fullmatch(ID_PATTERN, str(value))]:
        if name.lower() == "idempotency-key":
            del case.headers[name]
    if isinstance(case.body, dict) and isinstance(case.body.get("wait_seconds"), int):
        case.body["wait_seconds"] = 0
    if isinstance(case.body, dict):
        case.body.pop("by", None)


@pytest.fixture(scope="session")
def token(running: Platform) -> str:
    return running.stack.credentials.token()


@schema.parametrize()
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
def test_any_request_gets_an_answer_of_its_description(
    case: schemathesis.Case[Any], running: Platform, token: str
) -> None:
    answer = case.call(base_url=running.enforcer().url, headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS)
    case.validate_response(answer, checks=[not_a_server_error, status_code_conformance, response_schema_conformance])
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == ["application/problem+json"]
        document = json.loads(answer.content)
        PROBLEM.validate(document)
        assert CODES[document["code"]].status == answer.status_code == document["status"]
        assert document["detail"]
