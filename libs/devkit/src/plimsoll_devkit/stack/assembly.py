"""Which parts, found on this machine and set up, make the stack that was asked for?"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from plimsoll_devkit.stack import containers, external, kafka, parts, prometheus, services, table
from plimsoll_devkit.stack.context import LOCAL, Layout, allocate_ports, read_json
from plimsoll_devkit.stack.kafka import Kafka
from plimsoll_devkit.stack.postgres import Postgres
from plimsoll_devkit.stack.steps import Steps
from plimsoll_devkit.stack.supervisor import Part

INFRASTRUCTURE = ("kafka", "postgres", "valkey")


def addresses(layout: Layout, names: Sequence[str], *, running: bool = False) -> dict[str, str]:
    """`host:port` of each named row that has a port; of a stack that is `running`, as written down."""
    elsewhere = {name: found for name in names if (found := external.address(name))}
    served = tuple(name for name in names if table.BY_NAME[name].port and name not in elsewhere)
    ports = read_json(layout.ports_file) if running else allocate_ports(served, layout.ports_file)
    return {name: f"127.0.0.1:{ports[name]}" for name in served} | elsewhere


def endpoint(layout: Layout, name: str) -> str:
    """What a client of a running part connects with: `host:port`, for the database the superuser's connection."""
    return external.endpoint(name) or containers.endpoint(name, addresses(layout, [name], running=True)[name])


def assemble(layout: Layout, names: Sequence[str], steps: Steps, alerts_faster: int = 1) -> list[Part]:
    """The named rows of the table as local processes; downloads what is missing.

    `alerts_faster` divides the durations in alert rules, so that a demo sees one fire.

    Raises:
        PartMissingError: a program is missing and cannot be installed from here.
    """
    found = addresses(layout, names)
    known = {"bind": "127.0.0.1", "auth": str(layout.credentials.folder), **found}
    layout.credentials.make()
    if "kafka" in names and not external.address("kafka"):
        known |= {"kafka": kafka.addresses(layout)["kafka"]}
    made: list[Part] = []
    for name in names:
        values = {**known, "port": found.get(name, "").rpartition(":")[2]}
        if where := external.endpoint(name):
            made.append(external.External(name, where))
            continue
        match name:
            case "kafka":
                made.append(_kafka(layout, steps))
            case "postgres":
                made.append(Postgres(layout, values, parts.postgres_bin(steps)))
            case "valkey":
                made.append(services.valkey(parts.valkey_server(steps), values))
            case "prometheus":
                made.append(prometheus.part(layout, parts.prometheus(steps), values, alerts_faster))
            case _:
                made.append(services.own(name, values))
    return made


def set_up(steps: Steps, names: Sequence[str] = (*INFRASTRUCTURE, "prometheus")) -> tuple[str, ...]:
    """Download and prepare whatever these parts need; returns those that can be had.

    Raises:
        PartMissingError: one that nothing runs without is missing. Prometheus is left out instead, and that is said.
    """
    wanted = [name for name in names if not external.endpoint(name)]
    if "kafka" in wanted:
        _kafka(Layout(LOCAL / "set-up"), steps)
    if "postgres" in wanted:
        parts.postgres_bin(steps)
    if "valkey" in wanted:
        parts.valkey_server(steps)
    if "prometheus" in wanted:
        try:
            parts.prometheus(steps)
        except parts.PartMissingError as missing:
            steps.say(f"{missing}\n  going on without it")
            return tuple(name for name in names if name != "prometheus")
    return tuple(names)


def _kafka(layout: Layout, steps: Steps) -> Kafka:
    # In a thread of its own: the caller may be inside an event loop, and the training run needs one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_find_kafka, layout, steps).result()


def _find_kafka(layout: Layout, steps: Steps) -> Kafka:
    java = parts.java(steps)
    jars = kafka.fetch_jars(layout.shared, java, steps)
    archive = kafka.class_archive(layout.shared, java, jars, steps)
    return Kafka(layout, kafka.addresses(layout), java, jars, archive)
