"""How is a stack left running in the background, found again and ended?"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from plimsoll_devkit.stack import assembly, table
from plimsoll_devkit.stack.context import Layout, read_json, write_json
from plimsoll_devkit.stack.process import signal_process, start_time, tail
from plimsoll_devkit.stack.steps import Steps
from plimsoll_devkit.stack.supervisor import PartFailedError, Supervisor

_POLL_SECONDS = 0.05
_DOWN_SECONDS = 60.0


def running(layout: Layout) -> int | None:
    """The supervisor's process id; None where it does not run, also when its number went to another process."""
    known = read_json(layout.pid_file)
    pid, started = known.get("pid"), known.get("started")
    return pid if isinstance(pid, int) and started is not None and start_time(pid) == started else None


def launch(layout: Layout, names: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start the supervisor of these parts in a session of its own."""
    layout.logs.mkdir(parents=True, exist_ok=True)
    layout.state_file.unlink(missing_ok=True)
    argv = [
        sys.executable,
        "-m",
        "plimsoll_devkit.stack",
        "--data",
        str(layout.data),
        "supervise",
        "--only",
        ",".join(names),
    ]
    with (layout.logs / "supervisor.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def wait_until_ready(layout: Layout, process: "subprocess.Popen[bytes]", steps: Steps) -> str:
    """Follow a launched supervisor until all parts are ready; returns what went wrong, empty when nothing did."""
    with steps.step("parts") as note:
        while True:
            state = read_json(layout.state_file)
            parts = state.get("parts")
            phases = {name: one["phase"] for name, one in parts.items()} if isinstance(parts, dict) else {}
            note(", ".join(f"{name} {phase}" for name, phase in phases.items()))
            if error := state.get("error"):
                return str(error)
            if state.get("ready"):
                return ""
            if process.poll() is not None:
                return f"the supervisor ended with code {process.returncode}:\n{tail(layout.logs / 'supervisor.log')}"
            time.sleep(_POLL_SECONDS)


def abandon(layout: Layout, process: "subprocess.Popen[bytes]") -> None:
    """Stop a supervisor that was launched here and may not have written down yet that it runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is impatient presses twice, and would leave it running
    process.terminate()
    try:
        process.wait(_DOWN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # its children die with it
        process.wait()
    layout.context_file.unlink(missing_ok=True)


def end(layout: Layout) -> bool:
    """Stop the supervisor and with it every part; False where none ran."""
    pid = running(layout)
    layout.context_file.unlink(missing_ok=True)
    if pid is None:
        return False
    signal_process(pid, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while running(layout) is not None:
        if time.monotonic() > deadline:
            # Its children die with it.
            signal_process(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    return True


async def supervise(layout: Layout, names: Sequence[str]) -> int:
    """Run these parts until told to stop; the exit code is that of a command."""
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    write_json(layout.pid_file, {"pid": os.getpid(), "started": start_time(os.getpid())})

    def publish(parts: Mapping[str, dict[str, object]], *, ready: bool = False, error: str = "") -> None:
        write_json(layout.state_file, {"parts": parts, "ready": ready, "error": error})

    is_up = False
    parts = await asyncio.to_thread(assembly.assemble, layout, names, Steps())
    supervisor = Supervisor(parts, layout.logs, on_change=lambda state: publish(state, ready=is_up))
    starting = asyncio.create_task(supervisor.start())
    stopping = asyncio.create_task(ending.wait())
    failure = ""
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            is_up = True
            write_json(layout.context_file, context(layout, names))
            publish(supervisor.state(), ready=True)
            await stopping
    except PartFailedError as error:
        failure = str(error)
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await supervisor.stop()
        publish(supervisor.state(), error=failure)
        layout.pid_file.unlink(missing_ok=True)
    return 1 if failure else 0


def context(layout: Layout, names: Sequence[str]) -> dict[str, str]:
    """What the CLI reads: where each part of this stack is."""
    found = assembly.addresses(layout, names, running=True)
    urls = {service.name: f"http://{found[service.name]}" for service in table.SERVICES if service.name in found}
    known = {
        "http": urls.get("quota-enforcer"),
        "kafka": found.get("kafka"),
        "prometheus": urls.get("prometheus"),
        "postgres": f"postgresql://{table.LOGIN_ROLES[1]}@{found['postgres']}/plimsoll"
        if "postgres" in found
        else None,
        "valkey": f"redis://{found['valkey']}" if "valkey" in found else None,
    }
    told = {name: value for name, value in known.items() if value}
    return {**told, **layout.credentials.context()} if "http" in told else told
