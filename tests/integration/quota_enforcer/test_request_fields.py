"""Each field that a request may have besides its amounts is read strictly, and once."""

import json
from typing import Any

import pytest

from plimsoll_contracts import codes
from plimsoll_devkit.wire import Wire, asking

GOOD = "services:\n  web:\n    image: x\n    deploy: {replicas: 2, resources: {limits: {cpus: '0.5', memory: 1m}}}\n"


async def test_a_key_around_the_file_that_is_written_twice_is_refused(wire: Wire, tenant: str) -> None:
    body = json.dumps(asking("reserve", tenant, footprint=..., compose=GOOD, placement={"node": "n"}))
    for twice in ('"placement": {"node": "m"}, "verb"', '"compose": "services: {}", "verb"'):
        reply = await wire.ask(body.replace('"verb"', twice, 1).encode(), key=tenant)
        assert (reply.allowed, reply.code) == (False, codes.INVALID_REQUEST.code)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"multipliers": {"reservation_milli": 1000, "limit_milli": 1500}}, None),
        ({"multipliers": {"reservation_milli": 2000}}, None),
        ({"multipliers": {"reservation_milli": 999}}, codes.MULTIPLIER_OUT_OF_BOUNDS),
        ({"multipliers": {"limit_milli": 1501}}, codes.MULTIPLIER_OUT_OF_BOUNDS),
        ({"multipliers": {"limit_milli": 1.5}}, codes.INVALID_REQUEST),
        ({"placement": {"node": "n", "pool": "p"}}, codes.INVALID_REQUEST),
        ({"replaces": ["d1"]}, codes.INVALID_REQUEST),
        ({"wait_seconds": -1}, codes.INVALID_REQUEST),
        ({"surge": "yes"}, codes.INVALID_REQUEST),
        ({"compose": GOOD}, codes.INVALID_REQUEST),
    ],
)
async def test_each_new_field_is_read_strictly(
    wire: Wire, tenant: str, fields: dict[str, Any], code: codes.Code | None
) -> None:
    reply = await wire.ask(asking("reserve", tenant, **fields))
    assert (reply.allowed, reply.code) == (code is None, code.code if code else None), reply.message
