"""Is a part of the stack ready to be used?"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import asyncpg
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

_POLL_SECONDS = 0.05
_ASK_SECONDS = 5.0
_OK = 200


class NotReadyError(RuntimeError):
    """A part ended or ran out of time before it was ready."""


async def wait(healthy: Callable[[], Awaitable[bool]], seconds: float, alive: Callable[[], bool]) -> None:
    """Ask again and again until ready.

    Raises:
        NotReadyError: `alive` says no, or `seconds` have passed.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        if not alive():
            raise NotReadyError("it ended before it was ready")
        with contextlib.suppress(TimeoutError, OSError):
            if await asyncio.wait_for(healthy(), _ASK_SECONDS):
                return
        await asyncio.sleep(_POLL_SECONDS)
    raise NotReadyError(f"it was not ready within {seconds:.0f} s")


async def kafka(address: str) -> bool:
    """Whether the broker answers metadata and names a group coordinator; an open port alone is no broker."""
    if not await _listens(address):
        return False
    # The client logs each refusal of a broker that is still starting.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    admin = AIOKafkaAdminClient(bootstrap_servers=address, request_timeout_ms=2_000)
    try:
        await admin.start()
        await admin.find_coordinator("plimsoll-health")
    except (KafkaError, OSError):
        return False
    finally:
        logging.getLogger("aiokafka").setLevel(logging.NOTSET)
        await admin.close()
    return True


async def postgres(dsn: str) -> bool:
    """Whether the server takes a query."""
    try:
        connection = await asyncpg.connect(dsn, timeout=_ASK_SECONDS)
    except (asyncpg.PostgresError, OSError):
        return False
    try:
        return bool(await connection.fetchval("SELECT 1") == 1)
    finally:
        await connection.close()


async def valkey(address: str) -> bool:
    """Whether the server answers PING."""
    return (await _exchange(address, b"PING\r\n")).startswith(b"+PONG")


async def http(address: str, path: str) -> bool:
    """Whether a GET of `path` is answered with 200."""
    request = f"GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    status = (await _exchange(address, request.encode())).split(b" ", 2)
    return len(status) > 1 and status[1] == str(_OK).encode()


async def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


async def _exchange(address: str, request: bytes) -> bytes:
    """The first line of the answer to `request`, empty where there is none."""
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return b""
    try:
        writer.write(request)
        return await reader.readline()
    except OSError:
        return b""
    finally:
        writer.close()
