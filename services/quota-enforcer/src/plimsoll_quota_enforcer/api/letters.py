"""What of the records that were set aside: list, show, replay."""

import base64
from typing import Annotated

from fastapi import APIRouter, Path, Query

from plimsoll_contracts import codes
from plimsoll_contracts.api import DeadLetterList, DeadLetterView
from plimsoll_quota_enforcer.api.access import administers
from plimsoll_quota_enforcer.api.once import MaybeOnce
from plimsoll_quota_enforcer.api.parts import INT64_MAX, Given, Page
from plimsoll_runtime.http import Problem
from plimsoll_streams import dead_letters
from plimsoll_streams.transactions import Connection

AfterLetter = Annotated[int, Query(ge=0, le=INT64_MAX)]
Letter = Annotated[int, Path(ge=0, le=INT64_MAX)]

router = APIRouter(dependencies=[administers])


@router.get("/dead-letters")
async def list_dead_letters(
    parts: Given, after: AfterLetter = 0, limit: Page = 100, *, replayed: bool = False
) -> DeadLetterList:
    """List records that were set aside, oldest first; those replayed only on request."""
    found = await dead_letters.find(parts.pool, after=after, waiting_only=not replayed, limit=limit)
    views = tuple(_view(letter) for letter in found)
    return DeadLetterList(dead_letters=views, next=found[-1].id if len(found) == limit else None)


@router.get("/dead-letters/{letter}")
async def show_dead_letter(parts: Given, letter: Letter) -> DeadLetterView:
    """Show one record that was set aside, with its bytes."""
    found = await dead_letters.show(parts.pool, letter)
    if found is None:
        raise Problem(codes.NOT_FOUND, f"there is no dead letter {letter}")
    return _view(found, whole=True)


@router.post("/dead-letters/{letter}/replay")
async def replay_dead_letter(parts: Given, letter: Letter, *, once: MaybeOnce, dry_run: bool = False) -> DeadLetterView:
    """Publish a record to its topic again, byte for byte."""

    async def replay(connection: Connection) -> dead_letters.Kept:
        try:
            return (await dead_letters.replay(connection, [letter], dry_run=dry_run))[0]
        except LookupError as error:
            raise Problem(codes.NOT_FOUND, str(error)) from None
        except ValueError as error:
            raise Problem(codes.INVALID_REQUEST, str(error)) from None

    return _view(await parts.write(replay, once=once, told=_view))


def _view(kept: dead_letters.Kept, *, whole: bool = False) -> DeadLetterView:
    record = kept.record
    return DeadLetterView(
        id=kept.id,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key.decode(errors="backslashreplace") if record.key is not None else None,
        code=kept.code,
        detail=kept.detail,
        at=kept.created_at,
        size=len(record.value or b""),
        replayed_at=kept.replayed_at,
        value_base64=base64.b64encode(record.value).decode() if whole and record.value is not None else None,
    )
