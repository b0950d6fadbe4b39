"""How is a topic consumed: exactly once in effect, offsets and state in one PostgreSQL transaction."""

from pathlib import Path

MIGRATIONS = ("streams", Path(__file__).parent / "sql")
"""The engine's tables, as a source for `plimsoll_runtime.migrations`."""
