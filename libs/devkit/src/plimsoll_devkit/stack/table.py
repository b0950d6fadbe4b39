"""Which services make up Plimsoll on one machine, and with which command, environment and health check does each run?

`compose.yaml` and the local processes are both made from this table. Placeholders in braces stand for what differs
between the two: addresses, ports, and whether to listen on loopback (processes) or in a container.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from plimsoll_devkit.stack.credentials import Credentials

Kind = Literal["infrastructure", "job", "service"]
Probe = Literal["kafka", "postgres", "valkey", "http"]


@dataclass(frozen=True, slots=True)
class Health:
    """When is a service ready? `seconds` is how long it may take from its start; `path` is for HTTP only."""

    probe: Probe
    path: str = ""
    seconds: int = 60


@dataclass(frozen=True, slots=True)
class Service:
    """One row. `command` is what runs; empty means the image's own entry point, which the local part spells out."""

    name: str
    kind: Kind
    purpose: str
    image: str
    port: int = 0
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    health: Health | None = None
    after: tuple[str, ...] = ()
    volume: str = ""

    @property
    def seconds(self) -> float:
        """How long it may take to be ready, or for a job to end."""
        return float(self.health.seconds if self.health else _JOB_SECONDS)


_JOB_SECONDS = 60
OWN_IMAGE = "plimsoll:local"
DATABASE = "plimsoll"
OWNER = "plimsoll_owner"
LOGIN_ROLES = (OWNER, "quota_enforcer")


def _options(*settings: str) -> tuple[str, ...]:
    """PostgreSQL's way of giving settings on the command line."""
    return tuple(word for setting in settings for word in ("-c", setting))


_KAFKA = {
    "CLUSTER_ID": "UGxpbXNvbGwtbG9jYWwxMA",
    "KAFKA_HEAP_OPTS": "-Xms128m -Xmx384m",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_NODE_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:{controller_port}",
    "KAFKA_LISTENERS": "INTERNAL://{bind}:{internal_port},EXTERNAL://{bind}:{port},CONTROLLER://127.0.0.1:{controller_port}",
    "KAFKA_ADVERTISED_LISTENERS": "INTERNAL://{kafka},EXTERNAL://127.0.0.1:{published_port}",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "KAFKA_LOG_DIRS": "{data}",
    # A mistyped topic is an error, not a new topic.
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
    # One machine: no reason to wait three seconds for more members.
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    # After a crash the broker waits for its former self's session to end: nine seconds by default.
    "KAFKA_BROKER_SESSION_TIMEOUT_MS": "3000",
    "KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "500",
    # The defaults of 50 partitions make the first group slow.
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "4",
    "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "4",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS": "4",
    # The default of 128 MiB is allocated at start.
    "KAFKA_LOG_CLEANER_DEDUPE_BUFFER_SIZE": "2097152",
    "KAFKA_LOG_CLEANER_THREADS": "1",
    "KAFKA_NUM_NETWORK_THREADS": "2",
    "KAFKA_NUM_IO_THREADS": "2",
}

_SERVICE = {
    "PLIMSOLL_KAFKA_BOOTSTRAP": "{kafka}",
    "PLIMSOLL_POSTGRES_DSN": f"postgresql://quota_enforcer@{{postgres}}/{DATABASE}",
    "PLIMSOLL_HTTP_HOST": "{bind}",
    "PLIMSOLL_HTTP_PORT": "{port}",
    **Credentials(Path("{auth}")).settings(),
    "PLIMSOLL_INSTANCE": "0",
    "PLIMSOLL_ENTITLEMENTS": "expected",
    "PLIMSOLL_LOG_FORMAT": "console",
}

SERVICES: tuple[Service, ...] = (
    Service(
        name="kafka",
        kind="infrastructure",
        purpose="the topics between callers and services",
        image="apache/kafka:4.3.1",
        port=9092,
        environment=_KAFKA,
        health=Health("kafka"),
        volume="/var/lib/kafka/data",
    ),
    Service(
        name="postgres",
        kind="infrastructure",
        purpose="the state and the offsets of every service",
        image="postgres:17.10",
        port=5432,
        command=(
            "postgres",
            *_options("max_connections=200", "shared_buffers=128MB", "fsync=on"),
            *_options("synchronous_commit=on", "jit=off", "log_lock_waits=on"),
        ),
        environment={
            "POSTGRES_DB": DATABASE,
            "POSTGRES_USER": "postgres",
            # Published on loopback only; a production database has passwords (see deploy/).
            "POSTGRES_HOST_AUTH_METHOD": "trust",
        },
        health=Health("postgres"),
        volume="/var/lib/postgresql/data",
    ),
    Service(
        name="valkey",
        kind="infrastructure",
        purpose="pre-filters that may be lost at any time",
        image="valkey/valkey:9.1.2",
        port=6379,
        command=("valkey-server", "--save", "", "--appendonly", "no", "--maxmemory", "64mb"),
        health=Health("valkey"),
    ),
    Service(
        name="prometheus",
        kind="infrastructure",
        purpose="scrapes the services and evaluates the alert rules",
        image="prom/prometheus:v3.5.0",
        port=9090,
        command=(
            "prometheus",
            "--config.file={config}/prometheus.yaml",
            "--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=2d",
            "--web.listen-address={bind}:{port}",
        ),
        health=Health("http", "/-/ready"),
        volume="/prometheus",
    ),
    Service(
        name="migrate",
        kind="job",
        purpose="brings the database schema up to date",
        image=OWN_IMAGE,
        command=("python", "-m", "plimsoll_quota_enforcer", "migrate"),
        environment={"PLIMSOLL_MIGRATE_DSN": f"postgresql://{OWNER}@{{postgres}}/{DATABASE}"},
        after=("postgres",),
    ),
    Service(
        name="topics",
        kind="job",
        purpose="creates and checks the topics of the catalogue",
        image=OWN_IMAGE,
        command=("python", "-m", "plimsoll_streams", "topics"),
        environment={"PLIMSOLL_KAFKA_BOOTSTRAP": "{kafka}"},
        after=("kafka",),
    ),
    Service(
        name="quota-enforcer",
        kind="service",
        purpose="decides requests; keeps limits, charges, holds and usage",
        image=OWN_IMAGE,
        port=8080,
        command=("python", "-m", "plimsoll_quota_enforcer"),
        environment=_SERVICE,
        health=Health("http", "/internal/ready", seconds=30),
        after=("migrate", "topics"),
    ),
)

BY_NAME: Mapping[str, Service] = MappingProxyType({service.name: service for service in SERVICES})


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with each `{placeholder}` replaced; one without a value raises KeyError."""
    return text.format_map(values)


def environment(service: Service, values: Mapping[str, str]) -> dict[str, str]:
    """The service's environment with its placeholders filled in."""
    return {name: fill(value, values) for name, value in service.environment.items()}


def command(service: Service, values: Mapping[str, str]) -> tuple[str, ...]:
    """The service's command with its placeholders filled in."""
    return tuple(fill(word, values) for word in service.command)
