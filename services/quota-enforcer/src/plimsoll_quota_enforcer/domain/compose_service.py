"""What does one service of a compose file take, and what is to be said of it?"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_quota_enforcer.domain.docker_amounts import read_bytes, read_count, read_cpus
from plimsoll_quota_enforcer.domain.document import Mapping, Node, Scalar, Sequence, shown

_NAMED_IN_A_NOTE = 8

UNRENDERED = "the file is not rendered; send what docker compose config prints"
_NO_SUCH_KEY = "no such key here, so it would bound nothing"

_IGNORED = frozenset(
    {
        *("blkio_config", "cpu_count", "cpu_percent", "cpu_period", "cpu_quota", "cpu_rt_period", "cpu_rt_runtime"),
        *("cpu_shares", "cpuset", "devices", "gpus", "mem_swappiness", "memswap_limit", "models", "pids_limit"),
        *("provider", "shm_size", "storage_opt", "tmpfs"),
    }
)
"""What bounds or takes something at run time, and reserves neither cpu, memory nor disk."""
_MISPLACED = re.compile(r"(?!(?:cpus|mem_limit|mem_reservation)$)(?:cpu|mem).*|resources|limits|reservations|replicas")
_IN_DEPLOY = frozenset(
    {
        *("endpoint_mode", "labels", "mode", "placement", "replicas", "resources", "restart_policy"),
        *("rollback_config", "update_config"),
    }
)
_IN_RESOURCES = frozenset({"limits", "reservations"})
_SHOUTED = re.compile(r"(?=.*[A-Z])(?i:cpu.*|mem.*|deploy|scale)")
"""Written otherwise than Docker knows it, it would bound nothing, and nobody would see."""
_IN_AMOUNTS = frozenset({"cpus", "memory", "pids", "devices", "generic_resources"})
_ONE_PER_NODE, _JOBS = frozenset({"global", "global-job"}), frozenset({"replicated-job", "global-job"})
_MODES = _ONE_PER_NODE | _JOBS | {"replicated"}

_Parse = Callable[[Scalar], int | None]
_CODE_OF: dict[_Parse, Code] = {
    read_bytes: codes.INVALID_BYTES,
    read_count: codes.INVALID_COUNT,
    read_cpus: codes.INVALID_CPU,
}


class ComposeRefused(ValueError):
    """A compose file has no footprint: the code that the caller is told, and a detail that names service and key."""

    def __init__(self, code: Code, detail: str) -> None:
        """Keep both."""
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Service:
    """One replica's amounts, 0 where nothing is said: 0 is no limit to Docker."""

    name: str
    count: int
    cpu_reserved: int
    cpu_limit: int
    memory_reserved: int
    memory_limit: int


@dataclass(frozen=True, slots=True)
class Notes:
    """Services by what is said of them, so that a thousand of them take one note."""

    by_text: dict[str, list[str]] = field(default_factory=dict)

    def add(self, text: str, service: str) -> None:
        """Say something of one more service."""
        self.by_text.setdefault(text, []).append(service)

    def told(self) -> tuple[str, ...]:
        """Return the notes, each with the services that it is about."""
        return tuple(f"{text}: {named(services)}" for text, services in self.by_text.items())


def invalid(where: str, why: str) -> ComposeRefused:
    """Refuse what Docker would not take, or what nobody can count."""
    return ComposeRefused(codes.COMPOSE_INVALID, f"{where}: {why}")


def _bare(name: str) -> str:
    return shown(name)[1:-1]


def named(services: list[str]) -> str:
    """Name the first services, and say how many more there are."""
    more = len(services) - _NAMED_IN_A_NOTE
    names = ", ".join(map(_bare, services[:_NAMED_IN_A_NOTE]))
    return f"{names} and {more} more" if more > 0 else names


class ServiceReader:
    """Reads one service, and says of it what is not counted."""

    def __init__(self, name: str, node: Node, notes: Notes) -> None:
        self._name, self._notes = name, notes
        self._where = where = f"services.{_bare(name)}"
        if not isinstance(node, Mapping):
            raise invalid(where, "it is no mapping")
        self._own = node.entries
        self._deploy = _section(self._own, "deploy", where, _IN_DEPLOY)
        resources = _section(self._deploy, "resources", f"{where}.deploy", _IN_RESOURCES)
        self._in = {
            kind: _section(resources, kind, f"{where}.deploy.resources", _IN_AMOUNTS)
            for kind in ("limits", "reservations")
        }

    def read(self) -> Service:
        """Return how many replicas run, and what each takes.

        Raises:
            ComposeRefused: with the code, and a detail that names the key.
        """
        self._look_over()
        cpu = self._amount(
            "cpu", self._value("reservations", "cpus", read_cpus), self._agreed("cpus", "limits", "cpus", read_cpus)
        )
        memory = self._amount(
            "memory",
            self._agreed("mem_reservation", "reservations", "memory", read_bytes),
            self._agreed("mem_limit", "limits", "memory", read_bytes),
        )
        return Service(self._name, self._count(), *cpu, *memory)

    def _look_over(self) -> None:
        """Refuse what Docker would not take or would silently bound nothing, and note what is not counted."""
        for key, node in self._own.items():
            if key == "extends":
                raise invalid(f"{self._where}.extends", UNRENDERED)
            if key in _IGNORED:
                self._ignore(key, node)
            elif _MISPLACED.fullmatch(key) or _SHOUTED.fullmatch(key):
                raise invalid(f"{self._where}.{_bare(key)}", _NO_SUCH_KEY)
        for kind, section in self._in.items():
            for key, node in section.items():
                if key in _IN_AMOUNTS and key not in {"cpus", "memory"}:
                    self._ignore(f"deploy.resources.{kind}.{key}", node)
        if not _absent(self._own.get("profiles")):
            self._notes.add("counted, although its profiles may leave it out", self._name)
        update = self._deploy.get("update_config")
        order = update.entries.get("order") if isinstance(update, Mapping) else None
        if isinstance(order, Scalar) and order.text == "start-first":
            self._notes.add("runs more replicas during an update (start-first) than are counted", self._name)

    def _ignore(self, key: str, node: Node) -> None:
        if not _absent(node):
            self._notes.add(f"{key} is not counted", self._name)

    def _count(self) -> int:
        """Return how many replicas run at once."""
        scale = _read(self._own, "scale", self._where, read_count)
        replicas = _read(self._deploy, "replicas", f"{self._where}.deploy", read_count)
        if scale is not None and replicas is not None and scale != replicas:
            raise invalid(self._where, f"scale is {scale} and deploy.replicas {replicas}; Docker takes only equal ones")
        told = scale if replicas is None else replicas
        node = self._deploy.get("mode")
        mode = "replicated" if _absent(node) else node.text if isinstance(node, Scalar) else ""
        if mode not in _MODES:
            raise invalid(f"{self._where}.deploy.mode", f"it is none of {', '.join(sorted(_MODES))}")
        if mode in _ONE_PER_NODE:
            if told is not None:
                raise invalid(f"{self._where}.deploy.mode", f"{mode} takes no number of replicas")
            self._notes.add("counted once, although its mode runs one on each eligible node", self._name)
        if mode in _JOBS:
            self._notes.add("counted for as long as it is deployed, although it is a job", self._name)
        return 1 if told is None else told

    def _amount(self, what: str, reserved: int | None, limit: int | None) -> tuple[int, int]:
        """Return what one replica reserves and may take, each filled in from the other."""
        if reserved and limit and reserved > limit:
            self._notes.add(f"reserves more {what} than its limit, so the reservation counts on both bases", self._name)
            return reserved, reserved
        return reserved or limit or 0, limit or reserved or 0

    def _value(self, kind: str, key: str, parse: _Parse) -> int | None:
        return _read(self._in[kind], key, f"{self._where}.deploy.resources.{kind}", parse)

    def _agreed(self, older: str, kind: str, key: str, parse: _Parse) -> int | None:
        """Return an amount that may be written in two places, where Docker takes only equal ones."""
        old, new = _read(self._own, older, self._where, parse), self._value(kind, key, parse)
        if old and new and old != new:
            raise invalid(
                self._where, f"{older} and deploy.resources.{kind}.{key} differ; Docker takes only equal ones"
            )
        return new or old


def _absent(node: Node | None) -> bool:
    """Tell whether a key is missing, null or an empty list: all the same to Docker."""
    if isinstance(node, Scalar):
        return node.is_null
    return node is None or (isinstance(node, Sequence) and not node.items)


def _section(parent: dict[str, Node], key: str, where: str, known: frozenset[str]) -> dict[str, Node]:
    """Return a mapping below, empty where it is absent. Keys that Docker does not know there are refused."""
    node = parent.get(key)
    if node is None or (isinstance(node, Scalar) and node.is_null):
        return {}
    if not isinstance(node, Mapping):
        raise invalid(f"{where}.{key}", "it is no mapping")
    for name in node.entries:
        if name not in known and not name.startswith("x-"):
            raise invalid(f"{where}.{key}.{_bare(name)}", _NO_SUCH_KEY)
    return node.entries


def _read(parent: dict[str, Node], key: str, where: str, parse: _Parse) -> int | None:
    """Return a value, None where it is absent."""
    node = parent.get(key)
    if node is None or (isinstance(node, Scalar) and node.is_null):
        return None
    if not isinstance(node, Scalar):
        raise invalid(f"{where}.{key}", "it is no single value")
    value = parse(node)
    if value is None:
        raise ComposeRefused(_CODE_OF[parse], f"{where}.{key}: Docker would not take {shown(node.text)}")
    return value
