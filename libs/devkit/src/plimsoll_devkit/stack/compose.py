"""What does the table of services look like to Docker Compose?"""

from typing import Any

import yaml

from plimsoll_devkit.stack import prometheus, table
from plimsoll_devkit.stack.containers import container_values, inside_port

_HEAD = """\
# Made by `make docs` from libs/devkit/src/plimsoll_devkit/stack/table.py, which the local processes come from too.
# Images are pinned by tag: where this was made, no registry of images could be asked for digests.
# Everything is published on loopback only.
"""
_ROLES = "./deploy/local/postgres/roles.sql:/docker-entrypoint-initdb.d/roles.sql:ro"
_KAFKA_TEST = "/opt/kafka/bin/kafka-consumer-groups.sh --bootstrap-server kafka:9092 --list"


def render() -> str:
    """The text of compose.yaml."""
    services = {service.name: _service(service) for service in table.SERVICES}
    volumes = {service.name: {} for service in table.SERVICES if service.volume}
    document = {"name": "plimsoll", "services": services, "volumes": volumes, "configs": _configs()}
    return _HEAD + yaml.safe_dump(document, sort_keys=False, width=120)


def _service(service: table.Service) -> dict[str, Any]:
    port = inside_port(service.name)
    values = {**container_values(service), "published_port": str(port)}
    row: dict[str, Any] = {"image": service.image}
    if service.image == table.OWN_IMAGE:
        row["build"] = "."
    if service.command:
        row["command"] = list(table.command(service, values))
    if service.name == "prometheus":
        # The image's entry point is the program itself.
        row["command"] = row["command"][1:]
        row["configs"] = [{"source": "prometheus", "target": "/etc/prometheus/prometheus.yaml"}]
    if service.environment:
        row["environment"] = table.environment(service, values)
    if service.port:
        row["ports"] = [f"127.0.0.1:{port}:{port}"]
    mounts = [f"{service.name}:{service.volume}"] if service.volume else []
    if service.name == "postgres":
        mounts.append(_ROLES)
    if service.name == "prometheus":
        mounts.append("./deploy/monitoring:/etc/prometheus/rules:ro")
    if mounts:
        row["volumes"] = mounts
    if service.health:
        row["healthcheck"] = healthcheck(service, port)
    if service.after:
        row["depends_on"] = {name: {"condition": _condition(name)} for name in service.after}
    row["restart"] = "no" if service.kind == "job" else "unless-stopped"
    return row


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
    seconds = service.health.seconds
    return {"test": test, "interval": "1s", "timeout": "5s", "start_period": f"{seconds}s", "retries": 10}


def _condition(name: str) -> str:
    return "service_completed_successfully" if table.BY_NAME[name].kind == "job" else "service_healthy"


def _configs() -> dict[str, Any]:
    targets = {service.name: f"{service.name}:{inside_port(service.name)}" for service in prometheus.scraped()}
    return {"prometheus": {"content": prometheus.configuration(targets, ["/etc/prometheus/rules/*.yaml"])}}
