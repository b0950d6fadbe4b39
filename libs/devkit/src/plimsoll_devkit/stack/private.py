"""How do tests drive a stack of their own from synchronous code?"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from plimsoll_devkit import faults
from plimsoll_devkit.stack import assembly, daemon, table
from plimsoll_devkit.stack.context import Layout, reachable, write_json
from plimsoll_devkit.stack.credentials import Credentials
from plimsoll_devkit.stack.database import Database, on_server
from plimsoll_devkit.stack.steps import Steps
from plimsoll_devkit.stack.supervisor import Supervisor

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, for synchronous callers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # The kernel ends child processes when the thread that started them ends: this one lives as long as its user.
        self._thread = threading.Thread(target=self._loop.run_forever, name="plimsoll-stack", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; whoever stops waiting, by Ctrl-C for one, stops it too."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class PrivateStack:
    """Local processes in a temporary folder, used as a context manager; all synchronous.

    With `folder` they live there instead; either way it is removed at the end.
    With `restart` a part that ends by itself is started again, as in the stack of `make up`.
    `kill` is a crash (SIGKILL), `stop` a clean end, `freeze` a pause (SIGSTOP); `start` and `thaw` undo them.
    """

    def __init__(
        self,
        names: Sequence[str] = assembly.INFRASTRUCTURE,
        *,
        restart: bool = False,
        alerts_faster: int = 1,
        folder: Path | None = None,
        on_change: Callable[[Mapping[str, dict[str, object]]], None] | None = None,
    ) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="plimsoll-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # the database runs as another user when we are root
        self._names = tuple(names)
        self._layout = Layout(self.folder)
        try:
            parts = assembly.assemble(self._layout, names, Steps(), alerts_faster)
        except BaseException:
            shutil.rmtree(self.folder)
            raise
        self._thread = LoopThread()
        self._supervisor = Supervisor(parts, self._layout.logs, restart=restart, on_change=on_change)

    def __enter__(self) -> Self:
        try:
            self._thread.run(self._supervisor.start())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop every process and remove the folder."""
        try:
            self._thread.run(self._supervisor.stop())
        finally:
            self._thread.close()
            for folder in (reachable(self.folder / "postgres"), self.folder):
                shutil.rmtree(folder, ignore_errors=True)

    def address(self, name: str) -> str:
        """What a client connects with: `host:port`, for the database the superuser's connection."""
        return assembly.endpoint(self._layout, name)

    @property
    def kafka_bootstrap(self) -> str:
        """`host:port` of the broker."""
        return self.address("kafka")

    @property
    def postgres_admin_dsn(self) -> str:
        """The superuser's connection to the server."""
        return self.address("postgres")

    @property
    def database(self) -> Database:
        """The stack's database `plimsoll`, with every role."""
        return on_server(self.postgres_admin_dsn, table.DATABASE)

    @property
    def valkey_url(self) -> str:
        """`redis://host:port`."""
        return self.address("valkey")

    @property
    def credentials(self) -> Credentials:
        """Key and token of its HTTP API."""
        return self._layout.credentials

    def write_context(self) -> Path:
        """The file that the CLI reads (PLIMSOLL_CONTEXT names it), written for this stack."""
        file = self.folder / "context.json"
        write_json(file, daemon.context(self._layout, self._names))
        return file

    def start(self, name: str) -> None:
        """Start a part again; ready when this returns."""
        self._thread.run(self._supervisor.start_part(name))

    def stop(self, name: str) -> None:
        """Stop a part cleanly."""
        self._thread.run(self._supervisor.stop_part(name))

    def kill(self, name: str) -> None:
        """Crash a part."""
        self._thread.run(self._supervisor.kill_part(name))

    def pid(self, name: str) -> int:
        """The process id of a running part."""
        return self._supervisor.pid(name)

    def state(self, name: str) -> dict[str, object]:
        """Phase, process id (None while it does not run) and restarts of a part."""
        return self._supervisor.state()[name]

    def freeze(self, name: str) -> None:
        """Pause a part, its children included."""
        faults.freeze(self.pid(name))

    def thaw(self, name: str) -> None:
        """Let a paused part go on."""
        faults.thaw(self.pid(name))

    def log(self, name: str) -> Path:
        """The output of a part."""
        return self._layout.logs / f"{name}.log"
