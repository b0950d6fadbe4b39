"""How do tests get their infrastructure from a Docker engine, where one answers?"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from plimsoll_devkit.stack import health, table
from plimsoll_devkit.stack.context import is_free


def engine_answers() -> bool:
    """Whether a Docker engine can be used; PLIMSOLL_STACK=local says not to ask."""
    if os.environ.get("PLIMSOLL_STACK") == "local":
        return False
    import docker  # noqa: PLC0415  a test-only package, and slow to import

    try:
        return bool(docker.from_env(timeout=5).ping())
    except docker.errors.DockerException:
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
    port = _free_port()
    inside = 19092 if service.name == "kafka" else service.port
    values = {**container_values(service), "published_port": str(port)}
    container = DockerContainer(service.image).with_bind_ports(inside, ("127.0.0.1", port))
    if service.command:
        container = container.with_command(list(table.command(service, values)))
    for name, value in table.environment(service, values).items():
        container = container.with_env(name, value)
    with container:
        address = f"127.0.0.1:{port}"
        asyncio.run(health.wait(_check(service.name, address), 60.0, lambda: True))
        yield endpoint(service.name, address)


def container_values(service: table.Service) -> Mapping[str, str]:
    """The values of a row's placeholders inside a container."""
    return {
        "bind": "0.0.0.0",  # noqa: S104  inside a container; it is published on loopback
        "port": "19092" if service.name == "kafka" else str(service.port),
        "internal_port": "9092",
        "controller_port": "9093",
        "kafka": "kafka:9092",
        "postgres": "postgres:5432",
        "valkey": "valkey:6379",
        "data": service.volume,
        "config": "/etc/prometheus",
    }


def endpoint(name: str, address: str) -> str:
    """What a client of `name` connects with."""
    return {"postgres": f"postgresql://postgres@{address}/postgres", "valkey": f"redis://{address}"}.get(name, address)


def _check(name: str, address: str) -> Callable[[], Awaitable[bool]]:
    match name:
        case "kafka":
            return lambda: health.kafka(address)
        case "postgres":
            return lambda: health.postgres(endpoint(name, address))
        case _:
            return lambda: health.valkey(address)


def _free_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    assert is_free(port)  # noqa: S101
    return port
