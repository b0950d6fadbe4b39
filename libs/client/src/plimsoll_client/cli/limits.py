"""What do ``plimsoll quota apply``, ``quota history`` and ``quota list`` do?"""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from pydantic import ValidationError
from rich.text import Text

from plimsoll_client.cli import quotas_file, render_limits
from plimsoll_client.cli.arguments import read_dimension, read_scope, read_scope_or_defaults, read_until
from plimsoll_client.cli.commands import NO_REASON, quota
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.figures import clean
from plimsoll_client.cli.fullness import list_usage
from plimsoll_client.cli.session import In, Output, Session, watchable
from plimsoll_contracts.enforcement import Mode, explain
from plimsoll_contracts.limits_api import Applied, ApplyBody


@quota.command
def apply(
    *,
    file: Annotated[Path, Parameter(name=("--file", "-f"), allow_leading_hyphen=True)],
    dry_run: bool = False,
    force: bool = False,
    reason: str = NO_REASON,
    by: str | None = None,
    yes: bool = False,
    inverse: Path | None = None,
    session: In,
) -> Exit:
    """Set the limits that a file declares, over all tenants, all or none; shows the plan, and what would undo it.

    Args:
        file: Limits by scope and dimension, as in examples/quotas.yaml; `-` is stdin.
        dry_run: Only show the plan.
        force: Also set what lies below present usage.
        reason: Why, for those who ask later.
        by: Who does it, where the service runs without authentication; else your token says it.
        yes: Do not ask.
        inverse: Write what undoes it to this new file, rather than to stderr.
        session: This run of the command.
    """
    body = _body(session, quotas_file.load(file), reason=reason, by=by, force=force)
    plan = session.api.apply(body.model_copy(update={"dry_run": True}))
    below = sum(change.below_usage for change in plan.changes) if not force else 0
    is_last = dry_run or bool(below) or not plan.changes
    if is_last or session.output is Output.TABLE:
        _show(session, plan)
    if not plan.changes:
        session.say(f"nothing to do: {plan.unchanged} limits are as declared")
        return Exit.OK
    if not is_last:
        _confirm(session, plan, yes=yes)
    if dry_run or not below:
        _tell_inverse(session, plan, inverse)
    if below:
        many = f"{below} of {len(plan.changes)} limits would lie below present usage"
        if not dry_run:
            raise CommandFailed(Exit.CONFLICT, f"{many}: nothing was changed", "add --force, or change the file")
        session.say(f"{many}: it takes --force", "yellow")
    if dry_run:
        session.say("dry run: nothing was changed")
        return Exit.CONFLICT if below else Exit.OK
    done = session.api.apply(body.model_copy(update={"plan": plan.plan}))
    if session.output is not Output.TABLE:
        _show(session, done)
    session.say(f"{len(done.changes)} changed, {done.unchanged} were as declared")
    return Exit.OK


def _body(session: Session, quotas: quotas_file.Quotas, *, reason: str, by: str | None, force: bool) -> ApplyBody:
    for note in quotas_file.ended(quotas, session.now):
        session.say(note, "yellow")
    try:
        return ApplyBody(
            defaults=quotas.defaults,
            scopes=quotas.scopes,
            reason=reason,
            by=session.by(by),
            force=force,
        )
    except ValidationError as error:
        raise CommandFailed(Exit.USAGE, explain(error)) from None


def _show(session: Session, found: Applied) -> None:
    session.show(found, lambda: render_limits.plan(found), (render_limits.planned_row(each) for each in found.changes))


def _confirm(session: Session, plan: Applied, *, yes: bool) -> None:
    """Ask whether to go on.

    Raises:
        CommandFailed: nobody can be asked, or the answer was no.
    """
    if yes:
        return
    many = f"{len(plan.changes)} limits would change"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandFailed(Exit.USAGE, f"{many}, and there is nobody to ask", "add --yes, or --dry-run to look only")
    if session.output is not Output.TABLE:
        session.say(render_limits.plan(plan).plain)
    session.say(f"{many}. Go on? [y/N]")
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandFailed(Exit.ERROR, "nothing was changed")


def _tell_inverse(session: Session, plan: Applied, file: Path | None) -> None:
    """Write down what undoes a plan, before anything is done."""
    text = f"# What undoes it: plimsoll quota apply -f\n{quotas_file.write(plan.inverse)}"
    if file is None:
        session.say(text.rstrip())
        return
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        why = f"{file} cannot be written: {error.strerror}; nothing was changed"
        raise CommandFailed(Exit.ERROR, why, "name a file that is not there yet") from None
    session.say(f"what undoes it is in {file}")


@quota.command
@watchable
def history(
    scope: str | None = None,
    dimension: str | None = None,
    /,
    *,
    below: bool = False,
    last: int = 50,
    session: In,
) -> Exit:
    """Show who changed limits, when, why, and from what to what, newest first.

    Args:
        scope: TENANT, TENANT/env:ENVIRONMENT, TENANT/STACK/ENVIRONMENT, or `defaults`; everything where not given.
        dimension: Only this one.
        below: Also the scopes that lie in this one.
        last: How many, at most 500.
        session: This run of the command.
    """
    where = read_scope_or_defaults(scope) if scope is not None else None
    asked = {"dimension": read_dimension(dimension) if dimension is not None else None, "limit": last}
    if where is not None:
        asked["below"] = below
    found = session.api.history(where, of_defaults=scope is not None and where is None, **asked)
    rows = (render_limits.history_row(each) for each in found.versions)
    session.show(found, lambda: render_limits.history(found.versions, session.now), rows)
    if not found.versions:
        session.say("no limit was ever changed here")
    elif found.next is not None:
        session.say(f"the last {last}; --last shows more")
    return Exit.OK


@quota.command(name="list")
@watchable
def list_scopes(
    tenant: str | None = None,
    /,
    *,
    limits: bool = False,
    dimension: str | None = None,
    shadow: bool = False,
    ending: str | None = None,
    usage: bool = False,
    over: int | None = None,
    session: In,
) -> Exit:
    """List the tenants that are known, or the scopes of one; how full each is; or which limits are set there.

    Args:
        tenant: Whose scopes; all tenants where it is not given.
        usage: Show with each what is fullest there, the fullest first.
        over: Only those at or over so many percent of a limit.
        limits: List limits instead, with who set them and why; so do the options below.
        dimension: Only limits on this dimension.
        shadow: Only limits that are told and not enforced.
        ending: Only limits that end before: 7d (from now), 2026-12-24.
        session: This run of the command.
    """
    named = None if tenant is None else read_scope(tenant).tenant
    if limits or dimension or shadow or ending:
        return _list_limits(session, named, dimension, read_until(ending, session.now), shadow=shadow)
    found = list(session.api.scopes(named))
    if usage or over is not None:
        return list_usage(session, [*([named] if named else []), *found], over)
    rows = ({"scope": scope} for scope in found)
    session.show({"scopes": found}, lambda: Text("\n".join(clean(scope) for scope in found)), rows)
    if not found:
        session.say("nothing is known yet")
    return Exit.OK


def _list_limits(
    session: Session, tenant: str | None, dimension: str | None, ending: datetime | None, *, shadow: bool
) -> Exit:
    entries = list(
        session.api.limits(
            tenant,
            dimension=read_dimension(dimension) if dimension is not None else None,
            mode=Mode.SHADOW if shadow else None,
            expires_before=ending.isoformat() if ending is not None else None,
        )
    )
    rows = (render_limits.override_row(each) for each in entries)
    session.show({"limits": entries}, lambda: render_limits.overrides(entries, session.now), rows)
    if not entries:
        session.say("no such limit is set; `plimsoll quota status defaults` shows what holds for everybody")
    return Exit.OK
