"""How does a process reach PostgreSQL: one pool, bounded waits, its own schema."""

import asyncpg

from plimsoll_runtime.migrations import check_schema_name

STATEMENT_MS = 5_000
LOCK_MS = 2_000
IDLE_IN_TRANSACTION_MS = 10_000
CLIENT_SECONDS = 10.0
"""The client's own patience: longer than the server's, it ends only waits on a server that is gone."""


async def create(dsn: str, *, application_name: str, schema: str, min_size: int = 1, max_size: int = 4) -> asyncpg.Pool:
    """Open a pool whose sessions end overlong statements, lock waits and idle transactions by themselves.

    Args:
        dsn: address of the database, with the service's login role.
        application_name: shown in `pg_stat_activity`: service and instance.
        schema: the service's schema, the only one on the search path.
        min_size: connections opened at once.
        max_size: most connections.

    Raises:
        OSError: when the server cannot be reached.
        asyncpg.PostgresError: when it refuses.
    """
    settings = {
        "application_name": application_name,
        "search_path": check_schema_name(schema),
        "statement_timeout": str(STATEMENT_MS),
        "lock_timeout": str(LOCK_MS),
        "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
        "timezone": "UTC",
        # Our statements are short; compiling them costs more than it saves.
        "jit": "off",
    }
    return await asyncpg.create_pool(
        dsn,
        min_size=min_size,
        max_size=max_size,
        timeout=CLIENT_SECONDS,
        command_timeout=CLIENT_SECONDS,
        server_settings=settings,
    )
