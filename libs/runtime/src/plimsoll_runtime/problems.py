"""What does a code mean? The page that a problem's ``type`` points to, made from the registry, for anybody."""

import json
from html import escape
from typing import Annotated

from fastapi import APIRouter, Header, Path
from starlette.responses import Response

from plimsoll_contracts.codes import CODES, NOT_FOUND, Code
from plimsoll_runtime.http import PUBLIC, Problem

router = APIRouter()


@router.get(
    f"{PUBLIC}{{code}}",
    response_class=Response,
    responses={200: {"content": {kind: {} for kind in ("text/html", "application/json", "text/plain")}}},
)
async def show_problem(
    code: Annotated[str, Path(max_length=20)], accept: Annotated[str, Header()] = "text/plain"
) -> Response:
    """Say what a code means and what to do: as HTML, JSON or plain text. Needs no token."""
    if code not in CODES:
        raise Problem(NOT_FOUND, "there is no such code")
    found = CODES[code]
    if "text/html" in accept:
        return Response(_html(found), media_type="text/html")
    if "application/json" in accept:
        told = {"code": found.code, "name": found.name, "status": found.status, "title": found.title}
        return Response(json.dumps({**told, "remedy": found.remedy}), media_type="application/json")
    text = f"{found.code}  {found.name}  (HTTP {found.status})\n\n{found.title}.\n{found.remedy}\n"
    return Response(text, media_type="text/plain")


def _html(code: Code) -> str:
    name, title, remedy = escape(code.name), escape(code.title), escape(code.remedy)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{code} {name}</title>'
        f"<h1>{title}</h1><p>{remedy}</p><p><code>{code}</code> {name}, HTTP {code.status}</p></html>\n"
    )
