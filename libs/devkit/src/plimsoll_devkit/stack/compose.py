"""What does the table of services look like to Docker Compose?"""

from collections.abc import Mapping
from typing import Any

import yaml

from plimsoll_devkit.stack import prometheus, table
from plimsoll_devkit.stack.containers import container_values, inside_port

_HEAD = """\
# Made by `make docs` from libs/devkit/src/plimsoll_devkit/stack/table.py, which the local processes come from too.
# Images are pinned by tag: where this was made, no registry of images could be asked for digests.
# Everything is published on loopback only.
# Tokens are checked with the public key in .local/stack/auth, which `make up` makes beside the private one.
"""
_ROLES = "./deploy/local/postgres/roles.sql:/docker-entrypoint-initdb.d/roles.sql:ro"
_FIRST_PORT = 20_000
_RULES = "./deploy/monitoring:/etc/prometheus/rules:ro"
_KEYS = "${PLIMSOLL_JWKS:-./.local/stack/auth/jwks.json}:/etc/plimsoll/jwks.json:ro"
_PROMETHEUS_CONFIG = {"source": "prometheus", "target": "/etc/prometheus/prometheus.yaml"}
_KAFKA_TEST = "/opt/kafka/bin/kafka-consumer-groups.sh --bootstrap-server kafka:9092 --list"


def render() -> str:
    """The text of compose.yaml."""
    services = {service.name: _service(service) for service in table.SERVICES}
    volumes: dict[str, Any] = {service.name: {} for service in table.SERVICES if service.volume}
    document = {"name": "plimsoll", "services": services, "volumes": volumes, "configs": _configs()}
    return _HEAD + yaml.safe_dump(document, sort_keys=False, width=120)


def port_variable(name: str) -> str:
    """The variable that names a service's port on this machine."""
    return f"PLIMSOLL_PORT_{name.upper().replace('-', '_')}"


def published_port(name: str) -> str:
    """The port on this machine: `make up` passes a free one, Compose alone uses the one written here."""
    return f"${{{port_variable(name)}:-{_FIRST_PORT + inside_port(name)}}}"


def _service(service: table.Service) -> dict[str, Any]:
    port = inside_port(service.name)
    values = {**container_values(service), "published_port": published_port(service.name)}
    row: dict[str, Any] = {
        "image": service.image,
        "build": "." if service.image == table.OWN_IMAGE else None,
        "command": _command(service, values),
        "environment": table.environment(service, values),
        "ports": [f"127.0.0.1:{published_port(service.name)}:{port}"] if service.port else None,
        "volumes": _mounts(service),
        "configs": [_PROMETHEUS_CONFIG] if service.name == "prometheus" else None,
        "healthcheck": healthcheck(service, port) if service.health else None,
        "depends_on": {name: {"condition": _condition(name)} for name in service.after},
        "restart": "no" if service.kind == "job" else "unless-stopped",
    }
    return {key: value for key, value in row.items() if value}


def _command(service: table.Service, values: Mapping[str, str]) -> list[str]:
    words = list(table.command(service, values))
    # This image's entry point is the program itself.
    return words[1:] if service.name == "prometheus" else words


def _mounts(service: table.Service) -> list[str]:
    own = [f"{service.name}:{service.volume}"] if service.volume else []
    return own + {"postgres": [_ROLES], "prometheus": [_RULES], "quota-enforcer": [_KEYS]}.get(service.name, [])


def healthcheck(service: table.Service, port: int) -> dict[str, Any]:
    """The row's health check, asked from inside its container."""
    match service.health:
        case table.Health(probe="kafka"):
            test = ["CMD-SHELL", f"{_KAFKA_TEST} >/dev/null"]
        case table.Health(probe="postgres"):
            # Over TCP: while it initialises itself, the image's server listens on a socket only.
            test = ["CMD-SHELL", f"psql -h 127.0.0.1 -U postgres -d {table.DATABASE} -c 'SELECT 1'"]
        case table.Health(probe="valkey"):
            test = ["CMD", "valkey-cli", "ping"]
        case table.Health(path=path) if service.image == table.OWN_IMAGE:
            ask = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}{path}', timeout=5)"
            test = ["CMD", "python", "-c", ask]
        case table.Health(path=path):
            test = ["CMD", "wget", "-q", "-O", "/dev/null", f"http://127.0.0.1:{port}{path}"]
        case _:
            raise ValueError(f"{service.name} has no health check")
    # Often while it starts, seldom later: Kafka's check starts a Java of its own.
    often = {"start_period": f"{service.health.seconds}s", "start_interval": "1s"}
    return {"test": test, "interval": "10s", "timeout": "10s", "retries": 3, **often}


def _condition(name: str) -> str:
    return "service_completed_successfully" if table.BY_NAME[name].kind == "job" else "service_healthy"


def _configs() -> dict[str, Any]:
    targets = {service.name: f"{service.name}:{inside_port(service.name)}" for service in prometheus.scraped()}
    return {"prometheus": {"content": prometheus.configuration(targets, ["/etc/prometheus/rules/*.yaml"])}}
