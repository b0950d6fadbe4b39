"""Where does the local stack keep its files and ports, and where does the CLI find them?"""

import contextlib
import fcntl
import hashlib
import json
import os
import random
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from plimsoll_devkit.stack.credentials import Credentials

ROOT = Path(__file__).resolve().parents[5]
LOCAL = ROOT / ".local"
UNPRIVILEGED = "nobody"
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_EPHEMERAL, _FIRST_PORT, _LAST_PORT = 32_768, 10_000, 65_535


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one stack: `data` is its own, `shared` (downloads) serves every stack of this checkout."""

    data: Path
    shared: Path = LOCAL

    @property
    def logs(self) -> Path:
        """One log file per part."""
        return self.data / "logs"

    @property
    def ports_file(self) -> Path:
        """The ports handed out, so that they stay the same over down and up."""
        return self.data / "ports.json"

    @property
    def state_file(self) -> Path:
        """What the supervisor last knew of each part."""
        return self.data / "state.json"

    @property
    def pid_file(self) -> Path:
        """Process id and start time of the supervisor."""
        return self.data / "stack.pid"

    @property
    def credentials(self) -> Credentials:
        """Key and token of its HTTP API."""
        return Credentials(self.data / "auth")

    @property
    def context_file(self) -> Path:
        """What the CLI reads to find the services."""
        return self.data.parent / "context.json"


def write_json(path: Path, value: object) -> None:
    """Replace `path` in one step, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value, indent=2) + "\n")
    draft.replace(path)


def read_json(path: Path) -> dict[str, object]:
    """The object in `path`; empty where the file is missing or broken."""
    with contextlib.suppress(OSError, ValueError):
        value = json.loads(path.read_text())
        if isinstance(value, dict):
            return value
    return {}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` against other processes of this checkout."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def allocate_ports(names: tuple[str, ...], file: Path) -> Mapping[str, int]:
    """A free loopback port for each name: the one in `file` while it is still free, else a new one, written down."""
    known = {name: port for name, port in read_json(file).items() if isinstance(port, int)}
    ports = dict(known)
    for name in names:
        if name not in known or not is_free(known[name]):
            ports[name] = free_port(frozenset(ports.values()))
    write_json(file, ports)
    return {name: ports[name] for name in names}


def free_port(taken: frozenset[int] = frozenset()) -> int:
    """A loopback port nobody listens on, below those the kernel gives to outgoing connections.

    A client that tries a stopped server's port again and again would else one day be given that port as its own,
    connect to itself, and keep the server from starting.
    """
    lowest = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else _USUAL_EPHEMERAL
    candidates = range(_FIRST_PORT, lowest if lowest > 2 * _FIRST_PORT else _LAST_PORT)
    while True:
        port = random.choice(candidates)
        if port not in taken and is_free(port):
            return port


def reachable(folder: Path) -> Path:
    """`folder`, or a stand-in for it that the unprivileged user can reach.

    PostgreSQL refuses to run as root, and `nobody` cannot enter a checkout below a private folder such as /root.
    """
    if os.geteuid() != 0 or all(
        parent.stat().st_mode & 0o001 for parent in folder.absolute().parents if parent.exists()
    ):
        return folder
    name = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]
    stand_in = Path("/var/tmp") / f"plimsoll-{name}"  # noqa: S108  whose owner is checked:
    if os.path.lexists(stand_in) and stand_in.lstat().st_uid != 0:
        raise PermissionError(f"{stand_in} belongs to somebody else; remove it")
    return stand_in
