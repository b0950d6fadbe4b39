"""How is another service's state kept here: the newest version of each key wins, whatever order they come in."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plimsoll_contracts.versions import Standing, standing
from plimsoll_streams.transactions import Connection

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Version:
    """One state of one key; no body is a tombstone, which is a state like any other and never a missing row."""

    key: str
    version: int
    body: str | None


@dataclass(frozen=True, slots=True)
class Folded:
    """What a batch comes to."""

    newer: tuple[Version, ...]
    """To be written, at most one a key, by key."""
    stale: int
    """Older than what is known."""
    repeated: int
    """The known version with the known body."""
    conflicts: tuple[Version, ...]
    """The known version with another body: kept out, since which of the two is right cannot be known here."""


def fold(changes: Iterable[Version], stored: Mapping[str, Version]) -> Folded:
    """Bring a batch of changes, in any order, onto what is stored."""
    best: dict[str, Version] = {}
    stale = repeated = 0
    conflicts: list[Version] = []
    for change in changes:
        known = best.get(change.key) or stored.get(change.key)
        match standing((known.version, known.body) if known is not None else None, (change.version, change.body)):
            case Standing.APPLIED:
                # What it replaces within the batch was newer than the stored one, and is now as old as any other.
                stale += change.key in best
                best[change.key] = change
            case Standing.STALE:
                stale += 1
            case Standing.REPEATED:
                repeated += 1
            case Standing.CONFLICT:
                conflicts.append(change)
    return Folded(tuple(best[key] for key in sorted(best)), stale, repeated, tuple(conflicts))


class VersionedTable:
    """A projection's table: columns `key text primary key, version bigint, body text`, by other names if need be.

    The body is text as it came, not jsonb: that would write the same body otherwise, and look like a conflict.
    The caller holds the guards of the keys, so that nobody writes between `load` and `save`; `save` is
    conditional all the same.
    """

    def __init__(self, table: str, *, key: str = "key", version: str = "version", body: str = "body") -> None:
        """Name the table and its columns.

        Raises:
            ValueError: a name may not stand unquoted in SQL.
        """
        for name in (table, key, version, body):
            if not _IDENTIFIER.fullmatch(name):
                raise ValueError(f"not an identifier: {name!r}")
        self._load = f"SELECT {key}, {version}, {body} FROM {table} WHERE {key} = ANY($1)"  # noqa: S608
        self._save = f"""
            INSERT INTO {table} AS t ({key}, {version}, {body})
            SELECT k, v, b FROM unnest($1::text[], $2::bigint[], $3::text[]) AS x (k, v, b) ORDER BY k
            ON CONFLICT ({key}) DO UPDATE SET {version} = excluded.{version}, {body} = excluded.{body}
            WHERE excluded.{version} > t.{version}
        """  # noqa: S608 - names checked above

    async def load(self, connection: Connection, keys: Sequence[str]) -> dict[str, Version]:
        """Return what is stored of these keys."""
        rows = await connection.fetch(self._load, keys)
        return {row[0]: Version(row[0], row[1], row[2]) for row in rows}

    async def save(self, connection: Connection, newer: Sequence[Version]) -> None:
        """Write the newer versions."""
        if newer:
            await connection.execute(
                self._save,
                [each.key for each in newer],
                [each.version for each in newer],
                [each.body for each in newer],
            )

    async def apply(self, connection: Connection, changes: Sequence[Version]) -> Folded:
        """Load, fold and save one batch; what is returned is for counting and telling."""
        folded = fold(changes, await self.load(connection, sorted({change.key for change in changes})))
        await self.save(connection, folded.newer)
        return folded
