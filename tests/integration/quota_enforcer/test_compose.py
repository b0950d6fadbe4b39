"""Compose files over the wire: what is charged, what is told beside the verdict, and what is refused and why."""

from pathlib import Path

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_devkit.platform import Platform
from plimsoll_devkit.wire import Wire, asking

EXAMPLES = Path(__file__).parents[3] / "examples" / "compose"


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")


def compose(verb: str, tenant: str, text: str, **fields: object) -> dict[str, object]:
    return asking(verb, tenant, footprint=None, compose=text, **fields)


async def test_a_file_is_charged_as_worked_out_by_hand_and_parked_again(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    installed = await wire.ask(compose("reserve", tenant, example("scaled-workers")))
    await wire.ask(asking("commit", tenant, hold=installed.request_id))

    assert await quota.used(tenant, "cpu", "reserved") == (2750, 0)
    assert await quota.used(tenant, "cpu", "burst") == (6750, 0)
    assert await quota.used(tenant, "memory", "reserved") == (1_476_395_008, 0)
    assert await quota.used(tenant, "memory", "burst") == (3_623_878_656, 0)
    assert await quota.used(tenant, "vapps") == (1, 0)

    parked = await wire.ask(compose("adjust", tenant, example("parked")))
    assert parked.notes == ("nothing runs: every service has 0 replicas, or there is none",)
    assert await quota.used(tenant, "cpu", "burst") == await quota.used(tenant, "vapps") == (0, 0)


async def test_burst_is_held_against_the_limit_times_its_multiplier(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 4499})
    short = await wire.ask(compose("check", tenant, example("scaled-workers")))
    await quota.set_limits(tenant, {"cpu": 4500})
    enough = await wire.ask(compose("check", tenant, example("scaled-workers")))

    assert (short.allowed, enough.allowed) == (False, True)
    assert [(one.basis, one.asked, one.limit) for one in short.violations] == [("burst", 6750, 6748)]


async def test_notes_come_with_the_verdict(quota: Platform, wire: Wire, tenant: str) -> None:
    reply = await wire.ask(compose("reserve", tenant, example("missing-resources")))
    assert reply.allowed
    assert reply.notes == (
        "charges no cpu, having neither a limit nor a reservation: cache, mailer",
        "charges no memory, having neither a limit nor a reservation: cache",
    )
    assert await quota.used(tenant, "cpu", "reserved") == (0, 500)


REFUSED: dict[str, tuple[str, Code, str]] = {
    "no YAML": ("services: [", codes.COMPOSE_INVALID, "the file: line 2: not YAML"),
    "no services": ("name: shop", codes.COMPOSE_INVALID, "services: "),
    "not rendered": ("services: {a: {extends: b}}", codes.COMPOSE_INVALID, "services.a.extends: "),
    "an alias bomb": (
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)),
        codes.COMPOSE_INVALID,
        "the file: line ",
    ),
    "bytes that are none": ("services: {a: {mem_limit: 1 Gi}}", codes.INVALID_BYTES, "services.a.mem_limit: "),
    "cpus that are none": ("services: {a: {cpus: 500m}}", codes.INVALID_CPU, "services.a.cpus: "),
    "replicas that are none": ("services: {a: {scale: -1}}", codes.INVALID_COUNT, "services.a.scale: "),
    "a sum beyond counting": (
        "services: {a: {scale: 99999, mem_limit: 1p}}",
        codes.AMOUNT_OVERFLOW,
        "all services together take more memory",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_file_without_a_footprint_is_answered_with_code_and_place(
    quota: Platform, wire: Wire, tenant: str, what: str
) -> None:
    text, code, place = REFUSED[what]
    counted = await quota.counted()
    for verb in ("check", "reserve", "adjust"):
        reply = await wire.ask(compose(verb, tenant, text))
        assert (reply.allowed, reply.code, reply.status) == (False, code.code, code.status)
        assert place in (reply.message or "")
    assert await counted.since("quota_refusals_total", code=code.code) == 3
    assert await quota.used(tenant, "vapps") == (0, 0)


async def test_nobody_widens_the_multipliers_beyond_the_platforms(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 2749})
    for field in ("multipliers", "app_multipliers"):
        for wider in ({"reservation_milli": 999}, {"limit_milli": 1501}):
            reply = await wire.ask(compose("reserve", tenant, example("scaled-workers"), **{field: wider}))
            assert reply.code == codes.MULTIPLIER_OUT_OF_BOUNDS.code
    narrower = {"reservation_milli": 2000, "limit_milli": 1000}
    reply = await wire.ask(compose("check", tenant, example("wordpress"), multipliers=narrower))
    assert reply.allowed, "2 x 1000 and 1500 are within 2749"
    wide = await wire.ask(compose("check", tenant, example("wordpress"), multipliers={"reservation_milli": 2750}))
    assert [(one.basis, one.asked) for one in wide.violations] == [("reserved", 2750)]
