"""Bytes once written must be read for ever, and what we write now must not change unnoticed."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, RootModel
from tests.contract.golden_files import EVERY_BODY, GOLDEN, MODELS, headers_of, kind_of, name_of, written

from plimsoll_contracts.codes import UNKNOWN_FIELD
from plimsoll_contracts.enforcement import Verb
from plimsoll_contracts.envelope import parse_headers
from plimsoll_contracts.requests import AnyRequest, RequestInvalid, parse_request

REQUEST, REPLY = "quota.request.v1", "quota.reply.v1"
EVENTS = [path for path in EVERY_BODY if kind_of(path) != REQUEST]
REQUESTS = [path for path in EVERY_BODY if kind_of(path) == REQUEST]

golden = pytest.mark.parametrize("path", GOLDEN, ids=name_of)


def read(path: Path) -> BaseModel:
    return MODELS[kind_of(path)].model_validate_json(path.read_bytes())


KEYED_BY_NAME = {"labels", "replaced", "nodes"}
"""Objects whose keys are names of things, so that any key is known there."""


def objects(document: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a document that has fields, however deep."""
    if isinstance(document, dict):
        yield document
        for name, value in document.items():
            if name in KEYED_BY_NAME and isinstance(value, dict):
                for named in value.values():
                    yield from objects(named)
            else:
                yield from objects(value)
    elif isinstance(document, list):
        for value in document:
            yield from objects(value)


def with_unknown_fields(path: Path) -> list[bytes]:
    """Return the body once for each of its objects, with a field that nobody knows added there."""
    original = json.loads(path.read_bytes())
    made = []
    for place in range(len(list(objects(original)))):
        document = copy.deepcopy(original)
        list(objects(document))[place]["added_tomorrow"] = {"any": ["thing", 1, None]}
        made.append(json.dumps(document).encode())
    return made


def test_every_message_type_has_golden_bytes_and_headers() -> None:
    assert {kind_of(path) for path in GOLDEN} == MODELS.keys()
    for kind in MODELS:
        assert headers_of(kind)


def test_every_verb_has_golden_bytes() -> None:
    verbs = {json.loads(path.read_bytes())["verb"] for path in GOLDEN if kind_of(path) == REQUEST}
    assert verbs == set(Verb)
    assert len(get_args(AnyRequest)) == len(verbs)


def test_every_field_of_every_model_has_a_value_in_some_golden_file() -> None:
    """A field that is null everywhere would prove nothing of how it is written."""
    told: dict[type[BaseModel], set[str]] = {}
    for path in GOLDEN:
        message = read(path)
        body = message.root if isinstance(message, RootModel) else message
        told.setdefault(type(body), set()).update(
            name for name, value in body.model_dump().items() if value not in (None, "", (), {}, [])
        )
    assert {model.__name__: set(model.model_fields) - names for model, names in told.items()} == {
        model.__name__: set() for model in told
    }


@golden
def test_what_we_write_is_what_we_wrote(path: Path) -> None:
    assert written(kind_of(path), read(path)) == path.read_bytes()


@pytest.mark.parametrize("path", REQUESTS, ids=name_of)
def test_what_is_a_request_by_its_schema_is_one_by_its_decoder(path: Path) -> None:
    request = parse_request(path.read_bytes())
    assert MODELS[REQUEST].model_validate_json(path.read_bytes()) == MODELS[REQUEST].model_validate(request)


@pytest.mark.parametrize("path", EVERY_BODY, ids=name_of)
def test_with_or_without_defaults_it_is_the_same_message(path: Path) -> None:
    message = read(path)
    assert type(message).model_validate_json(message.model_dump_json()) == message
    assert type(message).model_validate_json(message.model_dump_json(exclude_defaults=True)) == message


@pytest.mark.parametrize("path", EVENTS, ids=name_of)
def test_unknown_fields_of_events_are_ignored_at_every_depth(path: Path) -> None:
    for body in with_unknown_fields(path):
        assert MODELS[kind_of(path)].model_validate_json(body) == read(path)


@pytest.mark.parametrize("path", REQUESTS, ids=name_of)
def test_unknown_fields_of_requests_are_refused_at_every_depth(path: Path) -> None:
    for body in with_unknown_fields(path):
        with pytest.raises(RequestInvalid, match="added_tomorrow") as refused:
            parse_request(body)
        assert refused.value.code is UNKNOWN_FIELD


@pytest.mark.parametrize("kind", sorted(MODELS.keys() - {REQUEST, REPLY}))
def test_headers_are_read_and_written_alike(kind: str) -> None:
    headers = headers_of(kind)
    envelope = parse_headers(headers)
    assert envelope.type == kind
    assert envelope.headers() == headers
