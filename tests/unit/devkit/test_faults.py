import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plimsoll_devkit import faults
from plimsoll_devkit.faults import Proxy
from plimsoll_devkit.stack.process import descendants, start_time


class Echo:
    """A server that answers each line with itself and remembers what arrived."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self.heard.append(line)
            writer.write(line)
        writer.close()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[Echo, Proxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with server, Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield echo, proxy


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: bytes) -> bytes:
    writer.write(line)
    return await asyncio.wait_for(reader.readline(), 0.3)


async def test_it_passes_both_ways() -> None:
    async with proxied() as (_, proxy):
        connection = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await ask(*connection, b"one\n") == b"one\n"
        assert proxy.address == f"127.0.0.1:{proxy.port}"
        connection[1].close()


async def test_a_blackhole_swallows_what_is_sent_and_can_end() -> None:
    async with proxied() as (echo, proxy):
        connection = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.mode = "blackhole"
        with pytest.raises(TimeoutError):
            await ask(*connection, b"lost\n")
        proxy.mode = "pass"
        assert await ask(*connection, b"heard\n") == b"heard\n"
        assert echo.heard == [b"heard\n"]
        connection[1].close()


async def test_half_open_delivers_the_request_and_loses_the_answer() -> None:
    async with proxied() as (echo, proxy):
        connection = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.mode = "half-open"
        with pytest.raises(TimeoutError):
            await ask(*connection, b"arrives\n")
        assert echo.heard == [b"arrives\n"]
        connection[1].close()


async def test_a_delay_holds_the_answer_back() -> None:
    async with proxied() as (_, proxy):
        proxy.delay = 0.05
        connection = await asyncio.open_connection("127.0.0.1", proxy.port)
        began = time.monotonic()
        assert await ask(*connection, b"slow\n") == b"slow\n"
        assert time.monotonic() - began >= 0.1
        connection[1].close()


async def test_a_cut_ends_open_connections_and_refusing_ends_new_ones() -> None:
    async with proxied() as (_, proxy):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await ask(reader, writer, b"one\n") == b"one\n"
        proxy.cut()
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(reader.readexactly(1), 1)
        writer.close()
        again = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await ask(*again, b"two\n") == b"two\n"
        again[1].close()
        proxy.refuse = True
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(reader.readexactly(1), 1)
        writer.close()
        assert proxy.connections == 2


def test_a_frozen_process_and_its_children_make_no_progress_until_thawed(tmp_path: Path) -> None:
    file = tmp_path / "ticks"
    ticking = f"import time\nwhile True:\n    open({str(file)!r}, 'a').write('.')\n    time.sleep(0.01)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ticking!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], start_new_session=True)
    try:
        _until_grown(file, 0)
        faults.freeze(process.pid)
        time.sleep(0.05)
        size = file.stat().st_size
        time.sleep(0.2)
        assert file.stat().st_size == size
        faults.thaw(process.pid)
        _until_grown(file, size)
    finally:
        children = descendants(process.pid)
        for pid in (process.pid, *children):
            faults.kill(pid)
        process.wait()
    assert start_time(process.pid) is None
    faults.kill(process.pid)  # one that is gone already is no error


def _until_grown(file: Path, size: int) -> None:
    deadline = time.monotonic() + 5
    while not (file.exists() and file.stat().st_size > size):
        assert time.monotonic() < deadline
        time.sleep(0.01)
