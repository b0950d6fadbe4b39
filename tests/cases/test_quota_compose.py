"""Reported failures of amounts, and of ways around a dimension, asked of compose files; the names have their numbers.

The cases themselves have their first test in ``test_quota_rules.py`` and ``test_quota_usage.py``.
"""

import json
from pathlib import Path

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.dimensions import Basis, Dimension
from plimsoll_contracts.quantities import MAX_AMOUNT
from plimsoll_devkit.builders import Tenant, adjust, check, commit, limit, limits, reserve
from plimsoll_quota_enforcer.domain.compose import ComposeRefused, read_compose
from plimsoll_quota_enforcer.domain.model import TENANT, Content, Gauge
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.requests import Asked, Decoder, Refused
from plimsoll_streams.records import Record

EXAMPLES = Path(__file__).parents[2] / "examples" / "compose"
BLOG = ("prod", "blog")


def whole(cpus: str = "1", memory: str = "1g", replicas: str = "1", extra: str = "") -> str:
    limits_ = f"{{cpus: {cpus}, memory: {memory}}}"
    return f"services: {{web: {{image: x, deploy: {{replicas: {replicas}, resources: {{limits: {limits_}}}}}{extra}}}}}"


def deployed(text: str, app: str = "web") -> Content:
    return Content(BLOG, app, read_compose(text, require_resources=False).footprint)


def example(name: str) -> Content:
    return deployed((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))


def refused(text: str) -> Code:
    with pytest.raises(ComposeRefused) as error:
        read_compose(text, require_resources=False)
    return error.value.code


@pytest.mark.parametrize(
    ("cpus", "memory", "answer"),
    [
        ('"0.5"', "400m", 400 << 20),
        ("0.5", '"8g"', 8 << 30),
        ("500m", "1g", codes.INVALID_CPU),
        ('"1e3"', "1g", codes.INVALID_CPU),
        ('""', "1g", codes.INVALID_CPU),
        ("NaN", "1g", codes.INVALID_CPU),
        ("-1", "1g", codes.INVALID_CPU),
        ("1", '"1e3"', codes.INVALID_BYTES),
        ("1", '""', codes.INVALID_BYTES),
        ("1", "NaN", codes.INVALID_BYTES),
        ("1", "1 Gi", codes.INVALID_BYTES),
        ("1", "-1", codes.INVALID_BYTES),
    ],
)
def test_compose_t73_milli_is_of_cpu_nowhere_and_m_of_memory_is_mebi(
    cpus: str, memory: str, answer: int | Code
) -> None:
    text = whole(cpus, memory)
    if isinstance(answer, Code):
        assert refused(text) is answer
    else:
        assert read_compose(text, require_resources=True).footprint.memory_reserved == answer


def test_compose_t74_large_sums_are_exact_and_too_large_ones_are_refused() -> None:
    assert deployed(whole(memory=str(2**31 + 1), replicas="3")).footprint.memory_limit == 3 * (2**31 + 1)
    assert refused(whole(memory=str(2**63))) is codes.INVALID_BYTES
    assert refused(whole(memory=str(MAX_AMOUNT), replicas="2")) is codes.AMOUNT_OVERFLOW
    assert refused(whole(replicas="999999999")) is codes.COMPOSE_INVALID


def test_compose_t75_nothing_negative_frees_anything() -> None:
    assert refused(whole(cpus="-500")) is codes.INVALID_CPU
    assert refused(whole(memory="-1g")) is codes.INVALID_BYTES
    assert refused(whole(replicas="-1")) is codes.INVALID_COUNT


@pytest.mark.parametrize("where", ["limits", "reservations"])
def test_compose_t76_a_key_that_would_bound_nothing_is_refused(where: str) -> None:
    assert refused(f"services: {{web: {{deploy: {{resources: {{{where}: {{cpu: 1}}}}}}}}}}") is codes.COMPOSE_INVALID
    assert refused("services: {web: {mem_limits: 1g}}") is codes.COMPOSE_INVALID


@pytest.mark.parametrize(
    "dimension", [Dimension.CPU, Dimension.MEMORY, Dimension.VAPPS, Dimension.APPS, Dimension.STACKS]
)
def test_compose_t77_no_way_in_forgets_a_dimension(dimension: Dimension) -> None:
    """Create, scale, import and resume, from files that say it in each place there is."""
    tiny = deployed(whole("0.001", "1b"))
    for text in (
        whole(),
        "services: {web: {cpus: 1, mem_limit: 1g}}",
        "services: {web: {deploy: {resources: {reservations: {cpus: 1, memory: 1g}}}}}",
        "services: {web: {deploy: {mode: global, resources: {limits: {cpus: 1, memory: 1g}}}}}",
        "x-r: &r {limits: {cpus: 1, memory: 1g}}\nservices: {web: {<<: [{deploy: {resources: *r}}]}}",
        "services: {idle: {scale: 0}, web: {cpus: 1, mem_limit: 1g, profiles: [a]}}",
    ):
        create, resume = Tenant({TENANT: {dimension: limit(0)}}), Tenant({TENANT: {dimension: limit(0)}})
        resume.run("d1", deployed(text))
        resume.ask(adjust("park", "d1", None))
        assert create.ask(check("d1", deployed(text))).code is codes.EXCEEDED[dimension]
        assert resume.ask(check("d1", deployed(text))).code is codes.EXCEEDED[dimension]
        if dimension in {Dimension.CPU, Dimension.MEMORY}:
            scale = Tenant({TENANT: {dimension: limit(1)}})
            scale.run("d1", tiny)
            assert scale.ask(reserve("r1", "d1", deployed(text))).code is codes.EXCEEDED[dimension]


@pytest.mark.parametrize("verb", ["check", "reserve", "adjust"])
def test_compose_t77_required_resources_are_required_to_ask_and_never_to_tell(verb: str) -> None:
    body = {"verb": verb, "request_id": "r1", "issued_at": "2026-03-01T12:00:00Z", "tenant": "acme", "deployment": "d1"}
    value = json.dumps(body | {"compose": "services: {web: {image: x, cpus: 1}}"}).encode()
    record = Record("quota.requests", 0, 0, b"acme", value, (("reply_to", b"quota.replies.flows"),))
    lax, strict = (Decoder(Policy(require_resources=required)).request(record) for required in (False, True))
    assert isinstance(lax, Asked)
    assert lax.ask.notes == ("charges no memory, having neither a limit nor a reservation: web",)
    if verb == "adjust":
        assert strict == lax
    else:
        assert isinstance(strict, Refused)
        assert strict.code is codes.RESOURCES_REQUIRED


def test_compose_t77_what_is_no_dimension_is_said_not_dropped() -> None:
    text = whole(extra=", gpus: [{count: 1}]")
    assert read_compose(text, require_resources=True).notes == ("gpus is not counted: web",)


def test_compose_t79_what_was_parked_is_judged_when_it_resumes() -> None:
    running, parked = example("scaled-workers"), example("parked")
    tenant = Tenant({TENANT: limits(cpu=4500)})
    tenant.run("d1", running)
    assert tenant.ask(reserve("park", "d1", parked)).allowed
    assert tenant.ask(commit("parked", "park")).allowed
    assert tenant.used(Gauge.CPU_RESERVED) == tenant.used(Gauge.VAPPS) == 0
    assert tenant.ask(reserve("other", "d2", running)).allowed
    assert tenant.ask(reserve("resume", "d1", running)).code is codes.CPU_EXCEEDED


def test_compose_t55_a_check_and_a_reserve_of_one_file_say_the_same() -> None:
    """Reserved 2750 and burst 6750: with a multiplier of 1.5 the second needs a limit of 4500, and not one less."""
    for cpu, fits in ((4500, True), (4499, False)):
        tenant = Tenant({TENANT: limits(cpu=cpu)})
        asked, held = (
            tenant.ask(check("d1", example("scaled-workers"))),
            tenant.ask(reserve("r1", "d1", example("scaled-workers"))),
        )
        assert asked.allowed is held.allowed is fits
        assert [one.info.basis for one in held.violations] == ([] if fits else [Basis.BURST])


def test_compose_t50_a_denial_tells_the_whole_files_total() -> None:
    tenant = Tenant({TENANT: limits(memory=20 << 30)})
    (violation,) = [
        one
        for one in tenant.ask(reserve("r1", "d1", deployed(whole(memory="10g", replicas="3")))).violations
        if one.info.basis is Basis.RESERVED
    ]
    assert violation.asked == 30 << 30
