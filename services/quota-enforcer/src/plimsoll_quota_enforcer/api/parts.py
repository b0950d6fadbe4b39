"""With what do the routes work, and which parameters do they share?"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import asyncpg
from fastapi import Depends, Query, Request
from pydantic import BaseModel

from plimsoll_client import EnforcementClient
from plimsoll_contracts import codes
from plimsoll_contracts.fields import Name
from plimsoll_quota_enforcer.api.once import Repeated, same_as_first
from plimsoll_quota_enforcer.domain.model import Place
from plimsoll_quota_enforcer.domain.relimit import LimitRefused
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.doctor import Examined
from plimsoll_quota_enforcer.storage.once import Once, keep, take
from plimsoll_runtime.http import Problem
from plimsoll_streams.transactions import Connection

PAGE_MAX = 500
INT64_MAX = 2**63 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the process hands to its routes."""

    pool: asyncpg.Pool
    cache: StateCache
    policy: Policy
    client: Callable[[], Awaitable[EnforcementClient]]
    """Starts the client at first use."""
    wake_relay: Callable[[], None]
    examined: Examined

    async def write(
        self,
        change: Callable[[Connection], Awaitable[T]],
        *,
        once: Once | None = None,
        told: Callable[[T], BaseModel] | None = None,
    ) -> T:
        """Run a change in one transaction, and have the relay publish what it told.

        With ``once`` what is answered (``told`` makes it of the result) is kept in that transaction.

        Raises:
            Problem: a rule speaks against it; nothing was written.
            Repeated: it was done before, under the same key; nothing was written.
        """
        try:
            async with self.pool.acquire() as connection, connection.transaction():
                if once is None or told is None:
                    result = await change(connection)
                else:
                    known = await take(connection, once)
                    same_as_first(once, known)
                    if known.reply is not None:
                        raise Repeated(known.reply)
                    result = await change(connection)
                    await keep(connection, once, told(result).model_dump_json())
        except LimitRefused as refused:
            raise Problem(refused.code, refused.detail) from None
        self.wake_relay()
        return result

    async def try_out(self, change: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a change in a transaction that is taken back.

        Raises:
            Problem: a rule speaks against it.
        """
        async with self.pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                return await change(connection)
            except LimitRefused as refused:
                raise Problem(refused.code, refused.detail) from None
            finally:
                await transaction.rollback()


def _parts(request: Request) -> Parts:
    parts = request.app.state.parts
    assert isinstance(parts, Parts)  # noqa: S101 - routes.py puts it there
    return parts


def _place(environment: Name | None = None, stack: Name | None = None) -> Place:
    if stack is not None and environment is None:
        raise Problem(codes.SCOPE_IS_ROLLUP, "a stack is named without its environment: name both, or neither")
    return (environment or "", stack or "")


Given = Annotated[Parts, Depends(_parts)]
"""How a route takes its parts."""
At = Annotated[Place, Depends(_place)]
"""The place in a tenant that ``?environment=`` and ``?stack=`` name."""
Page = Annotated[int, Query(ge=1, le=PAGE_MAX)]
AfterName = Annotated[str, Query(max_length=127, pattern="^[a-z0-9._/-]*$")]
