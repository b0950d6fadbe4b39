"""Events that break their contract become dead letters with their reason; the next good one counts."""

import json
from typing import Any

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS, USAGE_DELTAS, Topic
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, header


def delta(tenant: str, **fields: Any) -> dict[str, Any]:
    return {"tenant": tenant, "environment": "prod", "deployment": "d1", "revision": 1, "after": {"cpu": 5}, **fields}


def snapshot(tenant: str, **fields: Any) -> dict[str, Any]:
    return {"tenant": tenant, "entitlement_version": 1, "plan": "team", **fields}


TYPED = {USAGE_DELTAS.name: b"usage.delta.v1", ENTITLEMENT_EVENTS.name: b"entitlement.snapshot.v1"}
EVENTS: dict[str, tuple[Topic, Any, Code]] = {
    "an undecodable delta": (USAGE_DELTAS, b"\xff", codes.UNDECODABLE),
    "a delta without a value": (USAGE_DELTAS, None, codes.UNDECODABLE),
    "a delta with a text for a revision": (USAGE_DELTAS, {"revision": "1"}, codes.INVALID_REQUEST),
    "a delta with a negative revision": (USAGE_DELTAS, {"revision": -1}, codes.INVALID_REQUEST),
    "a delta with a negative amount": (USAGE_DELTAS, {"after": {"cpu": -5}}, codes.INVALID_CPU),
    "a delta beyond int64": (USAGE_DELTAS, {"after": {"memory": 2**63}}, codes.INVALID_BYTES),
    "a delta of a roll-up": (USAGE_DELTAS, {"environment": None, "stack": "blog"}, codes.SCOPE_IS_ROLLUP),
    "a delta of a bad name": (USAGE_DELTAS, {"environment": "Prod"}, codes.INVALID_NAME),
    "a delta under another's key": (USAGE_DELTAS, {"tenant": "somebody-else"}, codes.KEY_MISMATCH),
    "a snapshot of version 0": (ENTITLEMENT_EVENTS, {"entitlement_version": 0}, codes.INVALID_REQUEST),
    "a snapshot with a bad limit": (ENTITLEMENT_EVENTS, {"limits": {"cpu": "lots"}}, codes.INVALID_CPU),
    "a snapshot under another's key": (ENTITLEMENT_EVENTS, {"tenant": "somebody-else"}, codes.KEY_MISMATCH),
}


@pytest.mark.parametrize("what", EVENTS)
async def test_a_bad_event_becomes_a_dead_letter_and_the_next_one_counts(
    quota: Platform, wire: Wire, tenant: str, what: str
) -> None:
    topic, wrong, code = EVENTS[what]
    counted = await quota.counted()
    make = delta if topic is USAGE_DELTAS else snapshot
    value = json.dumps(make(tenant) | wrong).encode() if isinstance(wrong, dict) else wrong

    place = await wire.send(topic, value, key=tenant.encode(), headers=[("ce_type", TYPED[topic.name])])
    await wire.tell(topic, make(tenant))

    letter = await wire.dead_letter(place)
    assert (letter.value, header(letter, "dlq-code")) == (value, code.code.encode())
    assert await counted.since("streams_dead_letters_total", topic=topic.name, reason="invalid") == 1

    async def counts() -> bool:
        status = await quota.status(tenant)
        return bool((status["deployments"] if topic is USAGE_DELTAS else status["entitlement_version"]) == 1)

    await eventually(counts, what="the good event behind it")


@pytest.mark.parametrize("kind", [None, b"usage.delta.v2", b"\xff", b""])
async def test_an_event_of_an_unknown_type_becomes_a_dead_letter(wire: Wire, tenant: str, kind: bytes | None) -> None:
    headers = [("ce_type", kind)] if kind is not None else []

    place = await wire.send(USAGE_DELTAS, json.dumps(delta(tenant)).encode(), key=tenant.encode(), headers=headers)

    assert header(await wire.dead_letter(place), "dlq-code") == codes.INVALID_REQUEST.code.encode()
