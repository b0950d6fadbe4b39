"""The AsyncAPI document holds together: every reference leads somewhere, and its payloads accept golden bytes.

AsyncAPI's own schema is not on the Python index, so the structure is checked here by hand.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from tests.contract.golden_files import GOLDEN, kind_of, name_of

from plimsoll_contracts.export import asyncapi
from plimsoll_contracts.topics import CATALOGUE, REPLY_PREFIX

DOCUMENT = asyncapi()
KEYS = {"asyncapi", "info", "defaultContentType", "channels", "operations", "components"}


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def follow(reference: str) -> Any:
    node: Any = DOCUMENT
    for part in reference.removeprefix("#/").split("/"):
        node = node[part]
    return node


def test_the_document_has_the_parts_of_version_3() -> None:
    assert DOCUMENT.keys() == KEYS
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert DOCUMENT["info"].keys() >= {"title", "version"}
    for group in DOCUMENT["components"].values():
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in group)


def test_every_reference_leads_somewhere() -> None:
    found = set(references(DOCUMENT))
    assert found
    for reference in found:
        assert reference.startswith("#/")
        assert follow(reference)


def test_every_topic_is_a_channel_with_its_settings() -> None:
    addresses = {body["address"] for body in DOCUMENT["channels"].values()}
    assert addresses == {topic.name for topic in CATALOGUE} | {None}
    for topic in CATALOGUE:
        channel = DOCUMENT["channels"][topic.name]
        assert channel["messages"].keys() == (topic.messages.keys() or {"dead_letter"})
        assert channel["x-key"] == topic.key
        assert channel["bindings"]["kafka"]["partitions"] == topic.partitions
        assert channel["bindings"]["kafka"]["topicConfiguration"]["max.message.bytes"] == topic.max_message_bytes


def test_every_message_type_is_described_with_its_headers() -> None:
    for name, message in DOCUMENT["components"]["messages"].items():
        assert message["name"] == name
        if name != "dead_letter":
            Draft7Validator.check_schema(message["headers"])
            assert message["payload"]


def test_operations_name_their_channel_and_requests_their_reply() -> None:
    for name, operation in DOCUMENT["operations"].items():
        service, action, topic = name.split(".", 2)
        assert (service, operation["action"]) == ("quota-enforcer", action)
        assert operation["channel"]["$ref"] == f"#/channels/{topic}"
    asked = DOCUMENT["operations"]["quota-enforcer.receive.quota.requests"]
    assert asked["reply"]["address"]["location"] == "$message.header#/reply_to"
    headers = DOCUMENT["components"]["messages"]["quota.request.v1"]["headers"]
    assert {"reply_to", "correlation_id", "reply_partition", "deadline"} <= headers["properties"].keys()
    assert re.match(headers["properties"]["reply_to"]["pattern"], f"{REPLY_PREFIX}flows")
    assert not re.match(headers["properties"]["reply_to"]["pattern"], "quota_replies.flows")


@pytest.mark.parametrize("path", GOLDEN, ids=name_of)
def test_payloads_accept_golden_bytes(path: Path) -> None:
    payload = DOCUMENT["components"]["messages"][kind_of(path)]["payload"]
    checks = Draft7Validator(payload | {"components": DOCUMENT["components"]})
    checks.validate(json.loads(path.read_bytes()))
    assert not checks.is_valid({"neither": "this", "nor": "that"})
