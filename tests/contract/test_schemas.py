"""The published schemas say what the models do: the same bodies pass, the same bodies fail."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from tests.contract.golden_files import EVERY_BODY, MODELS, headers_of, kind_of, name_of

from plimsoll_contracts import export
from plimsoll_contracts.topics import CATALOGUE

SCHEMAS = {kind: export.schema(kind, model) for kind, model in MODELS.items()}
READ_BY_US = {kind for topic in CATALOGUE for kind in topic.messages if export.SERVICES & set(topic.consumers)}
JUNK: tuple[Any, ...] = (None, True, -1, 2**53, 1.5, "", "Not A Name", "a\0b", "x" * 600, [], {}, [1], {"a": 1})

every_body = pytest.mark.parametrize("path", EVERY_BODY, ids=name_of)


def validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(SCHEMAS[kind], format_checker=Draft202012Validator.FORMAT_CHECKER)


def places(document: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(document, dict):
        for name, value in document.items():
            yield (*prefix, name)
            yield from places(value, (*prefix, name))


def parent_of(document: Any, place: tuple[str, ...]) -> dict[str, Any]:
    for name in place[:-1]:
        document = document[name]
    assert isinstance(document, dict)
    return document


def variants(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the body with each field left out, and with each field replaced by each piece of junk."""
    original = json.loads(path.read_bytes())
    for place in places(original):
        less = copy.deepcopy(original)
        del parent_of(less, place)[place[-1]]
        yield f"{'.'.join(place)} left out", less
        for junk in JUNK:
            other = copy.deepcopy(original)
            parent_of(other, place)[place[-1]] = junk
            yield f"{'.'.join(place)} = {str(junk)[:20]!r}", other


def model_accepts(kind: str, document: Any) -> bool:
    try:
        MODELS[kind].model_validate_json(json.dumps(document))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_the_schema_is_a_schema(kind: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[kind])


@every_body
def test_the_schema_accepts_golden_bytes(path: Path) -> None:
    message = MODELS[kind_of(path)].model_validate_json(path.read_bytes())
    validator(kind_of(path)).validate(json.loads(path.read_bytes()))
    validator(kind_of(path)).validate(json.loads(message.model_dump_json()))
    validator(kind_of(path)).validate(json.loads(message.model_dump_json(exclude_defaults=True)))


@pytest.mark.parametrize("path", [path for path in EVERY_BODY if kind_of(path) in READ_BY_US], ids=name_of)
def test_schema_and_model_agree_on_what_we_read(path: Path) -> None:
    kind = kind_of(path)
    checks = validator(kind)
    tried = [(what, checks.is_valid(body), model_accepts(kind, body)) for what, body in variants(path)]
    assert [what for what, by_schema, by_model in tried if by_schema != by_model] == []
    assert checks.is_valid(json.loads(path.read_bytes()))
    assert not all(by_schema for _, by_schema, _ in tried)


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_the_schema_of_headers_accepts_golden_headers_and_misses_none(kind: str) -> None:
    described = export.headers_of(kind)
    checks = Draft202012Validator(described)
    headers = {name: (value or b"").decode() for name, value in headers_of(kind)}
    checks.validate(headers)
    for name in described["required"]:
        assert not checks.is_valid({other: value for other, value in headers.items() if other != name})
