"""How is the enforcer started: ``python -m plimsoll_quota_enforcer [migrate | --check-config]``."""

import asyncio
import os
import signal
import socket
import sys

import asyncpg
import structlog
import uvicorn

from plimsoll_quota_enforcer.app import NAME, Enforcer
from plimsoll_quota_enforcer.config import EnforcerSettings
from plimsoll_quota_enforcer.storage.queries import MIGRATIONS, SCHEMA
from plimsoll_runtime import auth, config, keys, logs, memory, migrations, pool

USAGE = """usage: python -m plimsoll_quota_enforcer [migrate | --check-config]

  (nothing)        run the service until SIGTERM
  migrate          bring the schema up to date, as the owner named by PLIMSOLL_MIGRATE_DSN
  --check-config   print every setting with its value and source, and exit"""

log = structlog.get_logger("plimsoll.quota")


async def run(settings: EnforcerSettings) -> int:
    """Run until SIGTERM; return 1 if the engine ended by itself."""
    try:
        sessions = await pool.create(
            settings.postgres_dsn.get_secret_value(),
            # The process is named too, so that `plimsoll doctor` sees two that run under one ordinal.
            application_name=f"{NAME}-{settings.instance} {socket.gethostname()[:32]}:{os.getpid()}",
            schema=SCHEMA,
            max_size=6,
        )
    except (OSError, TimeoutError, asyncpg.PostgresError) as away:
        # Whoever supervises us starts us again; until then callers wait on the topic, and nothing is lost.
        log.error("no database", setting="PLIMSOLL_POSTGRES_DSN", problem=str(away) or repr(away))  # noqa: TRY400
        return 1
    try:
        await migrations.verify(sessions, schema=SCHEMA, sources=MIGRATIONS)
        enforcer = Enforcer(settings, sessions, await auth.authentication(settings))
        memory.collect_rarely()
        server = uvicorn.Server(
            uvicorn.Config(
                enforcer.asgi,
                host=settings.http_host,
                port=settings.http_port,
                log_config=None,
                access_log=False,
                lifespan="on",
            )
        )
        # uvicorn raises the signal that ended it once more; without these the process would die of it right there,
        # before the pool is closed, and with the same code whether it was asked to end or its engine failed.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        await server.serve()
        return 1 if enforcer.engine.failure is not None or not server.started else 0
    finally:
        await sessions.close()


async def migrate() -> int:
    """Apply what is missing and say what was."""
    settings = config.load(config.MigrateSettings)
    dsn = settings.migrate_dsn.get_secret_value()
    done = await migrations.migrate(dsn, schema=SCHEMA, sources=MIGRATIONS)
    for migration in done:
        print(f"applied {migration}")
    print(f"schema {SCHEMA} is up to date")
    return 0


def main(arguments: list[str]) -> int:
    """Choose by the arguments."""
    match arguments:
        case []:
            settings = config.load(EnforcerSettings)
            logs.configure(
                service=NAME, instance=settings.instance, format=settings.log_format, level=settings.log_level
            )
            try:
                return asyncio.run(run(settings))
            except migrations.WrongSchemaError as wrong:
                log.error("wrong schema", problem=str(wrong))  # noqa: TRY400 - it is the operator's, not a bug
                return 1
            except keys.KeysUnreadableError as none:
                log.error("no keys", setting="PLIMSOLL_AUTH_JWKS", problem=str(none))  # noqa: TRY400 - as above
                return 1
        case ["migrate"]:
            return asyncio.run(migrate())
        case ["--check-config"]:
            print(config.render(config.describe(config.load(EnforcerSettings))))
            for stranger in config.strangers(EnforcerSettings, os.environ):
                print(stranger, file=sys.stderr)
            return 0
        case _:
            print(USAGE, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
