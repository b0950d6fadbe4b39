"""Which commands are there, what to type for each, and an answer for whatever it asks: taken from the code itself."""

import base64
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import App
from pydantic import BaseModel, TypeAdapter, ValidationError

from plimsoll_client.cli.__main__ import app

WORDS = {
    "scope": "acme/env:prod",
    "tenant": "acme",
    "limits": "cpu=4",
    "dimensions": "cpu",
    "letter": "7",
    "letters": "7",
    "name": "http",
    "shell": "bash",
    "file": "quotas.yaml",
    "request": "7",
    "limit": "cpu=4",
    "reason": "agreed",
    "request_id": "r1",
}
"""What is typed for a parameter without a default, and for one that takes any number; a new name is added here."""

MORE = {"quota simulate": ["--set", "acme", "cpu=2"], "token": ["--tenant", "acme"], "quota apply": ["--yes"]}
"""What a command cannot do without, though its signature does not say so."""

LONG_AGO = (datetime.now(UTC) - timedelta(days=3, hours=12)).isoformat()
"""An age that does not change while it is looked at."""

NO_DATA = frozenset({"completion"})
"""Commands that write no data, so that they have no other format."""

ENDLESS = frozenset({"decisions tail"})
"""Commands that go on until somebody ends them; they have tests of their own."""


def commands(parent: App = app, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every command with its function."""
    for name in parent:
        if not name.startswith("-"):
            child = parent[name]
            if child.default_command is not None and child.default_command != app.help_print:
                yield " ".join((*path, name)), child.default_command
            yield from commands(child, (*path, name))


EVERY = {name: command for name, command in commands() if name not in ENDLESS}


def typed(name: str) -> list[str]:
    """Return the words of a command with all that it must be given."""
    words = [*name.split(), *MORE.get(name, [])]
    for parameter in inspect.signature(EVERY[name]).parameters.values():
        if parameter.name == "session":
            continue
        needed = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL or (needed and parameter.kind is not parameter.KEYWORD_ONLY):
            words.append(WORDS[parameter.name])
        elif needed:
            words += [f"--{parameter.name.replace('_', '-')}", WORDS[parameter.name]]
    return words


def filled(model: type[BaseModel], text: str) -> BaseModel:
    """Make an answer that has this text wherever the model takes it, and something else where it does not."""
    values = {name: _value(name, field.annotation, field.metadata, text) for name, field in model.model_fields.items()}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = {str(each["loc"][0]) for each in error.errors()}
    return model.model_validate({name: value for name, value in values.items() if name not in wrong})


def _value(name: str, annotation: Any, metadata: list[Any], text: str) -> Any:
    if name == "value_base64":
        return base64.b64encode(text.encode()).decode()
    if get_args(annotation):
        if name == "next" and type(None) in get_args(annotation):
            return None  # else there would be pages without end
        return _composed(name, annotation, metadata, text)
    if issubclass(annotation, Enum):
        return next(iter(annotation)).value
    if issubclass(annotation, BaseModel):
        return filled(annotation, text).model_dump(mode="json")
    return _plain(annotation, metadata, text)


def _composed(name: str, annotation: Any, metadata: list[Any], text: str) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _value(name, arguments[0], [*metadata, *arguments[1:]], text)
    if origin in (Union, types.UnionType):
        kept = [each for each in arguments if each is not type(None)]
        return _value(name, next((each for each in kept if each is str), kept[0]), metadata, text)
    if origin is Literal:
        return arguments[0]
    if issubclass(origin, Mapping):
        return {_value("key", arguments[0], [], text): _value(name, arguments[1], [], text)}
    return [_value(name, arguments[0], [], text)]


def _plain(annotation: type, metadata: list[Any], text: str) -> Any:
    candidates: tuple[Any, ...] = (7,) if annotation is int else (text, "acme", 7, True, LONG_AGO)
    for candidate in candidates:
        try:
            wanted: Any = Annotated[(annotation, *metadata)] if metadata else annotation
            TypeAdapter(wanted).validate_python(candidate)
        except ValidationError:
            continue
        return candidate
    raise AssertionError(f"nothing fits {annotation} {metadata}")
