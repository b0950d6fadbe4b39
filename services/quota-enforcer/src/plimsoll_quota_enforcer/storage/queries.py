"""Which statements are there: the named queries of the files in ``sql``, each a text by its name."""

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import plimsoll_streams

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


_FILES = ("queries.sql", "doctor.sql")


def _read() -> dict[str, str]:
    folder = files("plimsoll_quota_enforcer").joinpath("sql")
    parts = [part for file in _FILES for part in _NAME.split(folder.joinpath(file).read_text())[1:]]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


QUERIES = _read()
"""Every statement of this service by name."""

_ARRAY = re.compile(r"\$(\d+)::(\w+)\[\]")


@cache
def by_literals(name: str) -> str:
    """Return a statement whose arrays are given as literals (``rows.literals``)."""
    return _ARRAY.sub(r"$\1::text::\2[]", QUERIES[name])


SCHEMA = "quota"

MIGRATIONS = [
    ("streams", Path(plimsoll_streams.__path__[0]) / "sql"),
    ("quota", Path(__file__).parent.parent / "sql" / "migrations"),
]
"""What makes the schema: the engine's tables, then our own."""
