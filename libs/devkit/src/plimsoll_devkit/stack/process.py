"""How is one child process started, watched and stopped, so that it never outlives its parent?"""

import asyncio
import ctypes
import os
import pwd
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_MAX_LOG_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Launch:
    """One command to run. `grace` is in seconds: how long a stop may take before SIGKILL."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    grace: float = 15.0


def start_time(pid: int) -> int | None:
    """Start of process `pid` in clock ticks since boot, None where there is none (or only its zombie)."""
    try:
        # The command name may hold spaces and brackets: fields count from the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def die_with_parent(death_signal: signal.Signals) -> Callable[[], None]:
    """A function for the child, between fork and exec: the kernel then signals it when its parent thread ends."""
    parent = os.getpid()

    def arrange() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(death_signal))
        if os.getppid() != parent:  # the parent died before the line above
            os._exit(1)

    return arrange


async def spawn(launch: Launch, log: Path) -> asyncio.subprocess.Process:
    """Start `launch` in a session of its own, its output appended to `log`."""
    _make_room(log)
    identity: dict[str, Any] = {}
    if launch.user is not None:
        identity = {"user": launch.user, "group": pwd.getpwnam(launch.user).pw_gid, "extra_groups": []}
    with log.open("ab") as out:
        return await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            # Python parts keep their compiled files, so that they start quickly the next time.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **launch.environment},
            cwd="/",
            start_new_session=True,
            preexec_fn=die_with_parent(launch.death_signal),
            **identity,
        )


def _make_room(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


async def stop(process: asyncio.subprocess.Process, launch: Launch) -> None:
    """Ask the process to end, then make it; returns when it has ended."""
    if process.returncode is not None:
        return
    signal_group(process.pid, signal.SIGCONT)
    signal_process(process.pid, launch.stop_signal)
    try:
        await asyncio.wait_for(process.wait(), launch.grace)
    except TimeoutError:
        signal_group(process.pid, signal.SIGKILL)
        await process.wait()


def signal_process(pid: int, number: signal.Signals) -> None:
    """Signal one process of ours; it may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the session leader `pid` and whatever it started in its group."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def descendants(pid: int) -> list[int]:
    """Every living child of `pid`, and theirs."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found = list(parents.get(pid, []))
    for child in found:
        found += parents.get(child, [])
    return found


def tail(log: Path, lines: int = 30) -> str:
    """The last lines of a log file."""
    if not log.exists():
        return "(no output)"
    with log.open(errors="replace") as handle:
        return "".join(deque(handle, maxlen=lines)).rstrip() or "(no output)"
