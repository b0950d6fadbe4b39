"""Which statements are there: the named queries of ``sql/queries.sql``, each a text by its name."""

import re
from importlib.resources import files
from pathlib import Path

import plimsoll_streams

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def _read() -> dict[str, str]:
    text = files("plimsoll_quota_enforcer").joinpath("sql/queries.sql").read_text()
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


QUERIES = _read()
"""Every statement of this service by name."""

SCHEMA = "quota"

MIGRATIONS = [
    ("streams", Path(plimsoll_streams.__path__[0]) / "sql"),
    ("quota", Path(__file__).parent.parent / "sql" / "migrations"),
]
"""What makes the schema: the engine's tables, then our own."""
