"""What do others read of the contracts: JSON Schemas, AsyncAPI and reference pages, written from the models."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from plimsoll_contracts.codes import CODES
from plimsoll_contracts.dimensions import REGISTRY, TWO_BASES, Dimension, applies_at
from plimsoll_contracts.requests import MAX_REQUEST_BYTES
from plimsoll_contracts.scopes import Scope
from plimsoll_contracts.topics import CATALOGUE, QUOTA_REQUESTS, REPLIES_FLOWS, REPLIES_HTTP, REPLY_PREFIX, Topic

SERVICES = frozenset({"quota-enforcer"})
"""Our own services, whose operations AsyncAPI lists."""

_GENERATED = "<!-- Written by `python -m plimsoll_contracts export`: change the code, not this page. -->"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BINDING = "0.5.0"
_REPLIES = "quota.replies"
_REPLY_TYPE = next(iter(REPLIES_FLOWS.messages))
_REQUEST_TYPE = next(iter(QUOTA_REQUESTS.messages))

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 256}
_CLOUD_EVENT = ("ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time", "content-type")
_DEAD_LETTER = ("dlq-code", "dlq-detail", "dlq-topic", "dlq-partition", "dlq-offset", "dlq-consumer")
_REQUEST_HEADERS = {
    "reply_to": _TEXT | {"pattern": f"^{REPLY_PREFIX.replace('.', '[.]')}", "description": "An existing topic."},
    "correlation_id": _TEXT | {"description": "Comes back on the reply, byte for byte."},
    "reply_partition": _TEXT | {"pattern": "^[0-9]+$", "description": "Where the caller listens; else by key."},
    "deadline": _TEXT
    | {"pattern": "^[0-9]+$", "description": "Milliseconds since 1970, for check and reserve: not decided later."},
}


class _Schemas(GenerateJsonSchema):
    """JSON Schema without OpenAPI's ``discriminator``: AsyncAPI spells it otherwise, and ``const`` says it already."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Describe a tagged union as plain alternatives."""
        described = super().tagged_union_schema(schema)
        described.pop("discriminator", None)
        return described

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - the signature is pydantic's
        """Leave out titles that only repeat a field's name."""
        return False


def messages_of(topics: Iterable[Topic]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield each message type once, with its model."""
    seen: set[str] = set()
    for topic in topics:
        for kind, model in topic.messages.items():
            if kind not in seen:
                seen.add(kind)
                yield kind, model


def schema(kind: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of one message type, as it is read: a field that has a default may be left out."""
    body = model.model_json_schema(mode="validation", schema_generator=_Schemas)
    return {"$schema": _DIALECT, "$id": f"urn:plimsoll:{kind}"} | body


def headers_of(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of the headers of one message type, values read as UTF-8 text."""
    properties: dict[str, Any] = dict.fromkeys(_CLOUD_EVENT, _TEXT)
    properties["ce_type"] = {"const": kind}
    properties["ce_specversion"] = {"type": "string", "pattern": "^1[.][0-9]+$"}
    properties["ce_time"] = {"type": "string", "format": "date-time"}
    properties["content-type"] = {"const": "application/json"}
    properties["traceparent"] = _TEXT
    required = list(_CLOUD_EVENT)
    if kind == _REQUEST_TYPE:
        properties |= _REQUEST_HEADERS
        required = ["reply_to", "correlation_id"]
    elif kind == _REPLY_TYPE:
        properties["correlation_id"] = _REQUEST_HEADERS["correlation_id"]
        required = ["correlation_id"]
    return {"type": "object", "properties": properties, "required": required}


def asyncapi(topics: tuple[Topic, ...] = CATALOGUE) -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document of a catalogue of topics."""
    kinds = list(messages_of(topics))
    template = "#/components/schemas/{model}"
    inputs: list[tuple[type[BaseModel], JsonSchemaMode]] = list({(model, "validation"): None for _, model in kinds})
    references, definitions = models_json_schema(inputs, ref_template=template, schema_generator=_Schemas)
    messages = {kind: _message(kind, references[model, "validation"]) for kind, model in kinds}
    messages["dead_letter"] = {
        "name": "dead_letter",
        "summary": "A record that could not be handled: key, value and headers as they came, with dlq-* headers added.",
        "contentType": "application/octet-stream",
        "headers": {"type": "object", "properties": dict.fromkeys(_DEAD_LETTER, _TEXT), "required": list(_DEAD_LETTER)},
    }
    replies = {
        "address": None,
        "description": f"The topic that the request names in reply_to; it begins with {REPLY_PREFIX}.",
        "messages": {_REPLY_TYPE: _ref("components", "messages", _REPLY_TYPE)},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Plimsoll",
            "version": version("plimsoll-contracts"),
            "description": (
                "Topics and messages. CloudEvents 1.0 in Kafka's binary mode: the value is the JSON body. "
                "A field that has a default may be left out by whoever writes."
            ),
        },
        "defaultContentType": "application/json",
        "channels": {topic.name: _channel(topic) for topic in topics} | {_REPLIES: replies},
        "operations": {name: body for topic in topics for name, body in _operations(topic)},
        "components": {
            "messages": messages,
            "schemas": definitions.get("$defs", {}),
            "correlationIds": {"call": {"location": "$message.header#/correlation_id"}},
        },
    }


def _ref(*parts: str) -> dict[str, str]:
    return {"$ref": "#/" + "/".join(parts)}


def _message(kind: str, payload: JsonSchemaValue) -> dict[str, Any]:
    message: dict[str, Any] = {
        "name": kind,
        "contentType": "application/json",
        "headers": headers_of(kind),
        "payload": payload,
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": _BINDING}},
    }
    if kind in (_REQUEST_TYPE, _REPLY_TYPE):
        message["correlationId"] = _ref("components", "correlationIds", "call")
    return message


def _channel(topic: Topic) -> dict[str, Any]:
    kinds = topic.messages or {"dead_letter": BaseModel}
    settings: dict[str, Any] = {
        "cleanup.policy": ["compact" if topic.compacted else "delete"],
        "retention.ms": -1 if topic.retention is None else topic.retention // timedelta(milliseconds=1),
        "max.message.bytes": topic.max_message_bytes,
    }
    return {
        "address": topic.name,
        "messages": {kind: _ref("components", "messages", kind) for kind in kinds},
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "partitions": topic.partitions,
                "topicConfiguration": settings,
                "bindingVersion": _BINDING,
            }
        },
        "x-key": topic.key,
        "x-producers": list(topic.producers),
        "x-consumers": list(topic.consumers),
        "x-observers": topic.observers,
    }


def _operations(topic: Topic) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what our own services do with a topic; the reply belongs to the operation that answers."""
    sides: tuple[tuple[Literal["receive", "send"], tuple[str, ...]], ...] = (
        ("receive", topic.consumers),
        ("send", topic.producers),
    )
    for action, parties in sides:
        for service in sorted(SERVICES & set(parties)):
            operation: dict[str, Any] = {"action": action, "channel": _ref("channels", topic.name)}
            if topic is QUOTA_REQUESTS and action == "receive":
                operation["reply"] = {
                    "address": {"location": "$message.header#/reply_to"},
                    "channel": _ref("channels", _REPLIES),
                }
            yield f"{service}.{action}.{topic.name}", operation


def codes_page() -> str:
    """Return the reference page of every code."""
    rows = [(f"`{c.code}`", str(c.status), f"`{c.name}`", c.title, c.remedy) for c in sorted(CODES.values(), key=str)]
    return _page(
        "Codes",
        "Every answer that is not a plain yes carries one of these codes.\n"
        "Over HTTP a problem's `type` points to `/problems/CODE`, where the service shows the same of one code.\n"
        "402 is a recoverable quota (pay, top up, wait); 403 is a limit or a missing entitlement.",
        _table(("code", "status", "name", "what it says", "what to do"), rows),
    )


def dimensions_page() -> str:
    """Return the reference page of every dimension."""
    rows = [(f"`{d.name}`", d.entitlement_class, d.unit, d.owner, _where(d.name), d.meaning) for d in REGISTRY.values()]
    return _page(
        "Dimensions",
        "All amounts are whole numbers in the base unit.\n"
        'In texts, cpu is written in cores ("0.5") or millicores ("500m"), bytes with a binary suffix ("512m", "8g", '
        '"8GiB") and no decimals.\n'
        f"{' and '.join(sorted(TWO_BASES))} are counted on two bases, reserved and burst.",
        _table(("dimension", "class", "unit", "owner", "a limit can be set on", "what is counted"), rows),
    )


def _where(name: str) -> str:
    if name not in tuple(Dimension):
        return "plan only"
    places = {"tenant": Scope("t"), "environment": Scope("t", "e"), "stack": Scope("t", "e", "s")}
    return ", ".join(place for place, where in places.items() if applies_at(Dimension(name), where))


def topics_page(topics: tuple[Topic, ...] = CATALOGUE) -> str:
    """Return the reference page of every topic."""
    rows = [
        (
            f"`{t.name}`",
            t.key,
            str(t.partitions),
            _kept(t),
            f"{t.max_message_bytes // 1024} KiB",
            ", ".join(f"`{kind}`" for kind in t.messages) or "the original record",
            ", ".join(t.producers),
            ", ".join(t.consumers) or t.observers,
        )
        for t in topics
    ]
    heads = ("topic", "key", "partitions", "kept", "largest record", "messages", "written by", "read by")
    return _page(
        "Topics",
        "The broker creates no topic by itself: `python -m plimsoll_streams topics` makes these.\n"
        "Partition counts never change, because keys would move.\n"
        f"The body of a request has at most {MAX_REQUEST_BYTES // 1024} KiB.\n"
        "A field that has a default may be left out by whoever writes: absent means the default.\n"
        f"A caller adds its own reply topic under `{REPLY_PREFIX}`, made like `{REPLIES_HTTP.name}`.",
        _table(heads, rows),
    )


def _kept(topic: Topic) -> str:
    if topic.retention is None:
        return "last of each key" if topic.compacted else "for ever"
    days, rest = divmod(topic.retention, timedelta(days=1))
    return f"{days} days" if not rest else f"{topic.retention // timedelta(minutes=1)} minutes"


def _page(title: str, text: str, table: str) -> str:
    return f"# {title}\n\n{_GENERATED}\n\n{text}\n\n{table}\n"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ("---",) * len(heads), *rows))


def files() -> Mapping[str, str]:
    """Return every generated file by its path below ``docs/reference``."""
    made = {f"schemas/{kind}.json": _json(schema(kind, model)) for kind, model in messages_of(CATALOGUE)}
    pages = {"codes.md": codes_page(), "dimensions.md": dimensions_page(), "topics.md": topics_page()}
    return made | pages | {"asyncapi.json": _json(asyncapi())}


def _json(document: Mapping[str, Any]) -> str:
    # The design page is for whoever works on the code, and is not published.
    return re.sub(r" \(DESIGN [0-9.]+\)", "", json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def drift(folder: Path) -> list[str]:
    """Name every file below a folder that is missing, differs, or describes a message that is no more."""
    expected = files()
    wrong = [
        f"{name} is not what the contracts say"
        for name, text in expected.items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text
    ]
    present = {f"schemas/{path.name}" for path in (folder / "schemas").glob("*.json")}
    return wrong + [f"{name} describes nothing" for name in sorted(present - expected.keys())]


def write(folder: Path) -> None:
    """Write every generated file below a folder and remove schemas that describe nothing."""
    made = files()
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for path in (folder / "schemas").glob("*.json"):
        if f"schemas/{path.name}" not in made:
            path.unlink()
