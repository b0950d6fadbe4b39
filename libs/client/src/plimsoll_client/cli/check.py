"""What does ``plimsoll quota check`` do: ask whether amounts, or a compose file, would be allowed now."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from pydantic import ValidationError

from plimsoll_client.cli import render
from plimsoll_client.cli.arguments import read_amount, read_scope
from plimsoll_client.cli.commands import quota
from plimsoll_client.cli.compose_file import read_app_file, read_compose_file
from plimsoll_client.cli.failures import CommandFailed, Exit, exit_for
from plimsoll_client.cli.figures import clean
from plimsoll_client.cli.session import In, Session, watchable
from plimsoll_contracts.codes import CODES
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import EnforcementReply, explain
from plimsoll_contracts.fields import UNLIMITED
from plimsoll_contracts.requests import Footprint
from plimsoll_contracts.verbs import NEW_DEPLOYMENT, CheckBody

_REFUSED = (402, 403)


@quota.command
@watchable
def check(
    scope: str,
    /,
    *,
    cpu: str = "0",
    memory: str = "0",
    disk: str = "0",
    vapps: str = "0",
    file: Annotated[Path | None, Parameter(name=("--file", "-f"), allow_leading_hyphen=True)] = None,
    app_file: Path | None = None,
    app: str | None = None,
    deployment: str | None = None,
    session: In,
) -> Exit:
    """Ask whether this would be allowed now; nothing is held. Exits with 5 when it would be denied.

    Args:
        scope: Where it would run: TENANT, TENANT/env:ENVIRONMENT or TENANT/STACK/ENVIRONMENT.
        cpu: Cores (0.5) or millicores (500m).
        memory: Bytes, with a binary suffix: 512m, 8g.
        disk: Bytes, with a binary suffix.
        vapps: How many running instances of a packaged app.
        file: Instead of amounts, the compose file as `docker compose config` prints it; `-` is stdin.
        app_file: A YAML file whose `quota` names `reservation_multiplier` or `limit_multiplier`.
        app: The app it belongs to.
        deployment: One that exists, to ask about its change; a new one where it is not given.
        session: This run of the command.
    """
    where = read_scope(scope)
    given = {Dimension.CPU: cpu, Dimension.MEMORY: memory, Dimension.DISK: disk, Dimension.VAPPS: vapps}
    amounts = {dimension: _finite(dimension, text) for dimension, text in given.items()}
    if file is not None and any(amounts.values()):
        raise CommandFailed(Exit.USAGE, "a compose file and amounts are two footprints", "give one of the two")
    try:
        body = CheckBody(
            tenant=where.tenant,
            environment=where.environment or None,
            stack=where.stack or None,
            app=app,
            deployment=deployment or NEW_DEPLOYMENT,
            footprint=Footprint.model_validate(amounts) if file is None else None,
            compose=read_compose_file(file) if file is not None else None,
            app_multipliers=read_app_file(app_file) if app_file is not None else None,
        )
    except ValidationError as error:
        raise CommandFailed(Exit.USAGE, explain(error)) from None
    return _tell(session, session.api.check(body), str(where), is_file=file is not None)


def _finite(dimension: Dimension, text: str) -> int:
    value = read_amount(dimension, text)
    if value == UNLIMITED or not isinstance(value, int):
        raise CommandFailed(Exit.USAGE, f"nobody can ask for unlimited {dimension}", "write an amount")
    return value


def _tell(session: Session, reply: EnforcementReply, where: str, *, is_file: bool) -> Exit:
    session.show(reply, lambda: render.verdict(reply, where, session.now, is_file=is_file), _rows(reply))
    for note in reply.notes:
        session.say(f"note: {clean(note)}")
    if reply.fail_open:
        session.say(f"failing open: {', '.join(reply.fail_open)}: this was not really judged", "yellow")
    if reply.allowed:
        return Exit.OK
    if reply.code is not None and reply.code in CODES:
        session.say(CODES[reply.code].remedy)
    return Exit.DENIED if reply.status in _REFUSED else exit_for(reply.status)


def _rows(reply: EnforcementReply) -> list[Mapping[str, object]]:
    """Return a line for what is missing each time, or one that says that nothing is."""
    columns = ("code", "scope", "node", "pool", "dimension", "basis", "limit", "capacity", "used", "held", "allocated",
               "asked", "would_fit", "largest_free")  # fmt: skip
    missing = [each.model_dump(mode="json") for each in (*reply.violations, *reply.capacity)]
    lines = missing or [{"code": reply.code}]
    return [{"allowed": reply.allowed, **{name: line.get(name) for name in columns}} for line in lines]
