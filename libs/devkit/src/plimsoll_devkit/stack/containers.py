"""How do tests get their infrastructure from a Docker engine, where one answers?"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from plimsoll_devkit.stack import health, table
from plimsoll_devkit.stack.context import free_port

_KAFKA_OUTSIDE = 19092


def engine_answers() -> bool:
    """Whether a Docker engine can be used; PLIMSOLL_STACK=local says not to ask."""
    if os.environ.get("PLIMSOLL_STACK") == "local":
        return False
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415  slow to import

    try:
        return bool(DockerClient(timeout=5).client.ping())
    except Exception:  # noqa: BLE001  whatever is wrong with it, it is no engine for us
        return False


@contextmanager
def running(names: Sequence[str]) -> Iterator[dict[str, str]]:
    """The named rows of the table as containers on loopback; yields what `Endpoints` wants of each."""
    with ExitStack() as cleanup:
        yield {name: cleanup.enter_context(_container(table.BY_NAME[name])) for name in names}


@contextmanager
def _container(service: table.Service) -> Iterator[str]:
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415  as above

    # Known before the start: a broker tells its clients its own published address.
    port = free_port()
    inside = inside_port(service.name)
    values = {**container_values(service), "published_port": str(port)}
    container = DockerContainer(service.image)
    container.with_bind_ports(inside, ("127.0.0.1", port))  # type: ignore[arg-type]  # the engine takes (address, port)
    if service.command:
        container = container.with_command(list(table.command(service, values)))
    for name, value in table.environment(service, values).items():
        container = container.with_env(name, value)
    with container:
        address = f"127.0.0.1:{port}"
        asyncio.run(health.wait(check(service.name, address), 60.0, lambda: True))
        yield endpoint(service.name, address)


def inside_port(name: str) -> int:
    """The port that is published; Kafka has one for its clients outside, beside the one for other containers."""
    return _KAFKA_OUTSIDE if name == "kafka" else table.BY_NAME[name].port


def container_values(service: table.Service) -> Mapping[str, str]:
    """The values of a row's placeholders inside a container."""
    return {
        "bind": "0.0.0.0",  # noqa: S104  inside a container; it is published on loopback
        "port": str(inside_port(service.name)),
        "internal_port": "9092",
        "controller_port": "9093",
        "kafka": "kafka:9092",
        "postgres": "postgres:5432",
        "valkey": "valkey:6379",
        "data": service.volume,
        "config": "/etc/prometheus",
        "auth": "/etc/plimsoll",
    }


def endpoint(name: str, address: str) -> str:
    """What a client of `name` connects with."""
    return {"postgres": f"postgresql://postgres@{address}/postgres", "valkey": f"redis://{address}"}.get(name, address)


def check(name: str, address: str) -> Callable[[], Awaitable[bool]]:
    """The row's health check, asked from outside its container."""
    match table.BY_NAME[name].health:
        case table.Health(probe="kafka"):
            return lambda: health.kafka(address)
        case table.Health(probe="postgres"):
            return lambda: health.postgres(endpoint(name, address))
        case table.Health(probe="valkey"):
            return lambda: health.valkey(address)
        case table.Health(path=path):
            return lambda: health.http(address, path)
        case _:
            raise ValueError(f"{name} has no health check")
