"""A footprint is what Docker will be asked to honour: each key, each amount, each refusal with its place."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.quantities import MAX_AMOUNT
from plimsoll_quota_enforcer.domain.compose import (
    MAX_REPLICAS,
    MAX_SERVICES,
    ComposeFootprint,
    ComposeRefused,
    read_compose,
)
from plimsoll_quota_enforcer.domain.model import Footprint, Replica

MIB = 2**20


def read(text: str, *, require_resources: bool = False) -> ComposeFootprint:
    return read_compose(text, require_resources=require_resources)


def one(body: str) -> ComposeFootprint:
    """Read a file with the one service ``web``, its keys in flow style."""
    return read(f"services: {{web: {{image: nginx, {body}}}}}")


def limits(body: str) -> ComposeFootprint:
    return one(f"deploy: {{resources: {{limits: {{{body}}}}}}}")


def refusal(text: str, *, require_resources: bool = False) -> tuple[Code, str]:
    with pytest.raises(ComposeRefused) as refused:
        read(text, require_resources=require_resources)
    return refused.value.code, refused.value.detail


def refusal_of(body: str) -> tuple[Code, str]:
    return refusal(f"services: {{web: {{image: nginx, {body}}}}}")


@pytest.mark.parametrize(
    ("written", "millicores"),
    [
        ('"0.5"', 500),
        ("0.5", 500),
        ("1", 1000),
        ('"1"', 1000),
        ("'2.50'", 2500),
        ("0.1", 100),
        ("0.29", 290),  # times 1000 as a double it is 290.00000000000006 or 289.99999999999994
        ("0.57", 570),
        ("1.005", 1005),
        (".5", 500),
        ("2.", 2000),
        ("0.0001", 1),
        ("0.0010001", 2),
        ("0.00100", 1),
        ("64", 64_000),
    ],
)
def test_cpus_are_exact_decimals_and_rounded_up(written: str, millicores: int) -> None:
    assert limits(f"cpus: {written}").footprint.cpu_limit == millicores
    assert one(f"cpus: {written}").footprint.cpu_limit == millicores


@pytest.mark.parametrize(
    "written",
    [
        *("500m", '"500m"', ".inf", "-.inf", ".nan", "NaN", "inf", "-1", "+1", "1e3", "1_000", "0x10", "0o10", "010"),
        *("1:30", '""', '" 1"', '"1 "', "true", "yes", "2026-03-01", "1.5.0", "1,5", "1/2", "one", '"\\u0661"', "."),
        *("${CPUS}", "9" * 16, "9" * 5000, "0." + "1" * 5000, '"1\\n"', '"1\\0"', "9007199254740.992"),
    ],
)
def test_other_cpus_are_refused(written: str) -> None:
    quoted = written if written[0] == '"' or ("," not in written and "{" not in written) else f'"{written}"'
    code, detail = refusal_of(f"deploy: {{resources: {{reservations: {{cpus: {quoted}}}}}}}")
    assert code is codes.INVALID_CPU
    assert detail.startswith("services.web.deploy.resources.reservations.cpus: ")
    assert len(detail) < 200


# The grammar of Docker's own parser, case by case with what it returns, and the suffixes the compose file names.
BYTES = [
    *[("32", 32), ("32b", 32), ("32B", 32), ("32k", 32 * 1024), ("32K", 32 * 1024), ("32kb", 32 * 1024)],
    *[("32Kb", 32 * 1024), ("32Kib", 32 * 1024), ("32KIB", 32 * 1024), ("32Mb", 32 * MIB), ("32Gb", 32 << 30)],
    *[("32Tb", 32 << 40), ("2Pb", 2 << 50), ("2PB", 2 << 50), ("2P", 2 << 50), ("32.3", 32), ("32.", 32)],
    *[("32.3 mb", int(32.3 * MIB)), ("0.3MB", int(0.3 * MIB)), (".3kB", 307), ("32 ", 32), ("32 b", 32)],
    *[("512m", 536_870_912), ("50M", 52_428_800), ("1.5g", 1_610_612_736), ("1 GiB", 1 << 30), ("0.5t", 1 << 39)],
    *[("1.9999999999999999999g", 2 << 30)],
]


@pytest.mark.parametrize(("written", "amount"), BYTES)
def test_bytes_are_read_as_docker_reads_them(written: str, amount: int) -> None:
    assert limits(f'memory: "{written}"').footprint.memory_limit == amount
    assert one(f'mem_limit: "{written}"').footprint.memory_limit == amount
    assert one(f'mem_reservation: "{written}"').footprint.memory_reserved == amount


def test_bytes_without_quotes_are_whole_or_have_a_suffix() -> None:
    assert limits("memory: 536870912").footprint.memory_limit == 536_870_912
    assert limits("memory: 1.5g").footprint.memory_limit == 1_610_612_736
    assert refusal_of("mem_limit: 1.5")[0] is codes.INVALID_BYTES, "Docker reads a float there as no limit"


@pytest.mark.parametrize(
    "written",
    [
        *("", "hello", "-32", "-1", " 32 ", "32m b", "32bm", "32  b", "32 Gi", "32gi", "32ki", "32e", "32eb", "32mm"),
        *("1e3", "0x10", "+5", "1_000", "010", "010m", "NaN", "inf", "m", ".", ".m", "1.5.0g", "1,5g", "\u0661k"),
        *("1\u212a", "9" * 17, "9007199254740992", "9p", "8192t", "32MB/s", "50%", "9" * 5000, "1\\n", "1g\\0"),
    ],
)
def test_other_bytes_are_refused(written: str) -> None:
    for body in (f'mem_limit: "{written}"', f'deploy: {{resources: {{limits: {{memory: "{written}"}}}}}}'):
        code, detail = refusal_of(body)
        assert code is codes.INVALID_BYTES
        assert detail.startswith("services.web.")
        assert len(detail) < 200


@pytest.mark.parametrize(
    "written", ["-1", "1.0", "1.5", "010", "0x2", "1_0", "1:30", "two", '""', "true", "1e2", "9" * 10, "9" * 5000]
)
def test_replicas_and_scale_are_whole_numbers(written: str) -> None:
    assert refusal_of(f"deploy: {{replicas: {written}}}")[0] is codes.INVALID_COUNT
    assert refusal_of(f"scale: {written}") == (codes.INVALID_COUNT, refusal_of(f"scale: {written}")[1])
    assert one('scale: "3", cpus: 1').footprint.cpu_limit == 3000


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("cpus: 1, mem_limit: 1m", Footprint(1000, 1000, MIB, MIB, 0, 1)),
        ("mem_reservation: 1m", Footprint(0, 0, MIB, MIB, 0, 1)),
        ("mem_reservation: 1m, mem_limit: 2m", Footprint(0, 0, MIB, 2 * MIB, 0, 1)),
        ("mem_limit: 2m, deploy: {resources: {reservations: {memory: 1m}}}", Footprint(0, 0, MIB, 2 * MIB, 0, 1)),
        ("cpus: 2, deploy: {resources: {reservations: {cpus: 1}}}", Footprint(1000, 2000, vapps=1)),
        ("cpus: 1.0, deploy: {resources: {limits: {cpus: '1'}}}", Footprint(1000, 1000, vapps=1)),
        ("cpus: 0, deploy: {resources: {limits: {cpus: '1'}}}", Footprint(1000, 1000, vapps=1)),
        ("cpus: 1, deploy: {resources: {limits: {cpus: 0}}}", Footprint(1000, 1000, vapps=1)),
        ("mem_limit: 1m, deploy: {resources: {limits: {memory: 0}}}", Footprint(0, 0, MIB, MIB, 0, 1)),
        ("deploy: {resources: {limits: {cpus: 1}, reservations: {cpus: 0}}}", Footprint(1000, 1000, vapps=1)),
        ("deploy: {resources: {limits: {cpus: null}, reservations: ~}}", Footprint(vapps=1)),
        ("deploy: {resources: }", Footprint(vapps=1)),
        ("deploy: , scale: ", Footprint(vapps=1)),
        ("deploy: {replicas: 3, resources: {limits: {cpus: 1}}}", Footprint(3000, 3000, vapps=1)),
        ("deploy: {mode: replicated-job, replicas: 3, resources: {limits: {cpus: 1}}}", Footprint(3000, 3000, vapps=1)),
        ("deploy: {mode: replicated, resources: {limits: {cpus: 1}}}", Footprint(1000, 1000, vapps=1)),
        ("deploy: {mode: global, resources: {limits: {cpus: 1}}}", Footprint(1000, 1000, vapps=1)),
        ("scale: 3, cpus: 1", Footprint(3000, 3000, vapps=1)),
        ("scale: 3, cpus: 1, deploy: {replicas: 3}", Footprint(3000, 3000, vapps=1)),
        ("scale: 0, cpus: 1", Footprint()),
        ("deploy: {replicas: 0, resources: {limits: {cpus: 1}}}", Footprint()),
        ("cpus: 1, x-cpus: 9, deploy: {x-replicas: 9, resources: {x-limits: 9, limits: {x-cpus: 9}}}",) * 1
        + (Footprint(1000, 1000, vapps=1),),
        (
            "cpus: 1, volumes: [data:/data], tmpfs: [/tmp:size=1g], storage_opt: {size: 1g}",
            Footprint(1000, 1000, 0, 0, 0, 1),
        ),
    ],
)
def test_what_a_service_takes(body: str, expected: Footprint) -> None:
    assert one(body).footprint == expected


def test_vapps_is_one_for_the_deployment_while_anything_runs() -> None:
    two = "services: {a: {image: x, scale: %d}, b: {image: x, scale: %d}}"
    assert [read(two % counts).footprint.vapps for counts in ((5, 5), (0, 1), (1, 0), (0, 0))] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("deploy: {mode: global}", "counted once, although its mode runs one on each eligible node: web"),
        ("deploy: {mode: global-job}", "counted for as long as it is deployed, although it is a job: web"),
        ("profiles: [debug]", "counted, although its profiles may leave it out: web"),
        ("cpuset: '0,1'", "cpuset is not counted: web"),
        ("cpu_count: 2", "cpu_count is not counted: web"),
        ("memswap_limit: -1", "memswap_limit is not counted: web"),
        ("devices: [/dev/fuse]", "devices is not counted: web"),
        ("deploy: {resources: {limits: {pids: 9}}}", "deploy.resources.limits.pids is not counted: web"),
        ("deploy: {update_config: {order: start-first}}",) * 1
        + ("runs more replicas during an update (start-first) than are counted: web",),
        ("mem_limit: 1m, mem_reservation: 2m",) * 1
        + ("reserves more memory than its limit, so the reservation counts on both bases: web",),
    ],
)
def test_what_is_not_counted_as_it_reads_is_noted(body: str, note: str) -> None:
    assert note in one(body).notes


@pytest.mark.parametrize(
    "body", ["devices: []", "profiles: []", "gpus: null", "deploy: {update_config: {order: stop-first}}"]
)
def test_what_says_nothing_is_not_noted(body: str) -> None:
    assert one(f"cpus: 1, mem_limit: 1m, {body}").notes == ()


def test_a_thousand_services_of_one_kind_take_one_note() -> None:
    text = "services: {" + ", ".join(f"s{n}: {{image: x, mem_limit: 1m}}" for n in range(1000)) + "}"
    (note,) = read(text).notes
    assert note.endswith(": s0, s1, s2, s3, s4, s5, s6, s7 and 992 more")


def test_required_resources_are_both_and_of_what_runs_only() -> None:
    lacking = "services: {a: {image: x, cpus: 1}, b: {image: x, mem_limit: 1m}, c: {image: x, scale: 0}}"
    code, detail = refusal(lacking, require_resources=True)
    assert (code, code.status) == (codes.RESOURCES_REQUIRED, 422)
    assert detail == "neither a limit nor a reservation of cpu: b; neither a limit nor a reservation of memory: a"
    whole = "services: {a: {image: x, cpus: 1, mem_limit: 1m}, c: {image: x, scale: 0}}"
    assert read(whole, require_resources=True).notes == ()


INVALID = [
    ("services: {web: {image: x, cpu_limit: 1}}", "services.web.cpu_limit: "),
    ("services: {web: {image: x, Cpus: 1}}", "services.web.Cpus: "),
    ("services: {web: {image: x, Deploy: {replicas: 9}}}", "services.web.Deploy: "),
    ("services: {web: {image: x, memory: 1g}}", "services.web.memory: "),
    ("services: {web: {image: x, mem_reservations: 1g}}", "services.web.mem_reservations: "),
    ("services: {web: {image: x, resources: {limits: {cpus: 1}}}}", "services.web.resources: "),
    ("services: {web: {image: x, replicas: 3}}", "services.web.replicas: "),
    ("services: {web: {deploy: {limits: {cpus: 1}}}}", "services.web.deploy.limits: "),
    ("services: {web: {deploy: {resources: {limit: {cpus: 1}}}}}", "services.web.deploy.resources.limit: "),
    ("services: {web: {deploy: {resources: {limits: {cpu: 1}}}}}", "services.web.deploy.resources.limits.cpu: "),
    ("services: {web: {extends: base}}", "services.web.extends: the file is not rendered"),
    ("include: [a.yaml]\nservices: {}", "include: the file is not rendered"),
    ("services: {web: {scale: 2, deploy: {replicas: 3}}}", "services.web: scale is 2 and deploy.replicas 3"),
    ("services: {web: {cpus: 1, deploy: {resources: {limits: {cpus: 2}}}}}", "services.web: cpus and deploy."),
    ("services: {web: {mem_limit: 1, deploy: {resources: {limits: {memory: 2}}}}}", "services.web: mem_limit and"),
    (
        "services: {web: {mem_reservation: 1, deploy: {resources: {reservations: {memory: 2}}}}}",
        "services.web: mem_res",
    ),
    ("services: {web: {deploy: {mode: global, replicas: 2}}}", "services.web.deploy.mode: global takes no number"),
    ("services: {web: {scale: 2, deploy: {mode: global-job}}}", "services.web.deploy.mode: global-job takes no"),
    ("services: {web: {deploy: {mode: everywhere}}}", "services.web.deploy.mode: it is none of global, "),
    ("services: {web: {deploy: {mode: [global]}}}", "services.web.deploy.mode: it is none of global, "),
    ("services: {web: {deploy: [1]}}", "services.web.deploy: it is no mapping"),
    ("services: {web: {deploy: {resources: 1}}}", "services.web.deploy.resources: it is no mapping"),
    (
        "services: {web: {deploy: {resources: {limits: {cpus: [1]}}}}}",
        "services.web.deploy.resources.limits.cpus: it is no s",
    ),
    ("services: {web: {cpus: {a: 1}}}", "services.web.cpus: it is no single value"),
    ("services: {web: }", "services.web: it is no mapping"),
    ("services: {web: nginx}", "services.web: it is no mapping"),
    ("services: {'a b': {}}", "services: 'a b' is no name of a service"),
    ("services: {'': {}}", "services: '' is no name of a service"),
    ('services: {"\\e[31m": {}}', "services: '\\x1b[31m' is no name of a service"),
    ("services: {w\u00e9b: {}}", "services: 'w\\xe9b' is no name of a service"),
    ("services: [web]", "services: there is no mapping of services"),
    ("services: ", "services: there is no mapping of services"),
    ("web: {image: nginx}", "services: there is no mapping of services"),
    ("[services]", "the file: it is no mapping"),
    ("nginx", "the file: it is no mapping"),
]


@pytest.mark.parametrize(("text", "begins"), INVALID, ids=lambda text: text[:60])
def test_what_docker_would_not_take_is_refused_with_its_place(text: str, begins: str) -> None:
    code, detail = refusal(text)
    assert (code, code.status) == (codes.COMPOSE_INVALID, 400)
    assert detail.startswith(begins)


def test_the_json_form_is_the_same_file() -> None:
    service = {"image": "x", "deploy": {"replicas": 2, "resources": {"limits": {"cpus": 0.5, "memory": "1048576"}}}}
    text = json.dumps({"name": "a", "services": {"web": service}}, indent=2)
    assert read(text).footprint == Footprint(1000, 1000, 2 * MIB, 2 * MIB, 0, 1)


def test_anchors_and_merge_keys() -> None:
    text = """
x-base: &base {image: x, cpus: 1, mem_limit: 1m}
x-more: &more {mem_limit: 2m, scale: 2}
services:
  a: *base
  b: {<<: *base, cpus: 2}
  c: {<<: [*more, *base]}
  x-d: {image: x}
"""
    assert read(text).replicas == (
        Replica("a", 1, 1000, MIB),
        Replica("b", 1, 2000, MIB),
        Replica("c", 2, 1000, 2 * MIB),
        Replica("x-d", 1, 0, 0),  # below services x- is a service like any other
    )


def many(count: int, body: str) -> str:
    return "services:\n" + "".join(f" s{n}: {body}\n" for n in range(count))


def test_services_and_replicas_have_bounds() -> None:
    assert len(read("x: &a {cpus: 1}\n" + many(MAX_SERVICES, "*a")).replicas) == MAX_SERVICES
    assert refusal("x: &a {cpus: 1}\n" + many(MAX_SERVICES + 1, "*a"))[1].startswith("services: 10001 of them")
    assert read(many(2, f"{{scale: {MAX_REPLICAS // 2}}}")).footprint.vapps == 1
    assert refusal(many(2, f"{{scale: {MAX_REPLICAS // 2 + 1}}}"))[1].startswith("services: 100002 replicas in all")


def test_a_sum_that_is_too_large_is_refused() -> None:
    text = many(2, f"{{mem_limit: {MAX_AMOUNT // 2}}}")
    assert read(text).footprint.memory_limit == MAX_AMOUNT - 1
    code, detail = refusal(many(2, f"{{mem_limit: {MAX_AMOUNT // 2 + 1}}}"))
    assert (code, detail) == (
        codes.AMOUNT_OVERFLOW,
        f"all services together take more memory than {MAX_AMOUNT}",
    )
    assert refusal(many(2, "{scale: 50000, cpus: 4503599627370}"))[0] is codes.AMOUNT_OVERFLOW


# What a service may say, as (text, reserved and limit it stands for); None is not said.
cores = st.none() | st.integers(1, 64_000)
memories = st.none() | st.integers(1, 2**40)
service = st.tuples(st.integers(0, 50), cores, cores, memories, memories)
Said = tuple[int, int | None, int | None, int | None, int | None]


def written(said: Said) -> str:
    count, cpu, cpu_limit, memory, memory_limit = said
    quoted = [None if amount is None else f"{amount // 1000}.{amount % 1000:03d}" for amount in (cpu, cpu_limit)]
    reservations = [f"cpus: {quoted[0]}"] * (cpu is not None) + [f"memory: {memory}"] * (memory is not None)
    ceilings = [f"cpus: {quoted[1]}"] * (cpu_limit is not None) + [f"memory: {memory_limit}b"] * (
        memory_limit is not None
    )
    resources = f"{{reservations: {{{', '.join(reservations)}}}, limits: {{{', '.join(ceilings)}}}}}"
    return f"{{image: x, deploy: {{replicas: {count}, resources: {resources}}}}}"


def worked_out(said: Said) -> tuple[int, int, int, int]:
    """Say in other words what the reader says: a second implementation to hold it against."""
    count, cpu, cpu_limit, memory, memory_limit = said
    pairs = [(cpu, cpu_limit), (memory, memory_limit)]
    told = [[amount for amount in pair if amount is not None] for pair in pairs]
    reserved = [
        pair[0] if pair[0] is not None else max(amounts, default=0) for pair, amounts in zip(pairs, told, strict=True)
    ]
    most = [max(amounts, default=0) for amounts in told]
    return (count * reserved[0], count * most[0], count * reserved[1], count * most[1])


def file_of(services: list[Said]) -> str:
    return "services:\n" + "".join(f"  s{n}: {written(said)}\n" for n, said in enumerate(services))


@given(st.lists(service, min_size=1, max_size=6))
def test_a_file_takes_the_sum_of_its_services(services: list[Said]) -> None:
    whole = read(file_of(services)).footprint
    told = (whole.cpu_reserved, whole.cpu_limit, whole.memory_reserved, whole.memory_limit)
    assert told == tuple(map(sum, zip(*map(worked_out, services), strict=True)))
    parts = [read(file_of([said])).footprint for said in services]
    assert whole.cpu_reserved == sum(part.cpu_reserved for part in parts)
    assert whole.memory_limit == sum(part.memory_limit for part in parts)
    assert whole.vapps == max(part.vapps for part in parts)
    assert whole.disk == 0


@given(service, st.integers(0, 50))
def test_more_replicas_never_take_less(said: Said, more: int) -> None:
    fewer, greater = read(file_of([said])), read(file_of([(said[0] + more, *said[1:])]))
    for name in ("cpu_reserved", "cpu_limit", "memory_reserved", "memory_limit", "vapps"):
        assert getattr(fewer.footprint, name) <= getattr(greater.footprint, name)


@given(st.lists(service, min_size=1, max_size=6))
def test_replicas_add_up_to_what_is_reserved_and_burst_is_never_below_it(services: list[Said]) -> None:
    found = read(file_of(services))
    assert found.footprint.cpu_reserved == sum(one.count * one.cpu for one in found.replicas)
    assert found.footprint.memory_reserved == sum(one.count * one.memory for one in found.replicas)
    assert found.footprint.cpu_reserved <= found.footprint.cpu_limit
    assert found.footprint.memory_reserved <= found.footprint.memory_limit


@given(st.decimals(0, 4096, places=6, allow_nan=False, allow_infinity=False))
def test_a_decimal_of_cpus_is_never_charged_less_nor_a_millicore_more(cpus: object) -> None:
    exact = math.ceil(cpus * 1000)  # type: ignore[operator]
    assert limits(f"cpus: {cpus:f}").footprint.cpu_limit == exact
