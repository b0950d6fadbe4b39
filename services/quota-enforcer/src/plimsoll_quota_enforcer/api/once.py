"""How may a change be sent twice: under an ``Idempotency-Key``, and the second time does nothing but answer."""

import hashlib
from typing import Annotated

from fastapi import Depends, Header, Request

from plimsoll_contracts import codes
from plimsoll_contracts.fields import ID_PATTERN
from plimsoll_quota_enforcer.storage.once import Known, Once
from plimsoll_runtime.auth import principal_of
from plimsoll_runtime.http import Problem


class Repeated(Exception):
    """This was done before; the text is what was answered then."""


async def _once(
    request: Request, idempotency_key: Annotated[str | None, Header(pattern=ID_PATTERN)] = None
) -> Once | None:
    if idempotency_key is None:
        return None
    asked = f"{request.method} {request.url.path}?{request.url.query}\n".encode() + await request.body()
    return Once(principal_of(request).subject or "", idempotency_key, hashlib.sha256(asked).digest())


MaybeOnce = Annotated[Once | None, Depends(_once)]
"""How a route takes the key of a request that may be repeated."""


def same_as_first(once: Once, known: Known) -> None:
    """Let through what is the first time, or asks the same as then.

    Raises:
        Problem: the key was used for something else.
    """
    if known.fingerprint != once.fingerprint:
        raise Problem(codes.IDEMPOTENCY_MISMATCH, f"Idempotency-Key {once.key} came with something else before")
