"""What will Docker be asked to honour? The footprint of a compose file, rendered as ``docker compose config`` does.

Amounts are read as Docker reads them, and what Docker refuses is refused. Where the file does not say how much will
run, more is counted rather than less, and a note says so. ``docs/footprints.md`` is the whole list.
"""

import re
from dataclasses import dataclass
from typing import Final

from plimsoll_contracts import codes
from plimsoll_contracts.quantities import MAX_AMOUNT
from plimsoll_quota_enforcer.domain.compose_service import (
    UNRENDERED,
    ComposeRefused,
    Notes,
    Service,
    ServiceReader,
    invalid,
    named,
)
from plimsoll_quota_enforcer.domain.document import DocumentRefused, Mapping, Node, read_document, shown
from plimsoll_quota_enforcer.domain.model import Footprint, Replica

__all__ = ["MAX_REPLICAS", "MAX_SERVICES", "ComposeFootprint", "ComposeRefused", "read_compose"]

MAX_SERVICES: Final = 10_000
MAX_REPLICAS: Final = 100_000
"""Most replicas in one file: each costs time to place."""
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class ComposeFootprint:
    """What a compose file takes: raw, before any multiplier."""

    footprint: Footprint
    replicas: tuple[Replica, ...]
    """Of each service that runs, in the file's order."""
    notes: tuple[str, ...]
    """What the file says that is not counted, or is counted in a way somebody may not expect."""


def read_compose(text: str, *, require_resources: bool) -> ComposeFootprint:
    """Read the footprint of a rendered compose file.

    A limit without a reservation reserves the limit; a reservation without a limit counts on both bases. cpu finer
    than a millicore is rounded up, since both amounts are charged. vapps is 1 if anything runs, else 0: the
    deployment is one instance of its app, however many containers that takes. Disk is never read from the file.

    Args:
        text: the file, at most 256 KiB.
        require_resources: refuse a service that runs and says nothing of cpu, or nothing of memory.

    Raises:
        ComposeRefused: COMPOSE_INVALID; INVALID_BYTES, INVALID_CPU or INVALID_COUNT for a value;
            RESOURCES_REQUIRED; AMOUNT_OVERFLOW for a sum.
    """
    try:
        top = read_document(text)
    except DocumentRefused as error:
        raise invalid("the file", str(error)) from None
    notes = Notes()
    services = [ServiceReader(name, node, notes).read() for name, node in _services(top).items()]
    running = [service for service in services if service.count]
    _demand_resources(running, notes, required=require_resources)
    count = sum(service.count for service in running)
    if count > MAX_REPLICAS:
        raise invalid("services", f"{count} replicas in all, at most {MAX_REPLICAS} are read")
    footprint = Footprint(
        _total("cpu", [(one.count, one.cpu_reserved) for one in running]),
        _total("cpu", [(one.count, one.cpu_limit) for one in running]),
        _total("memory", [(one.count, one.memory_reserved) for one in running]),
        _total("memory", [(one.count, one.memory_limit) for one in running]),
        vapps=1 if running else 0,
    )
    replicas = tuple(Replica(one.name, one.count, one.cpu_reserved, one.memory_reserved) for one in running)
    told = notes.told() if running else (*notes.told(), "nothing runs: every service has 0 replicas, or there is none")
    return ComposeFootprint(footprint, replicas, told)


def _total(what: str, amounts: list[tuple[int, int]]) -> int:
    total = sum(count * amount for count, amount in amounts)
    if total > MAX_AMOUNT:
        raise ComposeRefused(codes.AMOUNT_OVERFLOW, f"all services together take more {what} than {MAX_AMOUNT}")
    return total


def _demand_resources(running: list[Service], notes: Notes, *, required: bool) -> None:
    without = {
        "cpu": [service.name for service in running if not service.cpu_limit],
        "memory": [service.name for service in running if not service.memory_limit],
    }
    lacking = {what: names for what, names in without.items() if names}
    if required and lacking:
        told = (f"neither a limit nor a reservation of {what}: {named(names)}" for what, names in lacking.items())
        raise ComposeRefused(codes.RESOURCES_REQUIRED, "; ".join(told))
    for what, names in lacking.items():
        notes.by_text[f"charges no {what}, having neither a limit nor a reservation"] = names


def _services(top: Node) -> dict[str, Node]:
    if not isinstance(top, Mapping):
        raise invalid("the file", "it is no mapping")
    if "include" in top.entries:
        raise invalid("include", UNRENDERED)
    services = top.entries.get("services")
    if not isinstance(services, Mapping):
        raise invalid("services", "there is no mapping of services; send what docker compose config prints")
    if len(services.entries) > MAX_SERVICES:
        raise invalid("services", f"{len(services.entries)} of them, at most {MAX_SERVICES} are read")
    for name in services.entries:
        if not _NAME.fullmatch(name):
            raise invalid("services", f"{shown(name)} is no name of a service")
    return services.entries
