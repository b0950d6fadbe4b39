"""What do ``plimsoll quota`` and ``plimsoll context`` do?"""

from collections.abc import Iterator, Mapping

from cyclopts import App
from pydantic import ValidationError
from rich.console import RenderableType
from rich.text import Text

from plimsoll_client.cli import render
from plimsoll_client.cli.arguments import (
    read_dimension,
    read_limits,
    read_scope_or_defaults,
    read_until,
)
from plimsoll_client.cli.context import read_context
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.figures import clean
from plimsoll_client.cli.session import PLAIN_FLAGS, In, Session, watchable
from plimsoll_contracts.api import LimitsPatch, ScopeStatus
from plimsoll_contracts.enforcement import Mode, explain
from plimsoll_contracts.fields import LimitValue

quota = App(name="quota", help="Limits and usage.", default_parameter=PLAIN_FLAGS)
context = App(name="context", help="Where the services are that this command speaks to.")

NO_REASON = "no reason given"
"""What is written down where nobody says why."""


@quota.command
@watchable
def status(scope: str, /, *, session: In) -> Exit:
    """Show limits, usage and gates of a scope.

    Args:
        scope: TENANT, TENANT/env:ENVIRONMENT, TENANT/STACK/ENVIRONMENT, or `defaults`.
        session: This run of the command.
    """
    where = read_scope_or_defaults(scope)
    if where is None:
        found = session.api.defaults()
        rows = [{"dimension": d, "limit": view.value, "set_by": view.set_by} for d, view in found.limits.items()]
        session.show(found, lambda: render.limits(found.limits, session.now), rows)
        return Exit.OK
    shown = session.api.status(where)

    def table() -> RenderableType:
        # A table of zeros would read as if there were such a tenant.
        if not shown.known:
            return Text()
        return render.status(shown, session.now, fine=session.fine, width=session.width)

    session.show(shown, table, _status_rows(shown))
    if not shown.known:
        session.say(f"nothing was ever recorded of {where.tenant}: is the name right? `plimsoll quota list` knows all")
        return Exit.NOT_FOUND
    failing = [gate.gate for gate in shown.gates if gate.state == "fail_open"]
    if failing:
        session.say(f"failing open: {', '.join(failing)}: nothing is known of this tenant's entitlement", "yellow")
    return Exit.DEGRADED if failing else Exit.OK


def _status_rows(found: ScopeStatus) -> Iterator[Mapping[str, object]]:
    for line in found.dimensions:
        yield {
            "scope": found.scope,
            "dimension": line.dimension,
            "basis": line.basis,
            "unit": line.unit,
            "limit": line.limit.value,
            "source": line.limit.source,
            "ceiling": line.ceiling,
            "used": line.used,
            "held": line.held,
            "headroom": line.headroom,
            "as_of": line.as_of and line.as_of.isoformat(),
        }


@quota.command(name="set")
def set_limits(
    scope: str,
    /,
    *limits: str,
    reason: str = NO_REASON,
    by: str | None = None,
    until: str | None = None,
    shadow: bool = False,
    force: bool = False,
    if_version: int | None = None,
    session: In,
) -> Exit:
    """Set limits of a scope, all or none: `plimsoll quota set acme/env:prod cpu=4 memory=8g`.

    Args:
        scope: TENANT, TENANT/env:ENVIRONMENT, TENANT/STACK/ENVIRONMENT, or `defaults`.
        limits: DIMENSION=AMOUNT: cpu=4 (cores), cpu=500m, memory=8g, disk=unlimited, vapps=10.
        reason: Why, for those who ask later.
        by: Who does it, where the service runs without authentication; else your token says it.
        until: When it ends by itself: 2h, 3d, 2026-12-24, 2026-12-24T18:00.
        shadow: Count and tell what would be refused, and let it through.
        force: Also set what lies below present usage.
        if_version: Only if the scope's limits are still at this version: limits_version of `quota status -o json`.
        session: This run of the command.
    """
    return _change(
        session,
        scope,
        read_limits(limits),
        reason=reason,
        by=by,
        until=until,
        mode=Mode.SHADOW if shadow else Mode.ENFORCE,
        force=force,
        version=if_version,
    )


@quota.command
def unset(
    scope: str,
    /,
    *dimensions: str,
    reason: str = NO_REASON,
    by: str | None = None,
    force: bool = False,
    if_version: int | None = None,
    session: In,
) -> Exit:
    """Remove limits of a scope, all or none; shows what each falls back to.

    Args:
        scope: TENANT, TENANT/env:ENVIRONMENT, TENANT/STACK/ENVIRONMENT, or `defaults`.
        dimensions: Which limits: cpu memory ...
        reason: Why, for those who ask later.
        by: Who does it, where the service runs without authentication; else your token says it.
        force: Also where what it falls back to lies below present usage.
        if_version: Only if the scope's limits are still at this version: limits_version of `quota status -o json`.
        session: This run of the command.
    """
    named: dict[str, LimitValue | None] = {read_dimension(name): None for name in dimensions}
    if not named:
        raise CommandFailed(Exit.USAGE, "nothing to unset", "name dimensions, such as cpu memory")
    return _change(session, scope, named, reason=reason, by=by, force=force, version=if_version)


def _change(
    session: Session,
    scope: str,
    limits: Mapping[str, LimitValue | None],
    *,
    reason: str,
    by: str | None,
    until: str | None = None,
    mode: Mode = Mode.ENFORCE,
    force: bool,
    version: int | None,
) -> Exit:
    where = read_scope_or_defaults(scope)
    try:
        patch = LimitsPatch(
            limits=limits,
            by=session.by(by),
            reason=reason,
            mode=mode,
            expires_at=read_until(until, session.now),
            force=force,
        )
    except ValidationError as error:
        raise CommandFailed(Exit.USAGE, explain(error)) from None
    done = session.api.change(where, patch, version=version)
    rows = (
        {"scope": done.scope, "dimension": c.dimension, "before": c.before.value, "after": c.after.value,
         "source": c.after.source}
        for c in done.changes
    )  # fmt: skip
    session.show(done, lambda: render.changed(done, session.now), rows)
    return Exit.OK


@context.default
def show_context(name: str | None = None, *, session: In) -> Exit:  # noqa: D417  the session is no argument of the command
    """Show every address of the context file, or just one: curl $(plimsoll context http)/metrics.

    Args:
        name: One of those that are shown without it, such as http or kafka.
    """
    known = read_context()
    if name is not None and name not in known:
        raise CommandFailed(Exit.NOT_FOUND, f"the context file names no {clean(name)}", f"one of {', '.join(known)}")
    told = known if name is None else {name: known[name]}
    lines = [clean(known[name])] if name is not None else [f"{clean(n):<11} {clean(known[n])}" for n in known]
    session.show(told, lambda: Text("\n".join(lines)), [{"name": n, "address": told[n]} for n in told])
    return Exit.OK
