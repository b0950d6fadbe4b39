"""How do several writes reach the database in one trip: as the parts of one statement."""

import re
from functools import lru_cache
from typing import Any

from plimsoll_streams.transactions import Connection

_PARAMETER = re.compile(r"\$(\d+)")


class Statements:
    """Statements that wait to be run together. Each writes tables of its own: none sees what the others did."""

    def __init__(self) -> None:
        """Begin with none."""
        self._texts: list[str] = []
        self._arguments: list[Any] = []

    def add(self, text: str, *arguments: object) -> None:
        """Add one, with parameters from $1 on."""
        self._texts.append(text)
        self._arguments += arguments

    async def run(self, connection: Connection) -> None:
        """Run all there are as one."""
        if self._texts:
            texts, self._texts = tuple(self._texts), []
            arguments, self._arguments = self._arguments, []
            await connection.execute(together(texts), *arguments)


@lru_cache(maxsize=256)
def together(texts: tuple[str, ...]) -> str:
    """Return one statement that runs several; its parameters are theirs, one after the other."""
    parts: list[str] = []
    before = 0
    for number, text in enumerate(texts):
        parts.append(f"part_{number} AS (\n{_shifted(text, before)}\n)")
        before += max((int(found) for found in _PARAMETER.findall(text)), default=0)
    return "WITH " + ",\n".join(parts) + "\nSELECT"


def _shifted(text: str, by: int) -> str:
    """Return a statement with its parameters numbered on."""
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", text)
