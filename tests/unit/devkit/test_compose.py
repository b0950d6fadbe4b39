"""compose.yaml and the local processes say the same of every service: command, environment, health check."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll_devkit.stack import compose, prometheus, services, table
from plimsoll_devkit.stack.containers import inside_port
from plimsoll_devkit.stack.context import ROOT, Layout
from plimsoll_devkit.stack.kafka import Kafka, properties
from plimsoll_devkit.stack.parts import Java
from plimsoll_devkit.stack.postgres import Postgres
from plimsoll_devkit.stack.services import Plain

NAMES = [service.name for service in table.SERVICES]
# What differs between the two, each under a value that appears nowhere else.
HERE = {
    "bind": "127.0.0.1",
    "auth": "/here/auth",
    "kafka": "127.0.0.1:1002",
    "postgres": "127.0.0.1:1004",
    "port": "1001",
    "internal_port": "1002",
    "controller_port": "1003",
    "published_port": "1001",
}


@pytest.fixture(scope="module", name="composed")
def _composed() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "compose.yaml").read_text())
    services: dict[str, Any] = document["services"]
    return services


def moved_here(text: str, name: str, data: str) -> str:
    """What a word of compose.yaml becomes where everything listens on this machine's loopback."""
    port = str(inside_port(name))
    if volume := table.BY_NAME[name].volume:
        text = re.sub(rf"(^|=){re.escape(volume)}$", rf"\g<1>{data}", text)
    pairs = [("kafka:9092", HERE["kafka"]), ("postgres:5432", HERE["postgres"]), ("0.0.0.0", HERE["bind"])]  # noqa: S104
    pairs.append(("/etc/plimsoll/", f"{HERE['auth']}/"))
    if name == "kafka":
        pairs += [(compose.published_port(name), "1001"), (":9092", ":1002"), (":9093", ":1003"), (":19092", ":1001")]
    else:
        pairs.append((f"{HERE['bind']}:{port}", f"{HERE['bind']}:{HERE['port']}"))
    for there, here in pairs:
        text = text.replace(there, here)
    return HERE["port"] if text == port else text


def local_part(name: str, folder: Path) -> Kafka | Postgres | Plain:
    match name:
        case "kafka":
            return Kafka(Layout(folder), HERE, Java(Path("/java"), "17"), (), None)
        case "postgres":
            return Postgres(Layout(folder), HERE, Path("/pg"))
        case "valkey":
            return services.valkey(Path("/valkey-server"), HERE)
        case "prometheus":
            return prometheus.part(Layout(folder), Path("/prometheus"), HERE)
        case _:
            return services.own(name, HERE)


def test_compose_yaml_is_not_stale() -> None:
    assert (ROOT / "compose.yaml").read_text() == compose.render(), "run: make docs"


def test_both_have_the_same_services(composed: dict[str, Any]) -> None:
    assert list(composed) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_is_the_same(name: str, composed: dict[str, Any], tmp_path: Path) -> None:
    part = local_part(name, tmp_path)
    here = dict(part.launch().environment) if isinstance(part, Plain) else part.settings
    data = str(part.data) if isinstance(part, Kafka) else ""
    there = {key: moved_here(text, name, data) for key, text in composed[name].get("environment", {}).items()}
    assert here == there


async def test_kafka_reads_the_environment_as_properties(composed: dict[str, Any], tmp_path: Path) -> None:
    """The image's entry point turns KAFKA_A_B=c into a.b=c; locally we do, and the broker is started on that file."""
    part = local_part("kafka", tmp_path)
    assert isinstance(part, Kafka)
    formatted = part.data / "meta.properties"
    await asyncio.to_thread(formatted.parent.mkdir, parents=True)
    await asyncio.to_thread(formatted.touch)
    await part.prepare()
    file = Path(part.launch().argv[-1])
    text = await asyncio.to_thread(file.read_text)
    lines = dict(line.split("=", 1) for line in text.splitlines())
    known = {key: text for key, text in composed["kafka"]["environment"].items() if key.startswith("KAFKA_")}
    heap = known.pop("KAFKA_HEAP_OPTS")
    assert lines == {
        key.removeprefix("KAFKA_").lower().replace("_", "."): moved_here(value, "kafka", str(part.data))
        for key, value in known.items()
    }
    assert heap.split() == [word for word in part.launch().argv if word.startswith(("-Xms", "-Xmx"))]
    assert part.launch().argv[-2] == "kafka.Kafka"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "kafka"])
def test_the_command_is_the_same(name: str, composed: dict[str, Any], tmp_path: Path) -> None:
    part = local_part(name, tmp_path)
    _, *arguments = part.launch().argv
    there = [str(word) for word in composed[name]["command"]]
    if name == "prometheus":  # its image starts the program itself
        there = ["prometheus", *there]
        own = f"{tmp_path}/prometheus"
        arguments = [word.replace(f"{own}/data", "DATA").replace(own, "/etc/prometheus") for word in arguments]
    if isinstance(part, Postgres):  # where the cluster is and listens: the image's own business there
        where = arguments.index("-D")
        assert arguments[where:] == ["-D", str(part.data), "-h", "127.0.0.1", "-p", "1001", "-k", ""]
        arguments = arguments[:where]
    if name == "valkey":
        assert arguments[-4:] == ["--bind", "127.0.0.1", "--port", "1001"]
        arguments = arguments[:-4]
    assert arguments == [moved_here(word, name, "DATA") for word in there[1:]]


@pytest.mark.parametrize("name", [name for name in NAMES if table.BY_NAME[name].health])
async def test_the_health_check_is_the_same(name: str, composed: dict[str, Any], tmp_path: Path) -> None:
    check = composed[name]["healthcheck"]
    part = local_part(name, tmp_path)
    assert check["start_period"] == f"{part.seconds:.0f}s"
    asked = " ".join(check["test"])
    match name:
        case "kafka":  # the coordinator of groups; tests/system asks a real one in this way
            assert "kafka-consumer-groups.sh --bootstrap-server kafka:9092" in asked
        case "postgres":
            assert "SELECT 1" in asked
        case "valkey":
            assert asked.endswith("valkey-cli ping")
            assert await first_line_asked(name, part, b"+PONG\r\n") == "PING"
        case _:
            url = re.search(r"http://127\.0\.0\.1:(\d+)(/[^'\s]*)", asked)
            assert url is not None
            assert url.group(1) == str(table.BY_NAME[name].port)
            assert await first_line_asked(name, part, b"HTTP/1.0 200 OK\r\n") == f"GET {url.group(2)} HTTP/1.0"


async def first_line_asked(name: str, part: Kafka | Postgres | Plain, answer: bytes) -> str:
    """What the local health check sends to a server that answers so; it must take the answer for good health."""
    lines: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        assert isinstance(part, Plain)
        values: Mapping[str, str] = {**part.values, "port": str(server.sockets[0].getsockname()[1])}
        assert await Plain(table.BY_NAME[name], values, part.program).healthy()
    return lines[0].decode().strip()


def test_order_is_health_gated(composed: dict[str, Any]) -> None:
    assert composed["quota-enforcer"]["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"},
        "topics": {"condition": "service_completed_successfully"},
    }
    assert composed["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in NAMES:
        assert tuple(composed[name].get("depends_on", {})) == table.BY_NAME[name].after


def test_everything_is_pinned_and_published_on_loopback_only(composed: dict[str, Any]) -> None:
    for row in composed.values():
        assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*|plimsoll:local", row["image"])
        assert all(str(port).startswith("127.0.0.1:") for port in row.get("ports", []))


def test_uv_has_one_version() -> None:
    dockerfile = re.search(r"uv==([\d.]+)", (ROOT / "Dockerfile").read_text())
    bootstrap = re.search(r"UV_VERSION=([\d.]+)", (ROOT / "deploy/local/bootstrap.sh").read_text())
    assert dockerfile is not None
    assert bootstrap is not None
    assert dockerfile.group(1) == bootstrap.group(1)


def test_properties_leave_out_what_is_not_kafkas() -> None:
    assert properties({"CLUSTER_ID": "x", "KAFKA_HEAP_OPTS": "-Xmx1m", "KAFKA_NODE_ID": "1"}) == "node.id=1\n"
