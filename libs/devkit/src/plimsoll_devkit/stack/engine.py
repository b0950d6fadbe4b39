"""How does the whole stack run under a Docker engine, where one answers?"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from plimsoll_devkit.stack import containers, health, table
from plimsoll_devkit.stack.compose import port_variable
from plimsoll_devkit.stack.context import ROOT, Layout, allocate_ports, read_json


def chosen(layout: Layout) -> bool:
    """Whether `make up` uses the engine: it answers, has Compose, and PLIMSOLL_STACK does not say `local`."""
    if _marker(layout).exists():
        return True
    if shutil.which("docker") is None or not containers.engine_answers():
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0  # noqa: S607


def up(layout: Layout, names: Sequence[str]) -> int:
    """Build and start; returns Compose's exit code once all are healthy."""
    layout.data.mkdir(parents=True, exist_ok=True)
    _marker(layout).touch()
    layout.credentials.make()
    ports = allocate_ports(tuple(service.name for service in table.SERVICES if service.port), layout.ports_file)
    if code := compose(layout, "up", "--build", "--detach", *names):
        return code
    # Compose's own waiting takes a job that has ended well for a failure: the checks are asked from here instead.
    for name in names:
        if table.BY_NAME[name].health:
            address = f"127.0.0.1:{ports[name]}"
            asyncio.run(health.wait(containers.check(name, address), table.BY_NAME[name].seconds, lambda: True))
    return 0


def down(layout: Layout, *, volumes: bool = False) -> int:
    """Stop; with `volumes` the data goes too."""
    layout.context_file.unlink(missing_ok=True)
    code = compose(layout, "down", *(["--volumes"] if volumes else []))
    _marker(layout).unlink(missing_ok=True)
    return code


def compose(layout: Layout, *arguments: str) -> int:
    """Run one command of Docker Compose on our file."""
    argv = ["docker", "compose", "--file", str(ROOT / "compose.yaml"), *arguments]
    keys = {"PLIMSOLL_JWKS": str(layout.credentials.jwks_file)}
    return subprocess.run(argv, env={**os.environ, **_ports(layout), **keys}, check=False).returncode  # noqa: S603


def _ports(layout: Layout) -> Mapping[str, str]:
    known = read_json(layout.ports_file)
    return {
        port_variable(service.name): str(known[service.name]) for service in table.SERVICES if service.name in known
    }


def _marker(layout: Layout) -> Path:
    return layout.data / "docker"
