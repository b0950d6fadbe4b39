"""How is a process or a connection broken on purpose?"""

import asyncio
import contextlib
import signal
import socket
import struct
from typing import Literal, Self

from plimsoll_devkit.stack.process import descendants, signal_process

Mode = Literal["pass", "blackhole", "half-open"]
_CHUNK = 65_536


def kill(pid: int) -> None:
    """End a process at once, as a crash would."""
    signal_process(pid, signal.SIGKILL)


def freeze(pid: int) -> None:
    """Pause a process and all it started, as a long pause of the machine would."""
    for each in (pid, *descendants(pid)):
        signal_process(each, signal.SIGSTOP)


def thaw(pid: int) -> None:
    """Let a frozen process and all it started go on."""
    for each in (*descendants(pid), pid):
        signal_process(each, signal.SIGCONT)


class Proxy:
    """A TCP proxy on a free loopback port, to put between a client and a server; an async context manager.

    `blackhole` swallows both directions and still accepts; `half-open` swallows the server's answers only, so that
    what the client sends does arrive. `delay` is in seconds and holds for each direction. `cut` resets what is open.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.mode: Mode = "pass"
        self.delay = 0.0
        self.refuse = False
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    @property
    def port(self) -> int:
        """Where clients connect to."""
        if self._server is None:
            raise RuntimeError("the proxy is not started")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Reset every open connection; new ones are accepted unless `refuse` is set."""
        for writer in list(self._writers):
            _reset(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            _reset(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        self.connections += 1
        self._writers |= {writer, far_writer}
        for source, sink, to_server in ((reader, far_writer, True), (far_reader, writer, False)):
            task = asyncio.create_task(self._pump(source, sink, to_server=to_server))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, to_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                if self.mode == "blackhole" or (self.mode == "half-open" and not to_server):
                    continue
                sink.write(data)
                await sink.drain()
        sink.close()
        self._writers.discard(sink)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST instead of an orderly FIN."""
    # Closed without lingering: what is unsent is dropped, and the other end is told that something broke.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
